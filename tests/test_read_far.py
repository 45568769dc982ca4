"""Read far: a button for each lesson that runs there fills the form and reads."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from test_app_browser import address, demo, held, lab, runs, visit  # noqa: F401

from app.lessons import lessons

FAR = [lesson for lesson in lessons().values() if lesson.run.tab == "long"]
BUTTONS = "#l-what-a-window-forgets, #l-what-sinks-are-for, #l-beyond-training"


def test_each_lesson_that_reads_has_its_button_which_says_how_long_it_takes(visit):  # noqa: F811
    page = visit(query="?tab=far").page
    expect(page.locator(BUTTONS)).to_have_count(len(FAR))
    seconds = []
    for lesson, words in zip(FAR, page.locator(BUTTONS).all_inner_texts(), strict=True):
        found = re.fullmatch(rf"{re.escape(lesson.title)} \((\d+) s\)", words)
        assert found, words
        seconds.append(int(found[1]))
    assert seconds == sorted(seconds) and seconds[0] == 1 and seconds[-1] <= 60


@pytest.mark.parametrize(
    ("button", "ways"),
    [("#l-what-a-window-forgets", ["Plain", "Λ"]),
     pytest.param("#l-what-sinks-are-for", ["Λ", "Λ without sinks"], marks=pytest.mark.ui)],
)  # fmt: skip
def test_a_press_reads_as_the_lesson_does(visit, button, ways):  # noqa: F811
    page = visit(query="?tab=far").page
    page.click(button)
    expect(page.locator("#l-go")).to_be_disabled()
    expect(page.locator(button)).to_be_disabled()
    expect(page.locator("#l-go")).to_be_enabled()
    expect(page.locator("#figures-long .ll-figures")).to_have_attribute("data-state", "good")
    message = page.inner_text("#figures-long .ll-message")
    assert [way for way in ("Plain", "Λ", "Λ without sinks") if f"{way} perplexity" in message] == ways
    if button == "#l-what-a-window-forgets":
        assert page.locator("#answers-l-answers dt b").all_inner_texts() == ["Recalled", "Not recalled"]
    expect(page.locator(BUTTONS).first).to_be_enabled()
