"""Each tab as it looks, beside a committed picture of it: wide and narrow, light and dark.

What is wrong is in test-results/: the new picture, and the old one with what differs marked. New pictures are kept by
`LENGTH_LAB_PICTURES=new make test-ui ARGS=tests/test_pictures.py`; look at them before they are committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from picture import differing, moved, worst, wrong
from PIL import Image, ImageDraw
from playwright.sync_api import Page
from test_accessibility import READY
from test_app_browser import LONG, address, demo, held, lab, runs  # noqa: F401

from app import plans

pytestmark = pytest.mark.ui
WIDTHS, THEMES, HEIGHT, TALL = (1440, 390), ("light", "dark"), 900, 6000
# What is written below the findings changes with every measurement.
ENDS = {"evidence": ".ll-search"}
# Every chart that is shown has drawn its last frame in the theme's colours, and all letters are there.
SETTLED = """(theme) => document.fonts.status === "loaded" && [...document.querySelectorAll(".ll-chart")]
  .filter((chart) => chart.offsetParent && chart.getBoundingClientRect().top < innerHeight)
  .every((chart) => chart.dataset.drawn === chart.dataset.received
    && chart.querySelector(".ll-plot").layout?.font.color === LENGTH_LAB_PALETTES[theme].muted)"""
# How fast this machine was is not shown.
FIXED = """() => {
  for (const rate of document.querySelectorAll("[data-field=speed]")) rate.textContent = "–";
  for (const words of document.querySelectorAll(".ll-message"))
    words.textContent = words.textContent.replace(/[\\d.,]+ (s|tokens\\/s)\\b/g, "… $1");
  for (const part of document.querySelectorAll("#chart-l-throughput :is(.ll-plot, .ll-words)"))
    part.style.visibility = "hidden";
}"""
# The number that the text read hides.
HIDDEN = 54321
# Pictures taken at most until two are the same.
TRIES = 20


@pytest.fixture(scope="module", params=WIDTHS)
def page(browser, address, request) -> Iterator[Page]:  # noqa: F811
    """The page at a width. Nothing moves by itself, and nothing is left to chance."""
    page = browser.new_page(reduced_motion="reduce", viewport={"width": request.param, "height": HEIGHT})
    page.set_default_timeout(LONG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "random", SimpleNamespace(randrange=lambda *_: HIDDEN))
        yield page
    page.close()


def compares(page: Page) -> None:
    page.fill("#c-cap input", "40")
    runs_by(page, "#c-go", "#figures-compare")


def reads(page: Page) -> None:
    runs_by(page, "#l-what-a-window-forgets", "#figures-long")


def runs_by(page: Page, button: str, figures: str) -> None:
    """Presses a button, and waits until what runs has ended."""
    page.click(button)
    page.wait_for_selector(".ll-stop:not([disabled])")
    page.wait_for_selector(f"{figures} [data-state=good]")
    page.wait_for_selector(f"{button}:not([disabled])")


# What is done on a tab that would show nothing else.
DONE = {"compare": compares, "far": reads}


def whole(page: Page, name: str) -> dict[str, int]:
    """Makes room for all that a tab shows, and says where that is."""
    width = page.viewport_size["width"]
    page.evaluate(FIXED)
    # What comes into sight is drawn, and may take more room than before.
    page.set_viewport_size({"width": width, "height": TALL})
    page.wait_for_function(SETTLED, arg="light")
    page.set_viewport_size({"width": width, "height": HEIGHT})
    last = page.locator(ENDS[name]).bounding_box()["y"] if name in ENDS else 0
    height = int(last or page.evaluate("document.documentElement.scrollHeight"))
    page.set_viewport_size({"width": width, "height": height})
    return {"x": 0, "y": 0, "width": width, "height": height}


def picture(page: Page, theme: str, clip: dict[str, int]) -> bytes:
    """Taken once it stands still. TimeoutError where it never does."""
    page.evaluate("(theme) => LengthLab.setTheme(theme)", theme)
    page.wait_for_function(SETTLED, arg=theme)
    taken, box = page.screenshot(clip=clip), None
    for _ in range(TRIES):
        page.wait_for_timeout(400)
        page.evaluate(FIXED)
        before, taken = taken, page.screenshot(clip=clip, animations="disabled")
        box = moved(before, taken)
        if box is None:
            return taken
    raise TimeoutError(f"the page does not stand still: something moves within {box}")


@pytest.mark.parametrize("name", READY)
def test_a_tab_looks_as_in_its_pictures(page, address, name):  # noqa: F811
    page.set_viewport_size({"width": page.viewport_size["width"], "height": HEIGHT})
    page.goto(f"{address}?tab={name}")
    page.wait_for_selector(READY[name])
    page.mouse.move(0, 0)
    DONE.get(name, lambda _: None)(page)
    page.evaluate("LengthLab.setTheme('light')")
    clip = whole(page, name)
    shot = {theme: picture(page, theme, clip) for theme in THEMES}
    assert [found for theme in THEMES if (found := wrong(f"{name}-{clip['width']}-{theme}", shot[theme]))] == []


def test_a_changed_letter_is_seen_and_a_slightly_other_colour_is_not():
    plain = Image.new("RGB", (300, 200), "#f3f5f8")
    tinted, changed = Image.new("RGB", (300, 200), "#f0f2f5"), plain.copy()
    ImageDraw.Draw(changed).rectangle((70, 70, 80, 80), fill="#0072b2")
    assert worst(differing(plain, tinted)) == 0
    assert worst(differing(plain, changed)) > 0.02
