"""Read far: a button for each lesson that runs there fills the form and reads."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from test_app_browser import address, demo, held, lab, runs, visit  # noqa: F401

from app.lessons import lessons
from app.tabs.long_context import CHAPTER, FARTHER, OWN

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
    assert seconds == sorted(seconds) and seconds[0] == 1 and seconds[-1] <= 10


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
        assert page.locator("#answers-l-answers dt b").all_inner_texts() == ["Found", "Not found"]
        number = page.locator("#answers-l-answers dd").first.inner_text().split(",")[0]
        plain, windowed = page.locator("#sight-l-sight dd").all()
        expect(page.locator("#sight-l-sight dt b")).to_have_text(["all 512 tokens seen", "374 of 512 tokens lost"])
        assert plain.locator("s").count() == 0 and number in plain.locator("mark").inner_text()
        assert number in windowed.locator("s").inner_text() and windowed.locator("mark").count() == 2
    expect(page.locator(BUTTONS).first).to_be_enabled()


def test_the_longer_texts_are_shown_as_they_were_recorded(visit):  # noqa: F811
    page = visit(query="?tab=far").page
    page.click("[data-plays]")
    screen = page.locator(".ll-present")
    expect(screen).to_have_attribute("data-scene", FARTHER)
    expect(screen.locator(".ll-place")).to_contain_text("recorded")
    expect(screen.locator(".ll-scene .main-svg").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(screen).to_be_hidden()


def test_the_page_opens_with_the_chapter_and_says_where_a_text_ends(visit):  # noqa: F811
    page = visit(query="?tab=far").page
    expect(page.get_by_label(CHAPTER)).to_be_checked()
    page.get_by_label(OWN).check()
    page.fill("#l-own textarea", "The cat sat on the mat, and the dog lay by the door. " * 9)
    page.click("#l-go")
    expect(page.locator("#figures-long .ll-message")).to_contain_text("tokens, all that the text has: Plain perplexity")
