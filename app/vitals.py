"""`make vitals`: what it takes a visitor to open the page and to watch a run. Its last line is one JSON.

    python -m app.vitals --rounds 5 --tokens 200

As in app.bench, a headless Chromium on this machine is the visitor, who takes its share of the same cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from app.__main__ import serve
from app.bench import PROMPT, SETTLED, TimedLab, Ways, alone, by_turns, quiet
from app.chromium import launch
from app.page import build
from app.runs import Runs
from backend.models.adapters import available
from backend.models.pool import Models
from backend.record.provenance import provenance
from backend.record.results import RESULTS, keep, writable
from backend.settings import RunSettings

OUT = RESULTS / "vitals.json"
LONG = 180_000
# All charts of a tab are in sight.
SIZE: ViewportSize = {"width": 1440, "height": 2600}
KINDS = {"Document": "HTML", "Script": "JS", "Stylesheet": "CSS", "Font": "fonts"}
OPENED = "#text-try-steered .ll-response[data-tokens]"
# Tasks of more than 50 ms, in which the page answers nobody.
TASKS = """window.tasks = [];
new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration)))
  .observe({ type: "longtask", buffered: true });"""
# Presses Write as soon as it is there, and again while nothing comes of it.
PRESSES = """const press = setInterval(() => {
  const go = document.querySelector("#try-go"), now = performance.now();
  if (window.pressed && go?.disabled) { window.reacted = now; clearInterval(press); }
  else if (go && !go.disabled && !(now - window.pressed < 500)) { window.pressed = now; go.click(); }
}, 20);"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
# Notes when each part draws a frame of a run that is not the one before, and when a text has more tokens.
WATCHES = """(text) => {
  const before = new Set([...document.querySelectorAll("[data-run]")].map(({ dataset }) => dataset.run));
  window.seen = { tokens: [], frames: {} };
  new MutationObserver((changes) => {
    const now = performance.now();
    for (const { target, attributeName } of changes) {
      const { name, run, tokens } = target.dataset;
      if (attributeName === "data-tokens") { if (name.startsWith(text) && Number(tokens)) seen.tokens.push(now); }
      else if (run && !before.has(run)) (seen.frames[name] ??= []).push(now);
    }
  }).observe(document.body, { subtree: true, attributeFilter: ["data-drawn", "data-tokens"] });
}"""
# Where runs are watched: what is pressed, what says that it ended, and how the names of texts begin.
PLACES = {"lab": ("#go", "#stop", "text-run"), "try": ("#try-go", "#try-stop", "text-try")}


@contextmanager
def visiting(browser: Browser, *scripts: str) -> Iterator[Page]:
    """A new visitor's page, on which these scripts run before its own."""
    page = browser.new_page(viewport=SIZE)
    page.set_default_timeout(LONG)
    for script in scripts:
        page.add_init_script(script)
    yield page
    page.close()


def weighed(browser: Browser, address: str) -> dict[str, Any]:
    """Bytes on the wire until the page stands still, by kind; its long tasks; requests to other hosts."""
    with visiting(browser, TASKS) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        wire = page.context.new_cdp_session(page)
        kinds: dict[str, str] = {}
        sizes: dict[str, int] = {}
        wire.on("Network.responseReceived", lambda event: kinds.update({event["requestId"]: _kind(event)}))
        wire.on("Network.loadingFinished", lambda event: sizes.update({event["requestId"]: event["encodedDataLength"]}))
        wire.send("Network.enable")
        page.goto(address)
        page.wait_for_selector(OPENED)
        page.wait_for_timeout(SETTLED)
        tasks = page.evaluate("tasks")
    total: Counter[str] = Counter()
    for request, size in sizes.items():
        total[kinds.get(request, "other")] += int(size)
    return {
        "bytes": dict(total), "total_bytes": total.total(), "requests": len(asked),
        "foreign": [url for url in asked if urlsplit(url).scheme.startswith("http") and not url.startswith(address)],
        "long_tasks": {"count": len(tasks), "ms": sum(tasks), "longest_ms": max(tasks, default=0)},
    }  # fmt: skip


def _kind(event: dict[str, Any]) -> str:
    if event["response"]["url"].endswith("/plotly.js"):
        return "Plotly"
    return KINDS.get(event["type"], "other")


def opened(browser: Browser, address: str) -> dict[str, float]:
    """Milliseconds until a new visitor sees something, and until Write reacts."""
    with visiting(browser, PRESSES) as page:
        page.goto(address)
        page.wait_for_function("window.reacted")
        times = {"paint_ms": page.evaluate(PAINT), "use_ms": page.evaluate("reacted")}
        page.click("#try-stop")
        page.wait_for_selector("#try-stop[disabled]")
    return times


def watched(browser: Browser, address: str, place: str, **asked: Any) -> dict[str, Any]:
    """Frames a second of each part that draws, from a run's first token to its last, and milliseconds from the first
    token to its first frame."""
    go, stop, text = PLACES[place]
    with visiting(browser) as page:
        page.goto(f"{address}?{urlencode({'tab': place, **asked})}")
        page.wait_for_selector(go)
        if place == "try":
            _asks(page, **asked)
        page.wait_for_timeout(SETTLED)
        page.evaluate(WATCHES, text)
        page.click(go)
        page.wait_for_selector(f"{stop}:not([disabled])")
        page.wait_for_selector(f"{stop}[disabled]")
        seen = page.evaluate("seen")
    first, last = seen["tokens"][0], seen["tokens"][-1]
    return {name: _rate(times, first, last) for name, times in sorted(seen["frames"].items())}


def _asks(page: Page, target: int, prompt: str) -> None:
    page.click("#try-charts button")
    page.fill("#try-prompt textarea", prompt)
    page.fill("#try-target input[type=number]", str(target))
    page.locator("#try-target input[type=number]").press("Tab")


def _rate(times: Sequence[float], first: float, last: float) -> dict[str, float]:
    within = [time for time in times if first <= time <= last]
    return {"frames_per_second": 1000 * len(within) / (last - first), "first_ms": max(0.0, times[0] - first)}


def measured(models: Models, rounds: int, tokens: int) -> dict[str, Any]:
    """The opening and the watching; medians over rounds. The engine alone writes by turns with the page."""
    lab = TimedLab(models)
    address = serve(build(lab, available, Runs()))
    settings = RunSettings(prompt=PROMPT, max_new_tokens=tokens)
    alone(lab, settings.model_copy(update={"max_new_tokens": 8}))
    with sync_playwright() as playwright:
        browser = launch(playwright)
        opening = weighed(browser, address) | _median([opened(browser, address) for _ in range(rounds)])
        # The two runs of each who pressed Write and Stop end a moment later, and would be counted with the next.
        while len(lab.finished) < 1 + 2 * rounds:
            time.sleep(0.1)
        seen: list[dict[str, Any]] = []
        ways: Ways = {
            "engine": partial(alone, lab, quiet(settings)),
            "page": lambda: seen.append(watched(browser, address, "lab", prompt=PROMPT, max_new_tokens=tokens)),
        }
        speed = by_turns(lab, ways, rounds)
        tried = [watched(browser, address, "try", target=tokens, prompt=PROMPT) for _ in range(rounds)]
        browser.close()
    frames = {"lab": _median(seen), "try": _median(tried)}
    return {"rounds": rounds, "opening": opening, "frames": frames, "speed": speed}


def _median(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of each number in them that all of them have."""
    names = [name for name in rounds[0] if all(name in each for each in rounds)]
    values = {name: [each[name] for each in rounds] for name in names}
    return {name: _median(v) if isinstance(v[0], dict) else statistics.median(v) for name, v in values.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m app.vitals", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (default 5)")
    parser.add_argument("--tokens", type=int, default=200, help="tokens written in a run (default 200)")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    writable(given.out)
    result = provenance(seed=0) | measured(Models(["embedded"]), given.rounds, given.tokens)
    keep(given.out, result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
