"""Text that runs from right to left, in a real browser: where the letters of a known answer and prompt lie."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
import test_app_browser as on_page
import test_page_text as beyond
from PIL import Image
from playwright.sync_api import Locator, expect
from scripted import scripted
from test_app_browser import Visitor, link

address, visit, runs, demo = on_page.address, on_page.visit, beyond.runs, beyond.demo
# Paragraphs, and whether they run from right to left: by their first letter, whatever comes later.
PARAGRAPHS = {
    "Good morning to all.": False,
    "صباح الخير جميعا.": True,
    "יום טוב לכולם!": True,
    "یہ پہلا جملہ ہے۔": True,
    "ܫܠܡܐ ܥܠܝܟܘܢ.": True,
    "1. أولا هذا، 2026.": True,
    "Say مرحبا again?": False,
    "تعني كلمة hello «نعم».": True,
    "早上好。": False,
}
ANSWER = "\n".join(PARAGRAPHS)
TYPED = {"Why?": False, "لماذا؟": True, "למה?": True, "1. کیوں؟": True, "What is مرحبا?": False}
PIECES = re.findall(r"\S+\s*", ANSWER)
# Of each paragraph: where its first letter and its last mark begin, and where the box of its text begins and ends.
PLACES = """([selector, text]) => {
  const box = document.querySelector(selector), nodes = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
  const places = [];
  for (let node; (node = nodes.nextNode());) for (let i = 0; i < node.length; i++) places.push([node, i]);
  const at = ([node, i]) => {
    const range = document.createRange();
    range.setStart(node, i); range.setEnd(node, i + 1);
    const { left, right } = range.getBoundingClientRect();
    return [left, right];
  };
  const edge = box.getBoundingClientRect(), found = [];
  let start = 0;
  for (const line of text.split("\\n")) {
    found.push({ first: at(places[start]), mark: at(places[start + line.length - 1]), box: [edge.left, edge.right] });
    start += line.length + 1;
  }
  return found;
}"""


@pytest.fixture(scope="module")
def names(tmp_path_factory) -> list[str]:
    """A model that writes ANSWER."""
    return [str(scripted(tmp_path_factory.mktemp("directions"), PIECES))]


def check(visitor: Visitor, selector: str) -> None:
    """Every paragraph of ANSWER begins at the side from which it runs, and its last mark ends it."""
    for (words, leftward), place in zip(
        PARAGRAPHS.items(), visitor.page.evaluate(PLACES, [selector, ANSWER]), strict=True
    ):
        (left, right), (start, end) = place["first"], place["box"]
        if leftward:
            assert right == pytest.approx(end, abs=20) and place["mark"][1] <= left, words
        else:
            assert left == pytest.approx(start, abs=20) and place["mark"][0] >= right, words


def ink(box: Locator) -> float:
    """Where in a text box its letters lie on average: 0 is its left edge, 1 its right."""
    picture = np.asarray(Image.open(io.BytesIO(box.screenshot())).convert("L"), dtype=int)[8:-8, 8:-24]
    return float(np.nonzero(abs(picture - np.median(picture)) > 60)[1].mean() / picture.shape[1])


def test_each_paragraph_of_an_answer_runs_in_its_own_direction(visit, names):
    visitor = visit(query=link(prompt="Greet us.", model=names[0], max_new_tokens=100))
    page = visitor.page
    visitor.generate()
    visitor.ends()
    check(visitor, "#text-run .ll-text")
    page.click("#replay")
    page.wait_for_selector("#stop:enabled")
    visitor.ends()
    check(visitor, "#text-run .ll-text")
    page.get_by_role("tab", name="Compare").click()
    page.click("#c-go")
    expect(page.locator("#figures-compare .ll-message")).to_contain_text("C, plain")
    page.wait_for_selector("#c-go:not([disabled])")
    for name in "abc":
        check(visitor, f"#text-c-{name} .ll-text")
    page.get_by_role("tab", name="Read far").click()
    page.evaluate("(text) => LengthLab.deliver('l-answers', [['Plain', text, 'Found']])", ANSWER)
    check(visitor, "#answers-l-answers dd")


@pytest.mark.ui
def test_a_token_s_details_run_in_its_own_direction_beside_the_page_s_labels(visit, names):
    visitor = visit(query=link(prompt="Greet us.", model=names[0], max_new_tokens=100))
    visitor.generate()
    visitor.ends()
    visitor.page.locator("#text-run .tok", has_text="نعم").hover()
    expect(visitor.page.locator("#text-run .ll-tip")).to_contain_text("«نعم».↵ token")
    lefts = """(marks) => { const line = document.querySelector("#text-run .ll-tip").firstElementChild;
      const nodes = [...line.childNodes].map((node) => node.firstChild ?? node);
      return marks.map((mark) => {
        const node = nodes.find((each) => each.data.includes(mark)), range = document.createRange();
        range.setStart(node, node.data.indexOf(mark)); range.setEnd(node, node.data.indexOf(mark) + 1);
        return range.getBoundingClientRect().left;
      }); }"""
    places = visitor.page.evaluate(lefts, list("↵.»م«t"))
    assert places == sorted(places)


@pytest.mark.ui
def test_arrow_keys_walk_as_the_letters_run(visit, names):
    visitor = visit(query=link(prompt="Greet us.", model=names[0], max_new_tokens=100))
    visitor.generate()
    visitor.ends()
    tip = visitor.page.locator("#text-run .ll-tip")
    visitor.page.locator("#text-run .ll-text").focus()
    # Onward in English and into Arabic, back there to the English words, and onward again.
    walk = ["Right"] * 4 + ["Left", "Left", "Right", "Right", "Left", "Right"]
    seen = []
    for key in walk:
        visitor.page.keyboard.press(f"Arrow{key}")
        seen.append(tip.locator("b").first.inner_text().rstrip("␣↵"))
    assert seen == ["morning", "to", "all.", "صباح", "الخير", "جميعا.", "الخير", "صباح", "الخير", "صباح"]


@pytest.mark.parametrize(
    ("tab", "box"),
    [
        ("Lab", "#prompt"),
        pytest.param("Compare", "#c-prompt", marks=pytest.mark.ui),
        pytest.param("Read far", "#l-own", marks=pytest.mark.ui),
    ],
)
def test_what_is_typed_begins_at_the_side_from_which_it_runs(visit, tab, box):
    page = visit().page
    page.get_by_role("tab", name=tab, exact=True).click()
    if tab == "Read far":
        page.get_by_label("My own text").click()
    for words, leftward in TYPED.items():
        page.fill(f"{box} textarea", words)
        page.locator("h1").click()
        assert (ink(page.locator(f"{box} textarea")) > 0.5) == leftward, words
