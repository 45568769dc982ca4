"""What a visitor entered and made is there again after a reload, in a real browser, and what is kept is validated."""

from __future__ import annotations

import json
import math
import threading
import time
from dataclasses import replace
from pathlib import Path

import gradio as gr
import pytest
from cable import cable
from playwright.sync_api import Page, expect
from stored import LAST, stored
from test_app_browser import CHARTS, Visitor, address, held, lab, link, runs, visit  # noqa: F401
from test_page_state import VEILED

from app import __main__ as app
from app import kept, live, plans
from app import page as lab_page
from app.free_port import free_port
from app.presets import PRESETS
from app.runs import Runs
from app.series import PastRun
from app.shares import Shares
from app.tabs import generate
from backend.models.adapters import available
from backend.record.trace import Trace

# Time enough to load a page anew, on any machine.
SHARES = Shares(closed_seconds=40)
# Of a tab: the button that writes, and the texts written.
WRITES = {
    "lab": ("#go", ["run"]), "try": ("#try-go", ["try-asked", "try-steered"]), "compare": ("#c-go", ["c-a", "c-b"])
}  # fmt: skip
# Of a tab: the button that runs what it asks for, and the name of the frame that the browser keeps.
RUNS = {"try": "#try-go", "compare": "#c-go", "far": "#l-go", "sweep": "#s-go"}
FRAMES = {"try": "frame-try", "compare": "frame-compare", "far": "frame-long", "sweep": "frame-sweep"}
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
    page.wait_for_function(f"async (runs) => JSON.parse(await {LAST} ?? '{{}}').past?.length === runs", arg=runs)


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


def writes_little(page: Page, tab: str) -> None:
    """Runs what a tab asks for, small, to its end."""
    if tab == "try":
        page.locator("#try-target input[type=number]").fill("12")
    elif tab == "compare":
        page.locator("#c-cap input").fill("9")
        page.locator("#c-answers input").fill("3")
        for box in page.locator("[class*=ll-slot-]").get_by_label("Temperature").all()[:3]:
            box.fill("1")
    elif tab == "sweep":
        prompt(page, "s-typed").fill("Why is the sky blue?\nName three colours.")
        page.locator("#s-targets textarea").fill("8")
    else:
        page.get_by_label("My own text").check()
        prompt(page, "l-own").fill("A river runs through the valley, past the mill, to the sea. " * 40)
        page.locator("#l-then input").first.check()
    page.click(RUNS[tab])
    page.wait_for_selector(f"{RUNS[tab]}[disabled]")
    page.wait_for_selector(f"{RUNS[tab]}:not([disabled])")


def seen(page: Page) -> list:
    """What a tab shows of a run: figures, messages, texts, tables, and what its charts draw."""
    if page.locator("#try-charts").is_visible() and not page.locator("#try-charts .ll-chart").first.is_visible():
        page.click("#try-charts > button")
        page.locator("#try-charts .ll-chart").first.wait_for()
    visible = "filter((each) => each.offsetParent !== null)"
    words = ".ll-figures dd, .ll-message, .ll-text, .ll-answers dl, .ll-rows td, .ll-run p"
    texts = page.evaluate(f"(w) => [...document.querySelectorAll(w)].{visible}.map((one) => one.textContent)", words)
    drawn = []
    for chart in page.locator(".ll-chart:visible").all():
        chart.scroll_into_view_if_needed()
        name = chart.get_attribute("data-name")
        data = f"document.querySelector('[data-name={name}]')"
        page.wait_for_function(f"() => {data}.dataset.drawn === {data}.dataset.received")
        plot = page.evaluate(f"() => {data}.querySelector('.ll-plot').data.map(({{ x, y }}) => [x, y])")
        drawn.append([name, chart.get_attribute("data-run"), chart.get_attribute("data-drawn"), plot])
    return [texts, drawn]


@pytest.mark.parametrize("tab", ["try", *(pytest.param(tab, marks=pytest.mark.ui) for tab in RUNS if tab != "try")])
def test_a_tab_shows_its_finished_run_again_without_computing_it(visit, runs, tab):  # noqa: F811
    visitor = visit(query=f"?tab={tab}", opens="compare" if tab == "sweep" else tab)
    page = visitor.page
    writes_little(page, tab)
    page.wait_for_function(f"async () => (await {stored('getAllKeys()')}).includes('{FRAMES[tab]}')")
    before, finished = seen(page), runs.finished
    assert any(before[0]) and before[1]
    page.reload()
    again(page, tab, before)
    page.goto("about:blank")
    page.go_back()
    again(page, tab, before)
    assert runs.finished == finished and not len(runs)


def again(page: Page, tab: str, before: list) -> None:
    """Waits until a page that was opened anew shows what it showed before, and looks at all of it."""
    words = next(words for words in reversed(before[0]) if len(words) > 3)
    shown = "[...document.querySelectorAll('.ll-message, .ll-text, .ll-answers dl, .ll-rows td, .ll-run p')]"
    page.wait_for_function(f"(words) => {shown}.some((one) => one.textContent === words)", arg=words)
    page.wait_for_selector(f"{RUNS[tab]}:not([disabled])")
    assert seen(page) == before


@pytest.mark.ui
def test_a_run_that_is_too_large_is_said_to_be_gone_after_a_reload(browser, lab, monkeypatch):  # noqa: F811
    monkeypatch.setattr(kept, "MAX_BYTES", 1000)
    served = serving(lab, free_port())
    visitor = Visitor(browser, served.local_url, query="?tab=try")
    page = visitor.page
    says = page.locator(".ll-unkept span:visible")
    try:
        page.wait_for_selector("#text-try-steered .ll-response[data-tokens]")
        opened = page.inner_text("#text-try-steered .ll-text")
        writes_little(page, "try")
        expect(says).to_have_text("This run is too large to be kept: after a reload it is gone.")
        assert page.inner_text("#text-try-steered .ll-text") != opened
        page.click("[data-tab-id=lab]")
        visitor.number("cap", 5)
        visitor.generate()
        expect(says).to_have_count(1)
        page.reload()
        page.click("[data-tab-id=try]")
        expect(page.locator("#text-try-steered .ll-text")).to_have_text(opened)
        expect(says).to_have_count(0)
        visitor.close()
    finally:
        served.close()


@pytest.mark.ui
def test_where_the_browser_is_full_the_oldest_run_gives_way(visit, runs):  # noqa: F811
    visitor = visit(query="?tab=sweep", opens="compare")
    page = visitor.page
    for tab in ("sweep", "try"):
        page.click(f"[data-tab-id={'compare' if tab == 'sweep' else tab}]")
        writes_little(page, tab)
        page.wait_for_function(f"async () => (await {stored('getAllKeys()')}).includes('{FRAMES[tab]}')")
    page.evaluate(
        """() => { const put = IDBObjectStore.prototype.put; let room = false;
        const gone = IDBObjectStore.prototype.delete;
        IDBObjectStore.prototype.delete = function (name) {
          room ||= name === "frame-sweep";
          return gone.call(this, name);
        };
        IDBObjectStore.prototype.put = function (...all) {
          if (!room) throw new DOMException("full", "QuotaExceededError");
          return put.apply(this, all);
        }; }"""
    )
    page.click("[data-tab-id=far]")
    writes_little(page, "far")
    page.wait_for_function(f"async () => (await {stored('getAllKeys()')}).includes('frame-long')")
    found = page.evaluate(f"async () => await {stored('getAllKeys()')}")
    assert [name for name in found if name.startswith("frame-")] == ["frame-long", "frame-try"]
    expect(page.locator(".ll-unkept span:visible")).to_have_count(0)


def test_a_link_to_a_form_shows_no_run_of_another(visit, address):  # noqa: F811
    visitor = visit(query="?tab=sweep", opens="compare")
    page = visitor.page
    writes_little(page, "sweep")
    page.wait_for_function(f"async () => (await {stored('getAllKeys()')}).includes('frame-sweep')")
    page.click("#s-link")
    expect(page.locator("#s-link")).to_have_text("Copied")
    linked = visitor.context.new_page()
    linked.goto(page.url)
    expect(prompt(linked, "s-typed")).to_have_value("Why is the sky blue?\nName three colours.")
    linked.wait_for_timeout(1000)
    expect(linked.locator("#table-sweep-table td")).to_have_count(0)


def test_the_lesson_that_is_open_and_what_was_predicted_are_there_after_a_reload(visit, held):  # noqa: F811
    visitor = visit(query="?tab=lessons")
    page, panel = visitor.page, visitor.page.locator(".ll-lesson")
    page.click("[data-lesson=ask_for_sixty]")
    # A press waits while the page opens.
    expect(panel.locator("h2")).to_have_text("Ask for sixty")
    page.reload()
    expect(panel.locator("h2")).to_have_text("Ask for sixty")
    expect(panel.locator("[data-step=run]")).to_be_hidden()
    panel.locator("input[type=range]").fill("77")
    panel.locator("[data-step=predict] button").click()
    held.upto(5)
    panel.get_by_role("button", name="Run it").click()
    shows(page, WRITES["try"][1], 5)
    expect(panel.locator("[data-step=look]")).to_be_visible()
    # Amid its run: that is taken up, and what was predicted is judged by it.
    page.reload()
    expect(panel.locator("[data-step=look]")).to_be_visible()
    expect(panel.locator("[data-step=check]")).to_be_hidden()
    expect(panel.locator("input[type=range]")).to_have_value("77")
    expect(page.locator("#try-go")).to_be_disabled()
    held.free()
    expect(panel.locator("[data-step=check]")).to_be_visible()
    verdict = panel.locator(".ll-verdict").inner_text()
    assert verdict.startswith("You said 77; it is ") and "away" in verdict
    panel.get_by_role("button", name="Show the answer").click()
    page.reload()
    expect(panel.locator(".ll-answer")).to_be_visible()
    expect(panel.locator(".ll-verdict")).to_have_text(verdict)
    expect(page.locator("#figures-try-asked [data-field=written]")).to_contain_text(verdict.split()[5])
    panel.locator("[data-act=close]").click()
    expect(panel).to_be_hidden()
    page.reload()
    page.wait_for_selector("#try-go:not([disabled])")
    expect(panel).to_be_hidden()


def test_a_lesson_with_choices_is_open_in_its_own_tab_of_the_browser_alone(visit):  # noqa: F811
    visitor = visit(query="?tab=lessons")
    page, panel = visitor.page, visitor.page.locator(".ll-lesson")
    page.click("[data-lesson=why_ends_are_hard]")
    panel.locator(".ll-option input").nth(1).check()
    page.reload()
    expect(panel.locator(".ll-option input").nth(1)).to_be_checked()
    expect(panel.locator("[data-step=run]")).to_be_visible()
    stranger = visitor.context.new_page()
    stranger.goto(page.url.split("&lesson=")[0])
    stranger.wait_for_selector("[data-lesson=why_ends_are_hard]")
    expect(stranger.locator(".ll-lesson")).to_be_hidden()
    page.evaluate("sessionStorage.setItem('length-lab-lesson', '{\"name\": \"none\"')")
    page.goto(page.url.split("&lesson=")[0])
    page.wait_for_selector("[data-lesson=why_ends_are_hard]")
    expect(panel).to_be_hidden()


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


def test_a_run_goes_on_over_a_reload_however_late_the_one_before_comes(visit, held, monkeypatch):  # noqa: F811
    visitor = visit()
    page = visitor.page
    visitor.number("cap", 5)
    visitor.generate()
    visitor.ends()
    remembers(page, 1)
    held.upto(6)
    visitor.number("cap", 50)
    visitor.generate()
    visitor.shows(6)
    unpacked = kept.unpacked
    monkeypatch.setattr(generate, "unpacked", lambda text: time.sleep(3) or unpacked(text))
    page.reload()
    visitor.shows(6)
    page.wait_for_timeout(4000)
    held.upto(12)
    visitor.shows(12)
    page.click("#stop")


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


def test_a_sweep_goes_on_after_its_connection_was_cut(browser, demo, address, held, runs):  # noqa: F811
    with cable(demo.server_port) as between:
        visitor = Visitor(browser, between.address, query="?tab=sweep", opens="compare")
        page = visitor.page
        held.upto(8)
        prompt(page, "s-typed").fill("Why is the sky blue?")
        page.locator("#s-targets textarea").fill("4, 20")
        page.locator("#s-methods").get_by_label("In the prompt", exact=True).uncheck()
        page.click("#s-go")
        rows = page.locator("#table-sweep-table tbody tr")
        expect(rows).to_have_count(1)
        first, written = rows.first.inner_text(), {*runs._runs}
        between.cut()
        expect(page.locator(".ll-lost")).to_be_visible()
        assert rows.all_inner_texts() == [first]
        between.mend()
        expect(page.locator(".ll-lost")).to_be_hidden()
        assert rows.first.inner_text() == first and {*runs._runs} == written
        held.free()
        page.wait_for_selector("#s-go:not([disabled])")
        expect(rows).to_have_count(2)
        assert rows.first.inner_text() == first
        expect(page.locator("#figures-sweep .ll-message")).to_have_text("All answers are in the table.")
        visitor.wrongs = [wrong for wrong in visitor.wrongs if "net::ERR_" not in wrong]
        visitor.close()


@pytest.mark.ui
def test_a_reading_goes_on_after_its_connection_was_cut(browser, demo, address, held, runs, monkeypatch):  # noqa: F811
    read, going = plans.read, threading.Event()

    def held_read(*given, **more):
        for chunk in read(*given, **more):
            yield chunk
            going.wait()

    monkeypatch.setattr(plans, "read", held_read)
    with cable(demo.server_port) as between:
        visitor = Visitor(browser, between.address, query="?tab=far")
        page = visitor.page
        page.locator("#l-then input").first.check()
        page.click("#l-go")
        read_so_far = page.locator("#figures-long [data-field=read]")
        page.wait_for_function("/[1-9]/.test(document.querySelector('#figures-long [data-field=read]').textContent)")
        before, begun = read_so_far.inner_text(), {*runs._runs}
        between.cut()
        expect(page.locator(".ll-lost")).to_be_visible()
        assert read_so_far.inner_text() == before
        between.mend()
        expect(page.locator(".ll-lost")).to_be_hidden()
        assert {*runs._runs} == begun
        going.set()
        page.wait_for_selector("#l-go:not([disabled])")
        assert page.inner_text("#figures-long .ll-message").startswith("Over 4,096 tokens: Plain perplexity")
        visitor.until(lambda: not len(runs))
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


def test_what_a_run_had_written_that_its_server_left_is_there_after_a_reload(browser, lab):  # noqa: F811
    first = serving(lab, free_port())
    visitor = Visitor(browser, first.local_url, query="?tab=try")
    page = visitor.page
    lab.upto(5)
    page.click("#try-go")
    shows(page, WRITES["try"][1], 5)
    texts = page.locator(".ll-lane .ll-text").all_inner_texts()
    first.close()
    expect(page.locator(".ll-lost")).to_be_visible()
    lab.free()
    second = serving(lab, first.server_port)
    try:
        page.wait_for_selector("#try-go:not([disabled])")
        says = page.locator("#figures-try-steered .ll-message")
        expect(says).to_contain_text("did not answer")
        page.wait_for_function(f"async () => (await {stored('getAllKeys()')}).includes('frame-try')")
        page.reload()
        shows(page, WRITES["try"][1], 5)
        expect(says).to_contain_text("did not answer")
        assert page.locator(".ll-lane .ll-text").all_inner_texts() == texts
        expect(page.locator(".ll-try [data-state=busy]")).to_have_count(0)
        expect(page.locator(".ll-lane [data-field=end]")).to_have_text(["–", "–"])
        expect(page.locator(".ll-lane [data-field=written]")).to_have_text(["5 tokens", "5 tokens"])
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
    again, past, tree = kept.unpacked(kept.packed(trace, PAST, {}))
    assert again is not None and again.to_json() == trace.to_json() and past == PAST and tree == {}
    assert kept.unpacked(kept.packed(None, PAST, {})) == (None, PAST, {})


def test_a_run_that_is_too_large_is_left_out(monkeypatch):
    assert not json.loads(kept.packed(Trace.load(PRESETS[0].file), PAST, {}))["large"]
    monkeypatch.setattr(kept, "MAX_BYTES", 1000)
    text = kept.packed(Trace.load(PRESETS[0].file), PAST, {})
    assert kept.unpacked(text) == (None, PAST, {}) and json.loads(text)["large"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", "{}", '{"trace": 5, "past": []}', '{"trace": "!", "past": []}',
             '{"trace": "aGFsbG8=", "past": []}', '{"trace": "", "past": [{"label": 1}]}']
)  # fmt: skip
def test_a_run_that_is_none_is_left_out(text):
    assert kept.unpacked(text) == (None, [], {})


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
