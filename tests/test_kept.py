"""What a visitor entered and made is there again after a reload, in a real browser, and what is kept is validated."""

from __future__ import annotations

import json
import math

import gradio as gr
import pytest
from playwright.sync_api import Page, expect
from test_app_browser import CHARTS, address, demo, held, lab, link, runs, visit  # noqa: F401

from app import kept, live
from app.presets import PRESETS
from app.series import PastRun
from backend.record.trace import Trace

PAST = [PastRun("run 1, none", "tokens", 9, 9, None)]


def prompt(page: Page, name: str = "prompt"):
    return page.locator(f"#{name} textarea")


def saved(page: Page, place: str, words: str) -> None:
    """Waits until the browser keeps a form with these words."""
    page.wait_for_function(
        "([place, words]) => localStorage.getItem(`length-lab-form-${place}`)?.includes(words)", arg=[place, words]
    )


def reload(page: Page) -> None:
    page.reload()
    page.wait_for_selector("#model-state [data-state=good]")


def test_every_form_is_there_after_a_reload(visit):  # noqa: F811
    visitor = visit()
    page = visitor.page
    prompt(page).fill("What is “kept”, and לא?")
    visitor.number("temperature", 0.4)
    page.locator("#windowed input").check()
    visitor.number("window", 77)
    page.click("[data-tab-id=compare]")
    prompt(page, "c-prompt").fill("Compare this.")
    page.locator("#c-count input[value='4']").check()
    page.click("[data-tab-id=long]")
    page.get_by_label("My own text").check()
    prompt(page, "l-own").fill("A text of mine.")
    saved(page, "generate", "77")
    saved(page, "compare", "Compare this.")
    saved(page, "long", "A text of mine.")
    page.goto("about:blank")
    page.go_back()
    expect(prompt(page, "l-own")).to_have_value("A text of mine.")
    page.click("[data-tab-id=compare]")
    expect(prompt(page, "c-prompt")).to_have_value("Compare this.")
    expect(page.locator(".ll-slot-d")).to_be_visible()
    page.click("[data-tab-id=generate]")
    expect(prompt(page)).to_have_value("What is “kept”, and לא?")
    expect(page.locator("#temperature input[type=number]")).to_have_value("0.4")
    expect(page.locator("#window input[type=number]")).to_have_value("77")
    expect(page.locator("#windowed input")).to_be_checked()


def test_a_link_wins_once_and_what_was_made_of_it_is_kept(visit, address):  # noqa: F811
    visitor = visit()
    page = visitor.page
    prompt(page).fill("Mine.")
    saved(page, "generate", "Mine.")
    page = visitor.context.new_page()
    page.goto(address + link(prompt="The link's.", target=40))
    expect(prompt(page)).to_have_value("The link's.")
    saved(page, "generate", "The link's.")
    prompt(page).fill("The link's, changed.")
    saved(page, "generate", "changed")
    reload(page)
    expect(prompt(page)).to_have_value("The link's, changed.")
    other = visitor.context.new_page()
    other.goto(visitor.page.url)
    expect(prompt(other)).to_have_value("The link's, changed.")


@pytest.mark.ui
def test_reset_clears_what_was_kept(visit):  # noqa: F811
    page = visit().page
    prompt(page).fill("A secret.")
    saved(page, "generate", "A secret.")
    page.click("#reset")
    page.wait_for_function("!localStorage.getItem('length-lab-form-generate').includes('A secret')")
    reload(page)
    expect(prompt(page)).not_to_have_value("A secret.")


def test_what_is_damaged_or_full_changes_nothing(visit):  # noqa: F811
    page = visit().page
    prompt(page).fill("The page has opened.")
    saved(page, "generate", "The page has opened.")
    wrong = json.dumps({"prompt": 5, "method": "<b>", "temperature": 1e9, "unit": None, "seed": "1"})
    page.add_init_script(f"localStorage.setItem('length-lab-form-generate', {wrong!r});"
                         "localStorage.setItem('length-lab-form-long', '{');"
                         "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError') };")
    reload(page)
    assert prompt(page).input_value() == PRESETS[0].settings.prompt
    prompt(page).fill("It goes on.")
    expect(prompt(page)).to_have_value("It goes on.")


def test_the_last_run_and_those_before_it_are_there_after_a_reload(visit):  # noqa: F811
    visitor = visit()
    page = visitor.page
    for tokens in (5, 7):
        prompt(page).fill(f"Count to {tokens}.")
        visitor.number("cap", tokens)
        visitor.generate()
        visitor.ends()
    text = page.inner_text("#text-run .ll-text")
    store = "new Promise((done) => { indexedDB.open('length-lab').onsuccess = ({ target: { result } }) => {"
    store += " result.transaction('runs').objectStore('runs').get('last').onsuccess = (e) => done(e.target.result) } })"
    page.wait_for_function(f"async () => JSON.parse(await {store} ?? '{{}}').past?.length === 2")
    reload(page)
    visitor.shows(7)
    assert page.inner_text("#text-run .ll-text") == text
    expect(page.locator(".ll-stage")).not_to_have_class("ll-veiled")
    for name in CHARTS:
        visitor.settles(name)
    page.click("#chart-length [data-act=table]")
    expect(page.locator("#chart-length .ll-words")).to_be_visible()
    visitor.generate()
    visitor.ends()
    plot = "JSON.stringify(document.querySelector('#chart-length .ll-plot').data)"
    page.wait_for_function(f"() => {plot}.includes('run 1, ') && {plot}.includes('run 2, ')")


def test_a_run_comes_back_as_it_was_kept():
    trace = Trace.load(PRESETS[0].file)
    again, past = kept.unpacked(kept.packed(trace, PAST))
    assert again is not None and again.to_json() == trace.to_json() and past == PAST
    assert kept.unpacked(kept.packed(None, PAST)) == (None, PAST)


def test_a_run_that_is_too_large_is_left_out(monkeypatch):
    monkeypatch.setattr(kept, "MAX_BYTES", 1000)
    assert kept.unpacked(kept.packed(Trace.load(PRESETS[0].file), PAST)) == (None, PAST)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", "{}", '{"trace": 5, "past": []}', '{"trace": "!", "past": []}',
             '{"trace": "aGFsbG8=", "past": []}', '{"trace": "", "past": [{"label": 1}]}']
)  # fmt: skip
def test_a_run_that_is_none_is_left_out(text):
    assert kept.unpacked(text) == (None, [])


@pytest.mark.parametrize(
    ("text", "forms"), [("", {}), ("{", {}), ("[1]", {}), ('{"a": 1, "b": {"c": 2}}', {"b": {"c": 2}})]
)
def test_forms_that_are_none_are_left_out(text, forms):
    assert kept.read(text) == forms


def test_a_part_takes_only_what_it_could_have_been_given():
    with gr.Blocks():
        wrong = {
            gr.Textbox(): [None, 5, ["a"]],
            gr.Checkbox(): [None, "on", 1],
            gr.Slider(1, 9, step=1): [None, "5", True, 0, 10, math.nan, [5]],
            gr.Number(minimum=0, precision=0): [None, -1, 0.5, math.inf, "1"],
            gr.Dropdown([("a", 1), ("b", 2)]): [None, 3, "a", True, [1]],
            gr.Radio(["a", "b"]): [None, "c", 1, {}],
            gr.CheckboxGroup(["a", "b"]): [None, "a", ["c"], [1]],
            live.choice("x", "X", [{"id": "a", "label": "A", "hint": "", "off": ""}], "a"): [None, "b", 1],
        }
        right = [["", "x"], [True, False], [1, 9, 2.5], [0, 7], [1, 2], ["a"], [[], ["b"]], ["a"]]
    for (part, refused), taken in zip(wrong.items(), right, strict=True):
        assert [value for value in refused if kept.fits(part, value)] == []
        assert all(kept.fits(part, value) for value in taken)
