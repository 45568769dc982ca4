"""Compare with many seeds, in a real browser: the Lab's settings as A, and how the lengths of its answers lie."""

from __future__ import annotations

import os

from playwright.sync_api import expect
from test_app_browser import address, demo, lab, link, runs, visit  # noqa: F401


def test_the_labs_settings_are_compared_and_write_several_answers(visit):  # noqa: F811
    settings = link(prompt="Why?", method="exp_decay", target=12, temperature=1.0, seed=5, max_new_tokens=30)
    page = visit(query=settings).page
    page.click("#lab-compare")
    expect(page.locator("#c-prompt textarea")).to_have_value("Why?")
    expect(page.locator(".ll-slot-a").get_by_label("Seed")).to_have_value("5")
    expect(page.locator("#chart-c-lengths .ll-chart")).to_be_hidden()
    page.fill("#c-answers input", "3")
    page.click("#c-go")
    expect(page.locator("#figures-compare .ll-message")).to_have_text("All answers have ended.")
    expect(page.locator("#chart-c-lengths .main-svg").first).to_be_visible()
    # Those at temperature 0 have nothing more to write.
    words = page.locator("#chart-c-lengths .ll-words")
    words.scroll_into_view_if_needed()
    expect(words).to_contain_text("A: 3 answers of ")
    expect(words).to_contain_text("B: 1 answer of 30 to 30 tokens, median 30; 0 of 1 end with a sentence.")
    if folder := os.environ.get("LENGTH_LAB_SHOTS"):
        page.screenshot(path=f"{folder}/compare_seeds.png", full_page=True)
    page.fill("#c-answers input", "1")
    page.click("#c-go")
    expect(page.locator("#chart-c-lengths .ll-chart")).to_be_hidden()
    expect(page.locator("#c-go")).to_be_enabled()
