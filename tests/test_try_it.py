"""The first tab: what it opens on, two lanes written at once, and the flag that moves the target."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import expect

from app import presets, runway
from app.series import RunSeries
from app.tabs import try_it
from app.view import View
from backend.ending import ended, ending
from backend.models.adapters import available
from backend.settings import RunSettings
from backend.steps import TriedEnding
from backend.text.sentences import final
from backend.text.units import tolerance
from tests.test_app_browser import ANY, address, demo, held, lab, runs, visit  # noqa: F401

MISSED, LED = "#figures-try-asked", "#figures-try-steered"
TARGET = "#try-target input[type=number]"


def opened(visit, **options):  # noqa: F811
    return visit(query="?tab=try", **options)


def test_what_opens_is_a_recorded_pair_that_shows_the_point():
    asked, steered = presets.opening()
    assert asked.settings.prompt == steered.settings.prompt and asked.settings.target == steered.settings.target
    assert abs(asked.finish.error) > tolerance(60, "tokens") >= abs(steered.finish.error)
    assert steered.finish.own_end and final(steered.finish.text)


def test_both_lanes_differ_in_how_the_length_is_given_alone():
    asked, steered = try_it.both("Why?", 40, "words", True, available)
    given = {"method", "landing"}
    assert asked.model_dump(exclude=given) == steered.model_dump(exclude=given)
    assert (asked.method, asked.landing) == ("prompted", 0) and (steered.method, steered.landing) == ("ldpe", 8)


def test_a_model_without_adapters_is_steered_by_what_needs_none():
    _, steered = try_it.both("Why?", 40, "words", False, lambda model: dict.fromkeys(("ldpe", "orpe", "pre"), "none"))
    assert steered.method == "exp_decay"


def test_the_runway_marks_the_ends_of_sentences_in_the_unit_of_the_target():
    _, steered = presets.opening()
    run = View.of(steered, name="Steered").series
    ends = runway.sentence_ends(run)
    assert ends[-1] == steered.finish.tokens
    for end in ends:
        assert final("".join(step.text for step in steered.steps[:end]))
    words = RunSeries.of(RunSettings(prompt="x", method="ldpe", target=9, unit="words"), steered.events())
    assert runway.sentence_ends(words)[-1] == steered.finish.words


def test_a_steered_end_counts_as_a_sentence_where_a_search_has_asked_the_base_model():
    finish = presets.opening()[1].finish
    landed, unled = RunSettings(prompt="x", method="ldpe", target=60), RunSettings(prompt="x", method="prompted")
    assert ending(replace(finish, landed=True, own_end=True), landed)[0] == "good"
    assert ending(replace(finish, landed=True, own_end=False), landed)[0] == ""
    assert ending(replace(finish, landed=False), landed) == ("", "with a full stop, unchecked")
    assert ending(replace(finish, landed=False), unled)[0] == "good"
    for cut in (replace(finish, text="It rains and"), replace(finish, text="It rains and", landed=False)):
        assert ending(cut, landed) == ("bad", "amid a sentence") and ended(cut, landed) == "ended amid a sentence"
    assert ending(replace(finish, text="Rain", landed=False), unled) == ("", "without a full stop")
    assert ended(replace(finish, reason="cap"), unled) == "cut at the maximum"
    assert ending(replace(finish, error=9), landed)[0] == "bad"
    # A target that was moved is the one that counts: 60 → 120, and 120 → 60.
    moved = replace(finish, landed=True, own_end=True)
    assert ending(replace(moved, tokens=125, error=5), landed)[0] == "good"
    assert ending(replace(moved, tokens=65, error=5), landed.model_copy(update={"target": 120}))[0] == "bad"


def test_the_runway_shows_the_endings_that_were_tried_and_why_each_was_not_written():
    settings, steps = presets.opening()[1].settings, presets.opening()[1].steps[:40]
    written = TriedEnding(" So it is.", 59, True, True, 0.9, 0.8, 5.0, True)
    others = ({"near": False}, {"own": False}, {"p_end": 0.01}, {"p_eos": 0.01}, {},
              {"p_end": None, "p_eos": None, "nats": None})  # fmt: skip
    tried = (written, *(replace(written, chosen=False, **other) for other in others))
    run = RunSeries.of(settings, [*steps[:-1], replace(steps[-1], tried=tried)], name="Steered")
    shown = runway.lane(run)["tried"]
    assert shown[0] == [59, True, "So it is.", "written"]
    assert [why for *_, why in shown[1:]] == [
        "too far from the target", "the steered model would go on here",
        "the model alone would not end this sentence here",
        "the model alone would end the sentence here, but not the answer", "another one is likelier",
        "the model alone was not asked",
    ]  # fmt: skip


def test_the_endings_shown_are_those_tried_last_near_the_target_of_now_or_before_an_end_without_a_token():
    settings, steps = presets.opening()[1].settings, presets.opening()[1].steps[:3]
    tried = (TriedEnding(" So it is.", 59, True, True, 0.9, 0.8, 5.0, True),)
    events = [replace(steps[0], tried=tried), replace(steps[1], tried=None), replace(steps[2], tried=())]
    shown = [RunSeries.of(settings, events[:count]).tried for count in (1, 2, 3)]
    assert shown == [tried, tried, ()]
    assert RunSeries.of(settings, [*events, replace(presets.opening()[1].finish, tried=tried)]).tried == tried


def test_an_end_after_a_sentence_said_twice_says_so():
    finish, unled = presets.opening()[0].finish, RunSettings(prompt="x", method="prompted")
    for text, wanted in (
        ("The sky looks blue now. Yes. It does. the sky looks  blue now.", ("", "with a sentence, repeating itself")),
        ("The sky looks blue today. Yes. Yes. It looks blue by day.", ("good", "with a sentence")),
        ("1. It keeps you away from harm.\n2. It keeps you away from harm.", ("", "with a sentence, repeating itself")),
        ("1. It keeps you away from harm.\n2. It keeps you away from home.", ("good", "with a sentence")),
        ("天空看起来是蓝色的。是的。天空看起来是蓝色的。", ("", "with a sentence, repeating itself")),
        ("| a | b |\n| --- | --- |\n\n| c | d |\n| --- | --- |\n\nThese are two tables.", ("good", "with a sentence")),
    ):
        assert ending(replace(finish, reason="eos", text=text, landed=False, error=0), unled) == wanted


def test_the_runway_comes_with_each_frame_and_the_charts_less_often(monkeypatch):
    now = 100.0
    monkeypatch.setattr(try_it.time, "monotonic", lambda: now)
    pair = zip(presets.opening(), try_it.NAMES, strict=True)
    views, events = [], []
    for trace, name in pair:
        views.append(View.begun(trace, name=name))
        events.append([*trace.events()])
    drawing = try_it.Drawing()
    drawn = [drawing(views, None, 1)]
    for view, each in zip(views, events, strict=True):
        view.add(each[:1])
    for frame, seconds in enumerate((0, 0.1, 0.1, 0.2), 2):
        now += seconds
        drawn.append(drawing(views, None, frame))
    for view, each in zip(views, events, strict=True):
        view.add(each[1:])
    drawn.append(drawing(views, None, 6))
    assert all("try" in parts for parts in drawn)
    assert ["t-entropy" in parts for parts in drawn] == [True, True, False, False, True, True]


def test_the_runway_holds_all_that_was_written_and_the_target():
    pair = zip(presets.opening(), try_it.NAMES, strict=True)
    asked, steered = (View.of(trace, name=name).series for trace, name in pair)
    shown = json.loads(runway.encode([asked, steered]))
    assert shown["target"] == 60 and shown["span"] >= asked.produced[-1]
    assert [lane["state"] for lane in shown["lanes"]] == ["bad", "good"]
    assert shown["lanes"][1]["chance"][-1] == [steered.produced[-1], round(steered.p_eos[-1], 5)]
    empty = json.loads(runway.encode([RunSeries(asked.settings, "Asked"), RunSeries(steered.settings, "Steered")]))
    assert empty["span"] == 90 and not empty["lanes"][0]["ends"]


@pytest.mark.parametrize(
    "size", [{"width": 390, "height": 844}, pytest.param({"width": 1440, "height": 900}, marks=pytest.mark.ui)]
)
def test_the_page_opens_on_the_pair_without_a_click(visit, size):  # noqa: F811
    page = opened(visit, viewport=size).page
    asked, steered = presets.opening()
    expect(page.locator("#text-try-steered .ll-text")).to_have_text(steered.finish.text)
    expect(page.locator("#text-try-asked .ll-text")).to_contain_text(asked.finish.text[:80])
    expect(page.locator(f"{LED} [data-field=end]")).to_have_text("with a sentence")
    expect(page.locator(".ll-run")).to_have_count(2)
    expect(page.get_by_text("These two answers are recorded.")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    box = page.locator("#try-go").bounding_box()
    assert box["y"] + box["height"] <= size["height"]


def reloading(visit) -> tuple[Any, list[Any]]:  # noqa: F811
    """A page that is loaded anew and whose script has not come yet; the browser has kept a forest for its prompt."""
    page, scripts = opened(visit).page, []
    page.click("#try-link")
    expect(page.locator("#try-link")).to_have_text("Copied")
    page.fill("#try-prompt textarea", "Describe a forest at night.")
    page.wait_for_function("localStorage.getItem('length-lab-form-try')?.includes('forest')")
    page.route("**/lab/charts.js", lambda route: scripts.append(route))
    page.reload()
    return page, scripts


def test_what_is_pressed_before_the_page_can_answer_is_pressed_once_it_can(visit, held):  # noqa: F811
    page, scripts = reloading(visit)
    held.upto(3)
    for name in ("link", "link", "go"):
        page.click(f"#try-{name}")
    expect(page.locator("#try-go")).to_have_class(re.compile("ll-pressed"))
    for script in scripts:
        script.continue_()
    expect(page.locator("#try-link")).to_have_text("Copied")
    expect(page.locator(f"{LED} [data-field=written]")).to_have_text("3 tokens")
    expect(page.get_by_text("These two answers are recorded.")).to_be_hidden()
    expect(page.locator("#try-go")).not_to_have_class(re.compile("ll-pressed"))
    assert {settings.prompt for settings in held.settings[-2:]} == {"Describe a forest at night."}
    page.click("#try-stop")
    expect(page.locator("#try-go")).to_be_enabled()


def test_what_is_typed_while_the_page_opens_stays_though_the_browser_kept_something_else(visit, held):  # noqa: F811
    page, scripts = reloading(visit)
    held.upto(3)
    page.click("#try-prompt textarea")
    page.keyboard.press("Control+A")
    page.keyboard.type("Describe a lake.")
    page.click("#try-go")
    for script in scripts:
        script.continue_()
    expect(page.locator(f"{LED} [data-field=written]")).to_have_text("3 tokens")
    expect(page.locator("#try-prompt textarea")).to_have_value("Describe a lake.")
    assert {settings.prompt for settings in held.settings[-2:]} == {"Describe a lake."}
    page.wait_for_function("localStorage.getItem('length-lab-form-try')?.includes('lake')")
    page.click("#try-stop")
    expect(page.locator("#try-go")).to_be_enabled()


def test_write_writes_both_lanes_and_the_flag_moves_the_steered_one(visit, held):  # noqa: F811
    visitor = opened(visit)
    page = visitor.page
    held.upto(5)
    page.fill("#try-prompt textarea", "Describe a forest at night.")
    page.click("#try-go")
    expect(page.locator(f"{LED} [data-field=written]")).to_have_text("5 tokens")
    flag = page.locator("#runway-try .ll-flag")
    flag.focus()
    for _ in range(2):
        page.keyboard.press("PageDown")
    expect(page.locator(TARGET)).to_have_value("40")
    # The page shows it before the run knows.
    visitor.until(lambda: 40 in [control.goal(ANY) for control in held.controls[-2:]])
    held.free()
    expect(page.locator("#try-go")).to_be_enabled()
    # The button may be free before the last frame is drawn.
    expect(page.locator(f"{LED} [data-field=error]")).to_have_text(re.compile("^[+−±][0-3]$"))
    page.click(".ll-whys summary")
    text = page.locator("#text-try-steered .ll-text").inner_text()
    assert text.endswith(page.locator(".ll-whys .chosen q").inner_text().strip()[-20:])
    assert page.locator(".ll-tried.chosen").count() == 1
    produced = int(page.locator(f"{LED} [data-field=written]").inner_text().split()[0])
    assert abs(produced - 40) <= 3


def test_an_empty_prompt_is_refused_in_a_sentence_and_nothing_is_lost(visit):  # noqa: F811
    page = opened(visit).page
    page.fill("#try-prompt textarea", "  ")
    page.click("#try-go")
    expect(page.locator(f"{LED} .ll-message")).to_contain_text("prompt")
    expect(page.locator("#try-go")).to_be_enabled()


def test_all_settings_are_taken_to_the_form(visit):  # noqa: F811
    page = opened(visit).page
    page.fill("#try-prompt textarea", "Describe a forest at night.")
    page.click("#try-inside")
    expect(page.locator("#prompt textarea")).to_be_visible()
    expect(page.locator("#prompt textarea")).to_have_value("Describe a forest at night.")
    expect(page.locator("#target input[type=number]")).to_have_value("60")
