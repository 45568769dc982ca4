"""What a visitor entered and made is there again after a reload, in a real browser, and what is kept is validated."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import gradio as gr
import pytest
from cable import cable
from playwright.sync_api import Page, expect
from test_app_browser import CHARTS, Visitor, address, held, lab, link, runs, visit  # noqa: F401
from test_page_state import VEILED

from app import __main__ as app
from app import kept, live
from app import page as lab_page
from app.free_port import free_port
from app.presets import PRESETS
from app.runs import Runs
from app.series import PastRun
from app.shares import Shares
from backend.models.adapters import available
from backend.record.trace import Trace

# Time enough to load a page anew, on any machine.
SHARES = Shares(closed_seconds=40)
# Of a tab: the button that writes, and the texts written.
WRITES = {
    "lab": ("#go", ["run"]), "try": ("#try-go", ["try-asked", "try-steered"]), "compare": ("#c-go", ["c-a", "c-b"])
}  # fmt: skip
PAST = [PastRun("run 1, none", "tokens", 9, 9, None)]


@pytest.fixture(scope="module")
def demo(lab, runs) -> lab_page.Page:  # noqa: F811
    return lab_page.build(lab, available, runs, 8, SHARES)


def prompt(page: Page, name: str = "prompt"):
    return page.locator(f"#{name} textarea")


def saved(page: Page, place: str, words: str) -> None:
    """Waits until the browser keeps a form with these words."""
    page.wait_for_function(
        "([place, words]) => localStorage.getItem(`length-lab-form-${place}`)?.includes(words)", arg=[place, words]
    )


def remembers(page: Page, runs: int) -> None:  # noqa: F811
    """Waits until the browser keeps so many runs, the last of them whole."""
    store = "new Promise((done) => { indexedDB.open('length-lab').onsuccess = ({ target: { result } }) => {"
    store += " result.transaction('runs').objectStore('runs').get('last').onsuccess = (e) => done(e.target.result) } })"
    page.wait_for_function(f"async (runs) => JSON.parse(await {store} ?? '{{}}').past?.length === runs", arg=runs)


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
    page.click("[data-tab-id=far]")
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
    page.click("[data-tab-id=lab]")
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
    page.locator("#choice-method input[value=none]").check()
    for tokens in (5, 7):
        prompt(page).fill(f"Count to {tokens}.")
        visitor.number("cap", tokens)
        visitor.generate()
        visitor.ends()
    text = page.inner_text("#text-run .ll-text")
    remembers(page, 2)
    reload(page)
    visitor.shows(7)
    assert page.inner_text("#text-run .ll-text") == text
    expect(page.locator(".ll-stage")).not_to_have_class(VEILED)
    for name in CHARTS:
        visitor.settles(name)
    earlier = "document.querySelector('#chart-length .ll-plot').data.find(({ name }) => name === 'earlier runs').x"
    assert page.evaluate(earlier) == [5, 7]


def test_a_run_in_progress_goes_on_over_a_reload(visit, held, runs):  # noqa: F811
    held.upto(6)
    visitor = visit()
    page = visitor.page
    visitor.generate()
    visitor.shows(6)
    [run] = runs._runs
    reload(page)
    visitor.shows(6)
    expect(page.locator("#go")).to_be_disabled()
    held.upto(12)
    visitor.shows(12)
    assert runs._runs == [run]
    page.click("#stop")
    assert "after 12 tokens" in visitor.ends()
    visitor.until(lambda: not len(runs))
    expect(page.locator("#go")).to_have_text("Generate")
    page.click("#share")
    expect(page.locator("#share")).to_have_text("Copied")


def test_a_closed_page_ends_its_run_and_nobody_takes_up_anothers(visit, demo, held, runs, monkeypatch):  # noqa: F811
    held.upto(3)
    visitor = visit()
    visitor.generate()
    [run] = runs._runs
    stranger = visitor.context.new_page()
    stranger.goto(visitor.page.url)
    stranger.wait_for_selector("#model-state [data-state=good]")
    expect(stranger.locator("#go")).to_be_enabled()
    monkeypatch.setattr(demo._queue, "shares", replace(SHARES, closed_seconds=1))
    visitor.page.close()
    while len(runs):
        stranger.wait_for_timeout(50)
    assert run.control.stopped


@pytest.mark.ui
def test_many_pages_of_one_browser_open_and_stream(visit, held, runs):  # noqa: F811
    visitor = visit()
    pages = [visitor.page]
    while len(pages) < 8:
        pages.append(visitor.context.new_page())
        pages[-1].goto(visitor.page.url)
        pages[-1].wait_for_selector("#model-state [data-state=good]")
        pages[-1].wait_for_selector("#text-run .ll-response[data-tokens]")
    last = pages[-1]
    held.upto(4)
    prompt(last).fill("Count to 50.")
    last.click("#go")
    for tokens in (4, 8):
        held.upto(tokens)
        last.wait_for_selector(f'#text-run .ll-response[data-tokens="{tokens}"]')
    last.click("#stop")
    last.wait_for_selector("#go:not([disabled])")
    visitor.until(lambda: not len(runs))


def shows(page: Page, texts: list[str], tokens: int) -> None:
    """Waits until each text has so many tokens."""
    for name in texts:
        page.wait_for_selector(f'#text-{name} .ll-response[data-tokens="{tokens}"]')


@pytest.mark.parametrize("tab", ["try", *(pytest.param(tab, marks=pytest.mark.ui) for tab in ("lab", "compare"))])
def test_a_run_goes_on_after_its_connection_was_cut(browser, demo, address, held, runs, tab):  # noqa: F811
    with cable(demo.server_port) as between:
        visitor = Visitor(browser, between.address, query=f"?tab={tab}")
        page = visitor.page
        go, texts = WRITES[tab]
        opened = page.evaluate("performance.timeOrigin")
        held.upto(5)
        page.click(go)
        shows(page, texts, 5)
        written = {*runs._runs}
        between.cut()
        expect(page.locator(".ll-lost")).to_be_visible()
        held.upto(9)
        between.mend()
        expect(page.locator(".ll-lost")).to_be_hidden()
        shows(page, texts, 9)
        assert {*runs._runs} == written
        held.free()
        page.wait_for_selector(f"{go}:not([disabled])")
        visitor.until(lambda: not len(runs))
        assert page.evaluate("performance.timeOrigin") == opened
        visitor.wrongs = [wrong for wrong in visitor.wrongs if "net::ERR_" not in wrong]
        visitor.close()


def test_a_page_stays_while_its_server_is_away_and_goes_on_with_the_next(browser, lab):  # noqa: F811
    first = serving(lab, free_port())
    visitor = Visitor(browser, first.local_url)
    page = visitor.page
    lab.upto(5)
    visitor.generate()
    visitor.shows(5)
    text, opened = page.inner_text("#text-run .ll-text"), page.evaluate("performance.timeOrigin")
    first.close()
    expect(page.locator(".ll-lost")).to_be_visible()
    with page.expect_download() as download:
        page.click(".ll-lost button")
    assert text in Path(download.value.path()).read_text("utf-8")
    prompt(page).fill("Typed meanwhile.")
    assert page.inner_text("#text-run .ll-text") == text
    lab.free()
    second = serving(lab, first.server_port)
    try:
        expect(page.locator(".ll-lost")).to_be_hidden()
        page.wait_for_selector("#go:not([disabled])")
        assert "did not answer" in visitor.message and page.inner_text("#text-run .ll-text") == text
        expect(prompt(page)).to_have_value("Typed meanwhile.")
        visitor.number("cap", 7)
        visitor.generate()
        visitor.ends()
        visitor.shows(7)
        assert page.evaluate("performance.timeOrigin") == opened
        # What the browser says of a server that is not there.
        visitor.wrongs = [wrong for wrong in visitor.wrongs if "net::ERR_" not in wrong]
        visitor.close()
    finally:
        second.close()


def serving(lab, port: int) -> lab_page.Page:  # noqa: F811
    """On a port beyond those that other servers look through: it is still free for the next one."""
    served = lab_page.build(lab, available, Runs())
    app.serve(served, port=port)
    return served


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
            live.choice("x", "X", "An X.", [{"id": "a", "label": "A", "hint": "", "off": ""}], "a"): [None, "b", 1],
        }
        right = [["", "x"], [True, False], [1, 9, 2.5], [0, 7], [1, 2], ["a"], [[], ["b"]], ["a"]]
    for (part, refused), taken in zip(wrong.items(), right, strict=True):
        assert [value for value in refused if kept.fits(part, value)] == []
        assert all(kept.fits(part, value) for value in taken)
