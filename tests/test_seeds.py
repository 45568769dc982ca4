"""Compare with many seeds: which answers count, and the histogram of their lengths; then, in a real browser, the Lab's
settings as A with all that is carried of them, and the cap that follows the targets."""

from __future__ import annotations

import os
import re
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect
from test_app_browser import address, demo, held, lab, link, runs, visit  # noqa: F401

from app import columns, seeds
from app.presets import READING
from backend.settings import RunSettings
from backend.steps import Finish


def ended(tokens: int, text: str = "It is so.", own_end: bool = True) -> Finish:
    return Finish("eos", text, tokens, tokens, tokens, tokens - 60, 9, 0.1, 0.1, 5.0, 1, own_end=own_end)


@pytest.mark.parametrize(
    ("settings", "one", "counts"),
    [
        ({"method": "ldpe", "target": 60}, ended(63), True),
        ({"method": "ldpe", "target": 60}, ended(64), False),
        ({"method": "ldpe", "target": 60}, ended(60, "It is"), False),
        ({"method": "ldpe", "target": 60}, ended(60, own_end=False), False),
        ({"method": "mnt_ldpe", "limit": 60}, ended(9), True),
        ({"method": "mnt_ldpe", "limit": 60}, ended(61), False),
        ({"target": 60}, ended(900), True),
        ({"target": 60}, ended(900, own_end=False), False),
    ],
)
def test_an_answer_counts_that_has_its_length_and_is_ended_by_the_model_after_a_sentence(settings, one, counts):
    settings = RunSettings(prompt="x", **settings)
    assert seeds.kept(settings, one) == counts
    assert f"; {int(counts)} of 1 " in seeds.said(settings, [one])


def test_the_words_say_what_is_counted():
    words = seeds.said(RunSettings(prompt="x", method="ldpe", target=100, unit="words"), [ended(95), ended(106)])
    assert words == (
        "2 answers of 95 to 106 words, median 100.5; "
        "1 of 2 within 5 words of 100 and ended by the model itself, where a sentence ends"
    )
    assert "at most 60 tokens long" in seeds.said(RunSettings(prompt="x", method="mnt_orpe", limit=60), [ended(9)])


@given(st.lists(st.lists(st.integers(0, 20_000), min_size=1, max_size=32), min_size=1, max_size=4))
def test_a_histogram_of_each_setting_counts_all_its_answers_over_the_same_lengths(lengths):
    found = [
        (name, RunSettings(prompt="x", method="ldpe", target=60), dict(enumerate(map(ended, its))))
        for name, its in zip("ABCD", lengths, strict=False)
    ]
    chart = seeds.picture(found)
    assert [sum(bars["y"]) for bars in chart.data] == ([*map(len, lengths)] if sum(map(len, lengths)) > 1 else [])
    for bars in chart.data:
        assert bars["x"] == chart.data[0]["x"] and len(bars["x"]) <= seeds.BINS
        assert re.fullmatch("[125]0*", str(bars["width"]))
    assert len({bars["yaxis"] for bars in chart.data}) == len(chart.data) == len(chart.layout["shapes"])


def test_the_page_opens_on_one_length_asked_for_and_steered_to_whose_answers_end_by_themselves(demo, lab):  # noqa: F811
    form = next(each.inputs for each in demo.fns.values() if each.name == "compare")
    asked = columns.asked([part.value for part in form])
    assert [each.method for each in asked] == ["prompted", "ldpe", "orpe"]
    assert {(each.prompt, each.target) for each in asked} == {(READING, 60)}
    found = [next(event for event in lab.stream(each) if isinstance(event, Finish)) for each in asked]
    assert [one.reason for one in found] == ["eos"] * 3
    assert all(seeds.kept(settings, one) for settings, one in zip(asked[1:], found[1:], strict=True))


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
    with page.expect_download() as download:
        page.click("#c-csv")
    table = Path(download.value.path()).read_text("utf-8")
    assert len(table.splitlines()) >= 6 and download.value.suggested_filename == "length-lab-comparison.csv"
    with page.expect_download() as download:
        page.click("#c-json")
    with zipfile.ZipFile(download.value.path()) as file:
        assert len(file.namelist()) == 3
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
