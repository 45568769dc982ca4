"""The system's Chromium, in which pictures are taken, the page's cost is measured and its tests run."""

from __future__ import annotations

import shutil

from playwright.sync_api import Browser, Playwright

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# Nothing that asks the network, or starts by itself beside what is measured; letters as in a browser that has windows.
ARGS = (
    "--font-render-hinting=slight",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def launch(playwright: Playwright, *more: str) -> Browser:
    """A headless browser. more: switches of its own. FileNotFoundError, which says what to do, where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        raise FileNotFoundError("Chromium is needed and is not on the PATH: run .ci/browser chromium")
    return playwright.chromium.launch(executable_path=found, args=[*ARGS, *more])
