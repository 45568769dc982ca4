"""Who sees, points or hears otherwise: axe's rules on every tab, targets for fingers, forced colours, keys alone, and
what a screen reader says of a run."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Locator, Page, expect
from test_app_browser import LONG, address, demo, held, lab, runs  # noqa: F401

LOOKS = ((1440, "light"), (1440, "dark"), (390, "light"))
# A tab is looked at once, the one with most settings in every look; where a change is tested in full, all are.
LOOKED = [
    *(("lab", look) for look in LOOKS), ("try", LOOKS[1]), ("far", LOOKS[0]), ("compare", LOOKS[2]),
    ("lessons", LOOKS[0]), ("evidence", LOOKS[1]),
]  # fmt: skip
GRAVE = {"critical", "serious", "moderate"}
# A target of less than 24 px is a rule of WCAG 2.2, which axe leaves off unless asked.
RULES = {"resultTypes": ["violations"], "rules": {"target-size": {"enabled": True}}}
# Plotly's drawing is thousands of parts that axe has no rule for; what it shows stands beside it in words and a table.
# Of the measurements, which are all made alike, the first stands for the rest.
OWN = {"exclude": [[".ll-plot"], [".ll-measured ~ .ll-measured"]]}
# What is there once a tab, or what opens over it, shows all that it has.
READY = {
    "try": "#text-try-steered .ll-response[data-tokens]",
    "lessons": "[data-lesson]",
    "compare": "#chart-c-positions .main-svg",
    "far": "#chart-l-loglikelihood .main-svg",
    "lab": "#chart-mask .main-svg",
    "evidence": "#results-withdrawn table",
}
# What is to be pressed and is too small for a finger; links within text are as high as its lines.
SMALL = """() => [...document.querySelectorAll("button, input, select, summary, textarea, [role=slider], [role=tab]")]
  .filter((one) => one.checkVisibility({ visibilityProperty: true }) && !one.closest(".ll-unseen, [aria-hidden=true]"))
  .map((one) => [one.matches("[type=radio], [type=checkbox]") ? one.closest("label") ?? one : one, one])
  .map(([shown, one]) => [shown.getBoundingClientRect(), one.outerHTML.slice(0, 160)])
  .filter(([{ width, height }]) => height > 1 && Math.min(width, height) < 23.9)
  .map(([{ width, height }, html]) => `${width} x ${height}: ${html}`)"""
# Whether the ring around what has the focus is seen.
RING = """() => {
  const at = document.activeElement, shown = at.matches(".ll-choice input") ? at.nextElementSibling : at;
  const { outlineStyle, outlineWidth } = getComputedStyle(shown);
  return outlineStyle !== "none" && parseFloat(outlineWidth) >= 2;
}"""
# Keeps what a screen reader would say from now on.
HEARS = """() => {
  window.heard = [];
  new MutationObserver((changes) => {
    for (const { target } of changes) {
      const region = (target.closest ? target : target.parentElement)?.closest("[aria-live], [role=status]");
      if (region?.textContent.trim()) window.heard.push(region.textContent.trim());
    }
  }).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""
MOVING = "document.getAnimations().filter(({ playState }) => playState === 'running').length"


@pytest.fixture(scope="module")
def page(browser, address) -> Iterator[Page]:  # noqa: F811
    """One page for all: nothing moves by itself, so that a picture of it does not depend on the moment."""
    page = browser.new_page(reduced_motion="reduce", viewport={"width": 1440, "height": 900})
    page.set_default_timeout(LONG)
    # A window that fills the screen could not be made another size.
    page.add_init_script("delete Element.prototype.requestFullscreen")
    load(page, address, "try")
    yield page
    page.close()


def load(page: Page, address: str, name: str) -> None:  # noqa: F811
    """Opens the page anew at a tab: nothing has the focus."""
    page.goto(f"{address}?tab={name}")
    page.wait_for_selector(READY[name])
    page.wait_for_selector(".ll-present[data-scenes]", state="attached")


def open_tab(page: Page, name: str) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    page.click(f"[role=tablist] [data-tab-id={name}]")
    page.wait_for_selector(READY[name])


def tab_to(page: Page, selector: str) -> None:
    """Goes on by the Tab key to what is wanted; whatever is passed shows that it has the focus."""
    for _ in range(80):
        page.keyboard.press("Tab")
        assert page.evaluate(RING), page.evaluate("document.activeElement.outerHTML.slice(0, 300)")
        if page.evaluate("(wanted) => document.activeElement.matches(wanted)", selector):
            return
    raise AssertionError(f"the Tab key does not come to {selector}")


def colours(bar: Locator) -> list[Any]:
    """Of the pixels along the middle of a bar."""
    image = Image.open(io.BytesIO(bar.screenshot())).convert("RGB")
    return [image.getpixel((x, image.height // 2)) for x in range(image.width)]


def grave(page: Page, looks: Sequence[tuple[int, str]]) -> list[Any]:
    """Rule and place of each finding of weight, in every look."""
    found = []
    for width, theme in looks:
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("(theme) => LengthLab.setTheme(theme)", theme)
        page.evaluate("async () => { for (const _ of [1, 2]) await new Promise(requestAnimationFrame); }")
        for rule in Axe().run(page, OWN, RULES).response["violations"]:
            places = [(node["html"][:120], node["failureSummary"]) for node in rule["nodes"]]
            found += [(width, theme, rule["id"], *place) for place in places] if rule["impact"] in GRAVE else []
    return found


@pytest.mark.parametrize(
    ("name", "look"),
    [
        pytest.param(*shown, marks=() if shown in LOOKED else pytest.mark.ui)
        for shown in itertools.product(READY, LOOKS)
    ],
)
def test_axe_finds_nothing_of_weight_on_a_tab_and_no_target_is_too_small(page, name, look):
    open_tab(page, name)
    assert grave(page, [look]) == []
    assert page.evaluate(SMALL) == []


@pytest.mark.ui
def test_axe_finds_nothing_of_weight_in_an_open_lesson(page):
    open_tab(page, "lessons")
    page.click("[data-lesson=what_a_window_forgets]")
    page.locator(".ll-lesson .ll-option input").first.check()
    expect(page.locator(".ll-lesson [data-step=run]")).to_be_visible()
    assert grave(page, LOOKS) == []
    page.click(".ll-lesson [data-act=close]")


@pytest.mark.ui
def test_axe_finds_nothing_of_weight_in_a_scene(page):
    page.keyboard.press("p")
    page.wait_for_selector(".ll-present[data-played=whole]")
    assert grave(page, LOOKS) == []
    page.keyboard.press("Escape")


def test_forced_colours_keep_what_a_colour_said(page, address):  # noqa: F811
    load(page, address, "try")
    page.evaluate("LengthLab.setTheme('light')")
    page.set_viewport_size({"width": 390, "height": 900})
    page.emulate_media(forced_colors="active")
    text, tint = page.locator("#text-try-steered .ll-text"), "#text-try-steered select"
    tinted = []
    for kind in ("", "p", "h"):
        page.select_option(tint, kind)
        tinted.append(text.screenshot())
    assert len({*tinted}) == 3
    asked, steered = (colours(page.locator(f".ll-run[data-lane='{lane}'] .ll-bar")) for lane in (0, 1))
    # Ends of sentences have the colour of what is not written.
    assert steered[5] != steered[-10], "what is written is not seen"
    assert asked.count(asked[5]) > len(asked) / 2 > steered.count(steered[5]), "how far each has come is not seen"
    assert len({*asked[5 : len(asked) // 2]}) > 1, "ends of sentences are not seen"
    box, tab = page.locator("#try-finish input"), page.locator("[data-tab-id=try]").last
    checked, selected = box.screenshot(), tab.screenshot()
    box.uncheck()
    page.focus("#try-prompt textarea")
    open_tab(page, "lab")
    page.mouse.move(700, 5)
    assert tab.screenshot() != selected, "the selected tab is not seen"
    pills = [page.locator(f"#choice-method label:has([value={method}]) > span") for method in ("ldpe", "orpe")]
    pictures = [pill.screenshot() for pill in pills]
    pills[1].click()
    page.mouse.move(700, 5)
    page.focus("#prompt textarea")
    assert all(pill.screenshot() != before for pill, before in zip(pills, pictures, strict=True))
    open_tab(page, "try")
    page.focus("#try-prompt textarea")
    page.mouse.move(700, 5)
    assert box.screenshot() != checked, "a check is not seen"
    page.emulate_media(forced_colors="none")


def test_try_it_is_used_by_keys_alone_and_a_listener_hears_it_begin_and_end(page, address, held):  # noqa: F811
    load(page, address, "try")
    held.upto(5)
    for place, words in (("#try-prompt textarea", "Name a colour."), ("#try-target input[type=number]", "12")):
        tab_to(page, place)
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.type(words)
    tab_to(page, "#try-go")
    page.evaluate(HEARS)
    page.keyboard.press("Enter")
    expect(page.locator("#figures-try-steered [data-field=written]")).to_have_text("5 tokens")
    assert "Writing began." in page.evaluate("heard")
    assert page.evaluate(MOVING) == 0
    held.free()
    expect(page.locator("#try-go")).to_be_enabled()
    said = re.compile(r"^Asked: \d+ tokens.*; .+ Steered: \d+ .+\.$")
    expect(page.locator(".ll-runway .ll-spoken")).to_have_text(said)
    heard = page.evaluate("heard")
    assert heard.count("Writing began.") == 1 and heard[-1].startswith("Asked: "), heard
    # What is read of the prompt may be said, but no token.
    assert len([words for words in heard if not words.startswith(("Waiting", "Loading", "Reading"))]) == 2, heard


def test_a_figure_is_explained_to_keys_and_to_a_finger(browser, address):  # noqa: F811
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
    page = context.new_page()
    page.goto(address + "?tab=lab")
    page.wait_for_selector("#model-state [data-state=good]")
    expect(page.locator("#windowed")).to_contain_text("A Λ window:")
    label, words = page.get_by_role("button", name="Cache reserved"), page.locator("#about-run-cache")
    expect(words).to_be_hidden()
    label.focus()
    page.keyboard.press("Enter")
    expect(words).to_have_text("Memory that is kept for what was read.")
    expect(words).to_be_visible()
    page.keyboard.press("Escape")
    expect(words).to_be_hidden()
    label.tap()
    expect(words).to_be_visible()
    box = words.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    context.close()


def test_a_lesson_is_gone_through_by_keys_alone(page, address):  # noqa: F811
    load(page, address, "lessons")
    tab_to(page, "[data-lesson=what_a_window_forgets]")
    page.keyboard.press("Enter")
    expect(page.locator(".ll-lesson h2")).to_be_focused()
    tab_to(page, ".ll-option input")
    page.keyboard.press("Space")
    tab_to(page, "[data-step=run] button")
    page.keyboard.press("Enter")
    expect(page.locator(".ll-lesson [data-step=check]")).to_be_visible()
    tab_to(page, "[data-step=check] button")
    page.keyboard.press("Enter")
    expect(page.locator(".ll-answer")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".ll-lesson")).to_be_hidden()
    expect(page.locator("[role=tab][aria-selected=true]")).to_be_focused()


def test_scenes_are_shown_by_keys_alone(page, address):  # noqa: F811
    load(page, address, "try")
    tab_to(page, "[data-present]")
    page.keyboard.press("Enter")
    page.wait_for_selector(".ll-present[data-played=whole]")
    first = page.inner_text(".ll-present h2")
    tab_to(page, ".ll-present [data-act=next]")
    page.keyboard.press("Enter")
    expect(page.locator(".ll-present h2")).not_to_have_text(first)
    assert page.evaluate(MOVING) == 0
    page.keyboard.press("Escape")
    expect(page.locator("[data-present]")).to_be_focused()
