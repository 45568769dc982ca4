"""The page in Firefox: it opens, writes and draws, whatever its tab, theme, width and language."""

from __future__ import annotations

import io
from collections.abc import Iterator

import firefox
import pytest
from firefox import Firefox
from PIL import Image
from test_accessibility import READY
from test_app_browser import address, demo, held, lab, runs  # noqa: F401

pytestmark = [
    pytest.mark.ui,
    pytest.mark.skipif(firefox.FOUND is None, reason="Firefox is not installed: run .ci/browser firefox"),
]
WIDE, NARROW = (1440, 900), (390, 844)
# How far what the page shows goes beyond its sides.
BEYOND = "document.documentElement.scrollWidth - innerWidth"
RUNWAY = "document.querySelector('#runway-try .ll-runway')"
# Enters a length as a visitor does.
SHORT = 12
ENTERED = f"""(() => {{
  const box = document.querySelector("#try-target input[type=number]");
  box.focus();
  box.value = "{SHORT}";
  box.dispatchEvent(new Event("input", {{ bubbles: true }}));
  box.blur();
}})()"""
DARK = "document.body.classList.contains('dark')"


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Firefox]:
    """One Firefox for all tests."""
    browser = Firefox(tmp_path_factory.mktemp("firefox"))
    yield browser
    browser.close()


@pytest.fixture
def page(browser) -> Iterator[Firefox]:
    """It, wide, and with no error at the end."""
    browser.sized(*WIDE)
    browser.errors.clear()
    yield browser
    browser.value("null")
    assert browser.errors == []


def test_what_a_page_logs_as_an_error_is_heard(page):
    page.open("about:blank")
    page.value("console.error('heard')")
    page.value("null")
    assert page.errors == ["heard"]
    page.errors.clear()


@pytest.mark.parametrize("name", READY)
def test_each_tab_opens_by_its_address_and_fits_a_phone(page, address, name):  # noqa: F811
    page.open(f"{address}?tab={name}")
    page.shows(READY[name])
    page.shows(f"[role=tab][data-tab-id={name}][aria-selected=true]")
    page.sized(*NARROW)
    page.value("new Promise(requestAnimationFrame)")
    assert page.value("innerWidth") == NARROW[0]
    assert page.value(BEYOND) <= 0


def test_what_is_written_streams_to_its_end_and_the_chart_draws(page, address, held):  # noqa: F811
    held.upto(5)
    page.open(f"{address}?tab=lab&prompt=Count.&method=none&max_new_tokens=12")
    page.shows("#model-state [data-state=good]")
    page.shows("#chart-length .main-svg")
    page.value("document.querySelector('#go').click()")
    page.shows("#text-run .ll-response[data-tokens='5']")
    held.free()
    page.shows("#text-run .ll-response[data-tokens='12']")
    page.shows("#go:not([disabled])")
    page.shows("#figures-run [data-state=good]")
    chart = "document.querySelector('#chart-length .ll-chart')"
    page.value(f"{chart}.scrollIntoView()")
    page.until(f"{chart}.dataset.drawn === {chart}.dataset.received")
    assert page.value(f"{chart}.querySelector('.ll-plot').data[1].x.at(-1)") == 12
    assert page.value(f"{chart}.querySelector('.js-line').getBBox().width") > 100


def test_try_it_writes_both_lanes_to_the_length_that_was_entered(page, address):  # noqa: F811
    page.open(f"{address}?tab=try")
    page.shows(READY["try"])
    before = page.value(f"{RUNWAY}.dataset.run")
    page.value(ENTERED)
    page.until(f"document.querySelector('.ll-flag').getAttribute('aria-valuenow') === '{SHORT}'")
    page.value("document.querySelector('#try-go').click()")
    page.shows("#try-go[disabled]")
    page.shows("#try-go:not([disabled])")
    assert page.value(f"{RUNWAY}.dataset.run") != before
    for lane in ("asked", "steered"):
        assert int(page.value(f"document.querySelector('#text-try-{lane} .ll-response').dataset.tokens")) > 0
    assert page.value("document.querySelectorAll('.ll-runway .ll-bar').length") == 2


def test_light_and_dark_differ_and_the_choice_is_kept(page, address):  # noqa: F811
    page.open(f"{address}?tab=lessons")
    page.shows(READY["lessons"])
    seen = {}
    for _ in range(2):
        image = Image.open(io.BytesIO(page.picture())).convert("L")
        seen[page.value(DARK)] = image.getpixel((5, 300))
        page.value("document.querySelector('.ll-theme').click()")
        page.value("new Promise((done) => setTimeout(done, 500))")
    assert seen[True] < 60 < 200 < seen[False]
    page.value("LengthLab.setTheme('dark')")
    page.open(f"{address}?tab=lessons")
    page.until(DARK)
    page.value("LengthLab.setTheme('light')")


def test_the_arabic_page_runs_from_right_to_left(page, address):  # noqa: F811
    page.open(f"{address}?tab=try&lang=ar")
    page.until("document.documentElement.dir === 'rtl'")
    page.shows(READY["try"])
    first, last = (f"document.querySelectorAll('[role=tablist] [role=tab]')[{at}]" for at in (0, 1))
    page.until(f"{first}.getBoundingClientRect().left > {last}.getBoundingClientRect().left")
    assert page.value(f"/[\\u0600-\\u06ff]/.test({first}.textContent)")
    for size in (WIDE, NARROW):
        page.sized(*size)
        assert page.value(BEYOND) <= 0
