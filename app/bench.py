"""`make bench`: the engine beside transformers, and the engine behind the running page. Its last line is one JSON.

The page is measured as a visitor has it: a headless Chromium on this machine draws the four charts while tokens stream.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from app.__main__ import serve
from app.page import build
from app.runs import Runs, batches
from backend.engine import Lab
from backend.evaluation.bench import timing, ways
from backend.models.adapters import available
from backend.models.pool import Models
from backend.record.provenance import provenance
from backend.record.results import RESULTS, keep, writable
from backend.settings import RunSettings
from backend.steps import Finish
from backend.terminal import say

PROMPT = "Tell me a long story about a lighthouse keeper and the sea."
OUT = RESULTS / "bench.json"
FIRST_RUN, LATER_RUN = "page in Chromium, first run", "page in Chromium, next run"
SETTLED = 4000
# Tokens that chat template and request take of a prompt.
ROOM = 60
# `make bench-long` has more of all.
CONTEXTS = ways.CONTEXTS
LONG, WINDOWS, LONGEST = (4096, 16384, 32768), (2048,), {"transformers": 32768, "engine": 16384}
ROUNDS = 5
SHORT_PROMPT = 128
# Tokens of longer prompts, and how many are written after each, in fewer rounds.
LONG_PROMPTS, LONG_ROUNDS = {2048: 120, 8192: 64}, 3


class TimedLab(Lab):
    """A lab that remembers how each run ended."""

    def __init__(self, models: Models):
        super().__init__(models)
        self.finished: list[Finish] = []

    def stream(self, *given: Any, **named: Any) -> Iterator[Any]:
        for event in super().stream(*given, **named):
            if isinstance(event, Finish):
                self.finished.append(event)
            yield event


Ways = dict[str, Callable[[], object]]


def page_cost(models: Models, tokens: int, repeats: int) -> dict[str, Any]:
    """Tokens/s of the same run: engine alone, with probes, over the API, and behind the page in a browser; under
    `further`, engine and page alone after longer prompts.

    Every way reads the run in a thread that ends with it, as the page does: OpenMP keeps the threads of each living
    thread that computed, and lets all wait less patiently where they are more than the cores.
    """
    lab = TimedLab(models)
    address = serve(build(lab, available, Runs()))
    settings = RunSettings(prompt=_prompt(lab, SHORT_PROMPT), max_new_tokens=tokens)
    list(batches(lab.stream(settings.model_copy(update={"max_new_tokens": 8}))))
    ways: Ways = {
        "engine": partial(alone, lab, quiet(settings)),
        "engine, probes": partial(alone, lab, settings),
        "API": lambda: _over_api(address, settings),
        FIRST_RUN: lambda: _in_browser(address, settings, 2),
    }
    further = [_after(lab, address, size, count) for size, count in LONG_PROMPTS.items()]
    return by_turns(lab, ways, repeats) | {"further": further}


def _after(lab: TimedLab, address: str, size: int, tokens: int) -> dict[str, Any]:
    """Engine and page after a prompt of about so many tokens."""
    settings = RunSettings(prompt=_prompt(lab, size), max_new_tokens=tokens)
    ways: Ways = {
        "engine": partial(alone, lab, quiet(settings)),
        FIRST_RUN: lambda: _in_browser(address, settings, 1),
    }
    return by_turns(lab, ways, LONG_ROUNDS)


def _prompt(lab: Lab, size: int) -> str:
    """A prompt of nearly so many tokens: what is left of them goes to the chat template."""
    tokenizer = lab.models.load("embedded").tokenizer
    ids = ways.context_tokens(lab.models)[: size - ROOM]
    return f"{tokenizer.decode(ids)}\n\n{PROMPT}"


def quiet(settings: RunSettings) -> RunSettings:
    return settings.model_copy(update={"watch": settings.watch.model_copy(update={"enabled": False})})


def alone(lab: Lab, settings: RunSettings) -> None:
    list(batches(lab.stream(settings)))


def by_turns(lab: TimedLab, ways: Ways, repeats: int) -> dict[str, Any]:
    """Tokens/s of each way, round by round.

    cost: the median share that a way loses beside the engine of the same round, since a machine is not as fast at any
    time. runs: the rounds themselves. prompt_tokens, written: of the run, as the engine counted; written is the least.
    """
    seen: dict[str, list[Finish]] = {}
    for _ in range(repeats):
        for name, go in ways.items():
            lab.finished.clear()
            go()
            for way, finish in zip((name, LATER_RUN), lab.finished, strict=False):
                seen.setdefault(way, []).append(finish)
    runs = {name: [finish.tokens_per_second for finish in found] for name, found in seen.items()}
    cost = {
        name: statistics.median(1 - rate / engine for rate, engine in zip(found, runs["engine"], strict=True))
        for name, found in runs.items()
    }
    return {
        "prompt_tokens": seen["engine"][0].prompt_tokens,
        "written": min(finish.tokens for found in seen.values() for finish in found),
        "tokens_per_second": {name: statistics.median(found) for name, found in runs.items()},
        "cost": cost,
        "runs": runs,
    }


def _over_api(address: str, settings: RunSettings) -> None:
    from gradio_client import Client

    asked = settings.model_dump(include={"prompt", "max_new_tokens"})
    # Iterating over the job would poll it every millisecond, in this very process.
    Client(address, verbose=False).submit(**asked, api_name="/generate").result()


def _in_browser(address: str, settings: RunSettings, runs: int) -> None:
    """Opens the page, as long before a run as it takes to read a sentence of it, and runs."""
    from playwright.sync_api import sync_playwright

    from app.chromium import launch

    with sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{address}?prompt=x&max_new_tokens={settings.max_new_tokens}")
        page.wait_for_function("() => document.querySelector('#prompt textarea')?.value === 'x'")
        page.fill("#prompt textarea", settings.prompt)
        for _ in range(runs):
            page.wait_for_timeout(SETTLED)
            page.get_by_role("button", name="Generate", exact=True).click()
            for state in ("false", "true"):
                ready = f"() => String(document.querySelector('#stop')?.disabled) === '{state}'"
                page.wait_for_function(ready, polling=200, timeout=180_000)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m app.bench", description=__doc__)
    parser.add_argument("--tokens", type=int, default=32, help="tokens written in a round (default 32)")
    parser.add_argument("--page-tokens", type=int, default=200, help="tokens written behind the page (default 200)")
    parser.add_argument("--page-only", action="store_true", help="measure the page again, keep the rest of the file")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    writable(given.out)
    models = Models(["embedded"])
    if not given.page_only:
        keep(given.out, measured(models, given.tokens))
        # In a process of its own: the threads that computed here would let those behind the page wait less patiently.
        again = ["--page-only", "--page-tokens", str(given.page_tokens), "--out", str(given.out)]
        sys.exit(subprocess.run([sys.executable, "-m", "app.bench", *again], check=False).returncode)
    result = json.loads(given.out.read_text())
    result["page"] = provenance(seed=0) | page_cost(models, given.page_tokens, ROUNDS)
    for part in (result["page"], *result["page"]["further"]):
        for name, rate in part["tokens_per_second"].items():
            print(f"{name:56} {part['prompt_tokens']:8,} {rate:20.1f} {part['cost'][name]:8.1%}", flush=True)
    keep(given.out, result)
    print(json.dumps(result))


def measured(models: Models, tokens: int) -> dict[str, Any]:
    """The engine beside transformers, after short contexts and long ones."""
    bench, head = timing.begun(ways.context_tokens(models), tokens, say)
    return provenance(seed=0) | head | {
        "short": [timing.reported(row, say) for row in ways.cases(models, bench, CONTEXTS)],
        "left_out": ways.left_out(models.load("embedded").model.config, CONTEXTS),
        "long": [timing.reported(row, say) for row in ways.long_cases(models, bench, LONG, WINDOWS, LONGEST)],
    }


if __name__ == "__main__":
    main()
