"""Pictures of the page during a real run.

`python -m app.screenshot` writes assets/screenshot.png; `--all DIR` writes a desktop's and a phone's, light and dark.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Browser, sync_playwright

from app.__main__ import make, serve
from app.chromium import launch
from backend.models.pool import allowed

PICTURE = Path(__file__).parents[1] / "assets" / "screenshot.png"
# A small model describes better than it explains.
PROMPT = "Describe a quiet morning in a small harbour town."
SIZES = {"desktop": (1440, 1180), "phone": (390, 844)}
SETTINGS = {
    "prompt": PROMPT, "method": "ldpe", "in_prompt": "true", "target": 120, "landing": 8, "max_new_tokens": 240,
    "window": 128, "sinks": 8, "repetition_penalty": 1.15,
}  # fmt: skip
SECONDS = 180_000


def take(browser: Browser, address: str, path: Path, size: tuple[int, int], theme: str, whole: bool = False) -> None:
    """Makes a run on a fresh page and keeps its picture; whole: all of the page rather than the first screen."""
    page = browser.new_page(viewport={"width": size[0], "height": size[1]}, device_scale_factor=1)
    page.set_default_timeout(SECONDS)
    page.goto(f"{address}?{urlencode(SETTINGS | {'__theme': theme})}")
    page.wait_for_selector("#chart-mask .main-svg")
    page.wait_for_selector("#model-state [data-state=good]")
    before = page.get_attribute("#chart-length .ll-chart", "data-run")
    page.click("#go")
    chart = "document.querySelector('#chart-length .ll-chart')"
    page.wait_for_function(f"(run) => {chart}.dataset.run !== run", arg=before)
    page.wait_for_selector("#go:not([disabled])")
    if whole:
        page.set_viewport_size({"width": size[0], "height": page.evaluate("document.documentElement.scrollHeight")})
    shown = "c.offsetParent && c.getBoundingClientRect().top < innerHeight"
    settled = f"[...document.querySelectorAll('.ll-chart')].filter((c) => {shown})"
    page.wait_for_function(f"{settled}.every((c) => c.dataset.drawn === c.dataset.received)")
    page.mouse.move(0, 0)
    page.evaluate("window.scrollTo(0, 0)")
    page.wait_for_timeout(500)
    page.screenshot(path=path)
    page.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m app.screenshot", description=__doc__)
    parser.add_argument("--all", type=Path, metavar="DIR", help="write every size and theme here instead")
    given = parser.parse_args()
    demo = make(allowed())
    address = serve(demo)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        if given.all is None:
            take(browser, address, PICTURE, SIZES["desktop"], "light")
        else:
            given.all.mkdir(parents=True, exist_ok=True)
            for theme in ("light", "dark"):
                for name, size in SIZES.items():
                    take(browser, address, given.all / f"{name}-{theme}.png", size, theme, whole=True)
        browser.close()
    demo.close()


if __name__ == "__main__":
    main()
