"""What every tab shows belongs to what its form asks for, in a real browser: else a veil lies over it, and says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import pytest
from playwright.sync_api import Locator, Page, expect
from stored import stored
from test_app_browser import Visitor, address, demo, held, lab, link, runs, visit  # noqa: F401
from test_page_state import VEILED


def puts(page: Page, box: str, text: str) -> None:
    page.locator(box).fill(text)
    page.locator(box).blur()


def writes(page: Page) -> None:
    page.click("#go")


def tries(page: Page) -> None:
    page.click("#try-go")
    # The recorded answers that it opens on have ended too.
    expect(page.locator(".ll-first p")).to_be_hidden()


def compares(page: Page) -> None:
    puts(page, "#c-cap input", "3")
    page.click("#c-go")


def reads(page: Page) -> None:
    page.click("#l-what-a-window-forgets")


def sweeps(page: Page) -> None:
    page.click("#c-way label:last-of-type")
    puts(page, "#s-typed textarea", "Why?")
    puts(page, "#s-targets :is(input, textarea)", "5")
    page.click("#s-go")


class Shown(NamedTuple):
    """Where a tab shows its run. runs: makes one. veiled: what the veil lies over. box: of the form, and what else it
    may hold. go: the button that runs. figures: those that tell how it ended."""

    tab: str
    runs: Callable[[Page], None]
    veiled: str
    box: str
    other: str
    go: str
    figures: str


SHOWN = {
    "lab": Shown("lab", writes, ".ll-stage", "#prompt textarea", "Why not?", "#go", "run"),
    "try": Shown("try", tries, ".ll-try", "#try-prompt textarea", "Why not?", "#try-go", "try-steered"),
    "compare": Shown("compare", compares, "#made-compare", "#c-prompt textarea", "Why not?", "#c-go", "compare"),
    "far": Shown("far", reads, "#made-long", "#l-window input[type=number]", "65", "#l-go", "long"),
    "sweep": Shown("compare", sweeps, "#made-sweep", "#s-seeds :is(input, textarea)", "1", "#s-go", "sweep"),
}


def made(visit: Callable[..., Visitor], name: str) -> tuple[Page, Locator]:  # noqa: F811
    """A page that shows a run which has ended, and what a veil would lie over."""
    tab, run, veiled, *_, figures = SHOWN[name]
    page = visit(query=link(tab=tab, prompt="Why?", max_new_tokens=5), opens=tab).page
    run(page)
    page.wait_for_selector(f"#figures-{figures} .ll-figures[data-state]:not([data-state=busy])")
    return page, page.locator(veiled)


@pytest.mark.parametrize(
    "name", ["try", *(pytest.param(name, marks=pytest.mark.ui) for name in SHOWN if name != "try")]
)
def test_a_run_is_veiled_while_its_form_asks_for_another(visit, name):  # noqa: F811
    page, over = made(visit, name)
    box, other, go = SHOWN[name].box, SHOWN[name].other, SHOWN[name].go
    expect(over).not_to_have_class(VEILED)
    before = page.input_value(box)
    puts(page, box, other)
    expect(over).to_have_class(VEILED)
    puts(page, box, before)
    expect(over).not_to_have_class(VEILED)
    puts(page, box, other)
    expect(over).to_have_class(VEILED)
    page.click(go)
    expect(over).not_to_have_class(VEILED)


def test_a_recorded_run_of_a_lesson_is_what_its_form_asks_for(visit):  # noqa: F811
    page, over = made(visit, "compare")
    page.click("[data-tab-id=lessons]")
    page.click("[data-lesson=chance_and_length]")
    page.locator(".ll-lesson [data-step=predict] :is(button, input[type=radio])").first.click()
    before = page.evaluate("Date.now()")
    page.get_by_text("Show the recorded run").click()
    expect(page.locator(".ll-lesson [data-step=check]")).to_be_visible()
    expect(over).not_to_have_class(VEILED)
    kept = stored("get('frame-compare')")
    page.wait_for_function(
        f"async (before) => {{ const {{ made, at }} = await {kept}; return made.includes('travel') && at > before; }}",
        arg=before,
    )
    page.reload()
    expect(page.locator("#figures-compare .ll-message")).to_have_text("All answers have ended.")
    expect(over).not_to_have_class(VEILED)
    puts(page, "#c-prompt textarea", "Why not?")
    expect(over).to_have_class(VEILED)


def test_a_kept_run_is_held_against_what_it_was_made_with_wherever_it_shows(visit):  # noqa: F811
    page, over = made(visit, "compare")
    puts(page, "#c-prompt textarea", "Why not?")
    expect(over).to_have_class(VEILED)
    page.wait_for_function("localStorage.getItem('length-lab-form-compare')?.includes('Why not?')")
    other = page.context.new_page()
    other.goto(page.url)
    expect(other.locator("#figures-compare .ll-message")).to_have_text(re.compile("^A, "))
    expect(other.locator("#made-compare")).to_have_class(VEILED)


@pytest.mark.ui
def test_what_does_not_show_or_is_only_watched_veils_no_comparison(visit):  # noqa: F811
    page, over = made(visit, "compare")
    page.evaluate("asks = LengthLab.formAsks; LengthLab.formAsks = (...form) => { heard = 1; asks(...form) }; null")
    page.locator("#c-layer input").click()
    page.get_by_role("option", name="3", exact=True).click()
    page.wait_for_function("window.heard")
    expect(over).not_to_have_class(VEILED)
    page.locator("#c-count input[value='4']").check()
    expect(over).to_have_class(VEILED)


def test_a_run_that_could_not_begin_leaves_the_veil_over_the_one_before(visit):  # noqa: F811
    page, over = made(visit, "compare")
    puts(page, "#c-prompt textarea", "")
    expect(over).to_have_class(VEILED)
    page.click("#c-go")
    expect(page.locator("#figures-compare .ll-message")).to_contain_text("The prompt is empty")
    expect(over).to_have_class(VEILED)


@pytest.mark.ui
def test_a_page_loaded_anew_veils_the_run_it_takes_up_as_before(visit, held):  # noqa: F811
    page = visit(query=link(tab="compare"), opens="compare").page
    held.upto(2)
    page.click("#c-go")
    page.wait_for_selector("#text-c-a .ll-response[data-tokens='2']")
    puts(page, "#c-prompt textarea", "Why not?")
    page.wait_for_function("localStorage.getItem('length-lab-form-compare')?.includes('Why not?')")
    page.reload()
    expect(page.locator("#c-prompt textarea")).to_have_value("Why not?")
    expect(page.locator("#made-compare")).to_have_class(VEILED)
    held.free()
    page.wait_for_selector("#c-go:not([disabled])")
    expect(page.locator("#figures-compare .ll-message")).to_have_text(re.compile("^A, "))
    expect(page.locator("#made-compare")).to_have_class(VEILED)
