"""Compare with many seeds, in a real browser: how the lengths of its answers lie, the Lab's
settings as A with all that is carried of them, and the cap that follows the targets."""

from __future__ import annotations

import os

from playwright.sync_api import expect
from test_app_browser import address, demo, held, lab, link, runs, visit  # noqa: F401


def test_the_labs_settings_are_compared_and_write_several_answers(visit):  # noqa: F811
    settings = link(prompt="Why?", method="exp_decay", target=12, temperature=1.0, seed=5, max_new_tokens=30)
    page = visit(query=settings).page
    page.click("#lab-compare")
    expect(page.locator("#c-beside")).to_be_hidden()
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
    expect(words).to_contain_text("B: 1 answer of ")
    if folder := os.environ.get("LENGTH_LAB_SHOTS"):
        page.screenshot(path=f"{folder}/compare_seeds.png", full_page=True)
    page.fill("#c-answers input", "1")
    page.click("#c-go")
    expect(page.locator("#chart-c-lengths .ll-chart")).to_be_hidden()
    expect(page.locator("#c-go")).to_be_enabled()


def test_what_the_lab_gives_beside_the_boxes_is_named_kept_linked_and_dropped(visit, browser, held):  # noqa: F811
    settings = link(prompt="Why?", method="exp_decay", target=300, top_p=0.9, sinks=3, max_new_tokens=2000)
    page = visit(query=settings).page
    page.locator("#system textarea").fill("Rhyme.")
    page.locator("#system textarea").blur()
    page.click("#lab-compare")
    said = page.locator("#c-beside")
    for words in ("System prompt", "Top p 0.9", "first tokens", " 3"):
        expect(said).to_contain_text(words)
    expect(page.locator("#c-cap input")).to_have_value("2000")
    page.wait_for_function("localStorage.getItem('length-lab-form-compare')?.includes('Rhyme')")
    page.click("#c-link")
    expect(page.locator("#c-link")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    page.fill("#c-cap input", "1")
    page.click("#c-go")
    expect(page.locator("#figures-compare .ll-message")).to_contain_text("A, ")
    expect(page.locator("#c-go")).to_be_enabled()
    for each in held.settings[-3:]:
        assert (each.earlier[0].content, each.top_p, each.sinks) == ("Rhyme.", 0.9, 3)
    page.click("#c-drop")
    expect(said).to_be_hidden()
    page.click("#c-go")
    expect(page.locator("#figures-compare .ll-message")).to_contain_text("A, ")
    expect(page.locator("#c-go")).to_be_enabled()
    assert [(each.earlier, each.top_p) for each in held.settings[-3:]] == [((), 1)] * 3
    other = browser.new_context().new_page()
    other.goto(copied)
    expect(other.locator("#c-beside")).to_contain_text("Top p 0.9")
    other.reload()
    expect(other.locator("#c-beside")).to_contain_text("Top p 0.9")
    other.context.close()


def test_the_cap_follows_the_targets_until_it_is_set(visit):  # noqa: F811
    page = visit(query=link(tab="compare"), opens="compare").page
    cap, target = page.locator("#c-cap input"), page.locator(".ll-slot-b").get_by_label("Target or limit")
    expect(cap).to_have_value("256")
    for aim, follows in ((300, "600"), (60, "256"), (500, "1000")):
        target.fill(str(aim))
        target.blur()
        expect(cap).to_have_value(follows)
    page.locator("#c-unit input").click()
    page.get_by_role("option", name="words", exact=True).click()
    expect(cap).to_have_value("1500")
    cap.fill("128")
    cap.blur()
    target.fill("900")
    target.blur()
    page.wait_for_function("localStorage.getItem('length-lab-form-compare')?.includes('900')")
    page.wait_for_timeout(500)
    expect(cap).to_have_value("128")
