"""`make bench`: the engine beside transformers, and the engine behind the running page. Its last line is one JSON.

The page is measured as a visitor has it: a headless Chromium on this machine draws the four charts while tokens stream.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.__main__ import serve
from app.page import build
from app.runs import Runs, batches
from backend.adapters import available
from backend.engine import Control, Lab
from backend.evaluation import speed
from backend.evaluation.files import keep, writable
from backend.evaluation.machine import provenance
from backend.models import Models
from backend.settings import RunSettings
from backend.steps import Finish, Step
from backend.terminal import say

PROMPT = "Tell me a long story about a lighthouse keeper and the sea."
OUT = Path(__file__).parents[1] / "assets" / "results" / "bench.json"
FIRST_RUN, LATER_RUN = "page in Chromium, first run", "page in Chromium, next run"
SETTLED = 4000
# `make bench-long` has more of both.
LONG, WINDOWS = (4096, 16384, 32768), (2048,)
ROUNDS = 7


class TimedLab(Lab):
    """A lab that remembers how each run ended."""

    def __init__(self, models: Models):
        super().__init__(models)
        self.finished: list[Finish] = []

    def stream(self, settings: RunSettings, control: Control | None = None) -> Iterator[Step | Finish]:
        for event in super().stream(settings, control):
            if isinstance(event, Finish):
                self.finished.append(event)
            yield event


def page_cost(models: Models, tokens: int, repeats: int) -> dict[str, Any]:
    """Tokens/s of the same run: engine alone, with probes, over the API, and behind the page in a browser.

    cost: the median share that a way loses beside the engine of the same round, since a machine is not as fast at any
    time. runs: the rounds themselves.

    Every way reads the run in a thread that ends with it, as the page does: OpenMP keeps the threads of each living
    thread that computed, and lets all wait less patiently where they are more than the cores.
    """
    lab = TimedLab(models)
    settings = RunSettings(prompt=PROMPT, max_new_tokens=tokens)
    list(batches(lab.stream(settings.model_copy(update={"max_new_tokens": 8}))))
    quiet = settings.model_copy(update={"watch": settings.watch.model_copy(update={"enabled": False})})
    address = serve(build(lab, available, Runs()))
    ways = {
        "engine": lambda: list(batches(lab.stream(quiet))),
        "engine, probes": lambda: list(batches(lab.stream(settings))),
        "API": lambda: _over_api(address, tokens),
        FIRST_RUN: lambda: _in_browser(address, tokens),
    }
    seen: dict[str, list[float]] = {name: [] for name in [*ways, LATER_RUN]}
    for _ in range(repeats):
        for name, go in ways.items():
            lab.finished.clear()
            go()
            for way, finish in zip((name, LATER_RUN), lab.finished, strict=False):
                seen[way].append(finish.tokens_per_second)
    cost = {
        name: statistics.median(1 - rate / engine for rate, engine in zip(found, seen["engine"], strict=True))
        for name, found in seen.items()
    }
    rates = {name: statistics.median(found) for name, found in seen.items()}
    return {"tokens": tokens, "tokens_per_second": rates, "cost": cost, "runs": seen}


def _over_api(address: str, tokens: int) -> None:
    from gradio_client import Client

    # Iterating over the job would poll it every millisecond, in this very process.
    Client(address, verbose=False).submit(prompt=PROMPT, max_new_tokens=tokens, api_name="/generate").result()


def _in_browser(address: str, tokens: int) -> None:
    """Opens the page, as long before the first run as it takes to read a sentence of it, and runs twice."""
    from playwright.sync_api import sync_playwright

    from app.chromium import launch

    with sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{address}?prompt={PROMPT}&max_new_tokens={tokens}")
        for _ in range(2):
            page.wait_for_timeout(SETTLED)
            page.get_by_role("button", name="Generate", exact=True).click()
            for state in ("false", "true"):
                ready = f"() => String(document.querySelector('#stop')?.disabled) === '{state}'"
                page.wait_for_function(ready, polling=200, timeout=180_000)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m app.bench", description=__doc__)
    parser.add_argument("--tokens", type=int, default=32, help="tokens written in each case (default 32)")
    parser.add_argument("--page-tokens", type=int, default=200, help="tokens written behind the page (default 200)")
    parser.add_argument("--page-only", action="store_true", help="measure the page again, keep the rest of the file")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    writable(given.out)
    models = Models(["embedded"])
    if not given.page_only:
        keep(given.out, _engine(models, given.tokens))
        # In a process of its own: the threads that computed here would let those behind the page wait less patiently.
        again = ["--page-only", "--page-tokens", str(given.page_tokens), "--out", str(given.out)]
        sys.exit(subprocess.run([sys.executable, "-m", "app.bench", *again], check=False).returncode)
    result = json.loads(given.out.read_text())
    result["page"] = provenance(seed=0) | page_cost(models, given.page_tokens, ROUNDS)
    for name, rate in result["page"]["tokens_per_second"].items():
        print(f"{name:44} {rate:38.1f} {result['page']['cost'][name]:8.1%}", flush=True)
    keep(given.out, result)
    print(json.dumps(result))


def _engine(models: Models, tokens: int) -> dict[str, Any]:
    bench, head = speed.begun(models, tokens, say)
    return head | {
        "short": speed.measured(speed.cases(models, bench), say),
        "long": speed.measured(speed.long_cases(models, bench, LONG, WINDOWS), say),
    }


if __name__ == "__main__":
    main()
