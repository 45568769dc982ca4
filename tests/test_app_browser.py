"""The page in a real browser, over the embedded model: what a visitor does and sees."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlparse

import pytest
from held import MISSING, Held
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from app import __main__ as app
from app import page as lab_page
from app import presets
from app.runs import Runs
from app.shares import Shares
from backend.methods import methods
from backend.models.adapters import available
from backend.record.trace import Trace
from backend.settings import RunSettings

CHARTS = ("length", "entropy", "logits", "states")
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script> Repeat that."
LONG = 300_000
expect.set_options(timeout=LONG)
# Needs no value: what methods ask of a run's settings is another one's target.
ANY = RunSettings(prompt="any")
# Every chart of the tab that is shown, and two pictures since.
DRAWN = """async () => {
  const plots = [...document.querySelectorAll(".ll-plot")].filter((plot) => plot.offsetParent);
  for (const _ of [1, 2]) await new Promise(requestAnimationFrame);
  return plots.every((plot) => plot.dataset.created);
}"""
PLOT = "document.querySelector(`#chart-${n} .ll-plot`)"


@pytest.fixture(scope="module")
def runs() -> Runs:
    return Runs()


@pytest.fixture(scope="module")
def lab(held_lab) -> Held:
    return held_lab


@pytest.fixture
def held(lab) -> Iterator[Held]:
    """The lab behind the page; what a test began ends with it, or the next would wait until its page is given up."""
    yield lab
    for control in lab.controls:
        control.stop()
    lab.free()


@pytest.fixture(scope="module")
def demo(lab, runs) -> lab_page.Page:
    return lab_page.build(lab, available, runs)


@pytest.fixture(scope="module")
def address(demo) -> Iterator[str]:
    yield app.serve(demo)
    demo.close()


def generating(query: str = "") -> str:
    """A query that opens the tab of all settings where it names no other."""
    return query if "tab=" in query else f"{query}{'&' if query else '?'}tab=lab"


class Visitor:
    """A browser context with one page, and everything it must not do: log errors, open dialogs, leave this machine.

    late: the page's own script comes after what the page shows without it. clock: time stands still and goes on where
    the test says (page.clock). opens: the tab to wait for, where the query names another.
    """

    def __init__(
        self,
        browser: Browser,
        address: str,
        query: str = "",
        late: bool = False,
        clock: bool = False,
        opens: str = "",
        **options,
    ) -> None:
        self.context: BrowserContext = browser.new_context(
            **(
                {"viewport": {"width": 1440, "height": 900}, "permissions": ["clipboard-read", "clipboard-write"]}
                | options
            )
        )
        self.context.set_default_timeout(LONG)
        self.page: Page = self.context.new_page()
        self.wrongs: list[str] = []
        self.page.on("console", lambda message: message.type == "error" and self.wrongs.append(message.text))
        self.page.on("pageerror", lambda error: self.wrongs.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.wrongs.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.context.on("request", lambda request: self._leaves(request.url) and self.wrongs.append(request.url))
        scripts: list[Route] = []
        if late:
            self.page.route("**/lab/charts.js", lambda route: scripts.append(route))
        if clock:
            self.page.clock.install()
        assert self.page.goto(address + generating(query), wait_until="load").ok
        tab = opens or parse_qs(generating(query).lstrip("?"))["tab"][0]
        if tab != "lab":
            self.page.wait_for_selector(f"[role=tab][data-tab-id={tab}][aria-selected=true]")
            return
        if late:
            # Without the script the page stands at its first tab.
            self.page.wait_for_selector("#try-go")
            for script in scripts:
                script.continue_()
            self.page.unroute("**/lab/charts.js")
        self.page.wait_for_selector("#model-state [data-state=good]")
        self.page.wait_for_selector("#chart-mask .main-svg")
        self.page.wait_for_selector("#text-run .ll-response[data-tokens]")

    @staticmethod
    def _leaves(url: str) -> bool:
        return urlparse(url).scheme in ("http", "https", "ws", "wss") and urlparse(url).hostname != "127.0.0.1"

    def chart(self, name: str) -> dict[str, str]:
        return self.page.evaluate("(n) => ({...document.querySelector(`#chart-${n} .ll-chart`).dataset})", name)

    def settles(self, name: str) -> None:
        """Waits until a chart has drawn the last frame it received."""
        self.page.locator(f"#chart-{name} .ll-plot").scroll_into_view_if_needed()
        data = "document.querySelector(`#chart-${n} .ll-chart`).dataset"
        self.page.wait_for_function(f"(n) => {data}.drawn === {data}.received", arg=name)

    def ranges(self, name: str) -> list[list[float]]:
        """What a chart shows across and up."""
        axes = "[layout.xaxis.range, layout.yaxis.range]"
        return self.page.evaluate(f"(n) => {{ const {{layout}} = {PLOT}; return {axes}; }}", name)

    def zooms(self, name: str, run: str) -> list[list[float]]:
        """Draws a box in a chart with the mouse, once it shows that run; returns the ranges that it then shows."""
        area = self.page.locator(f"#chart-{name} .nsewdrag").first
        area.scroll_into_view_if_needed()
        self.page.wait_for_function(f"([n, run]) => {PLOT}.layout.uirevision === run", arg=[name, run])
        self.page.evaluate(f"(n) => {PLOT}.once('plotly_relayout', () => {PLOT}.dataset.zoomed = 1)", name)
        box = area.bounding_box()
        corners = [(box["x"] + part * box["width"], box["y"] + part * box["height"]) for part in (0.25, 0.75)]
        self.page.mouse.move(*corners[0])
        self.page.mouse.down()
        self.page.mouse.move(*corners[1], steps=3)
        self.page.mouse.up()
        self.page.wait_for_selector(f"#chart-{name} [data-zoomed]")
        return self.ranges(name)

    def field(self, name: str) -> str:
        return self.page.inner_text(f"#figures-run [data-field={name}]")

    @property
    def message(self) -> str:
        return self.page.inner_text("#figures-run .ll-message")

    @property
    def tokens(self) -> int:
        return int(self.page.get_attribute("#text-run .ll-response", "data-tokens") or 0)

    def shows(self, tokens: int) -> None:
        """Waits until so many tokens are shown."""
        self.page.wait_for_selector(f'#text-run .ll-response[data-tokens="{tokens}"]')

    def until(self, true: Callable[[], bool]) -> None:
        """Waits until something is true on the server."""
        while not true():
            self.page.wait_for_timeout(20)

    def number(self, name: str, value: float) -> None:
        box = self.page.locator(f"#{name} input[type=number]")
        box.fill(str(value))
        box.press("Tab")

    def generate(self) -> None:
        """Presses the button and waits for the run's own first tokens."""
        before = self.chart("length").get("run")
        self.page.click("#go")
        self.page.wait_for_function(
            "(before) => document.querySelector('#chart-length .ll-chart').dataset.run !== before", arg=before
        )

    def ends(self) -> str:
        self.page.wait_for_selector("#go:not([disabled])")
        self.page.wait_for_selector("#figures-run [data-state=good]")
        return self.message

    def close(self) -> None:
        self.context.close()
        assert self.wrongs == []


@pytest.fixture
def visit(browser, address):
    visitors: list[Visitor] = []

    def open_page(**options) -> Visitor:
        query = options.pop("query", "")
        visitors.append(Visitor(browser, address, query, **options))
        return visitors[-1]

    yield open_page
    for visitor in visitors:
        visitor.close()


def link(**settings) -> str:
    return "?" + urlencode(settings)


def test_a_generation_draws_each_chart_once_keeps_the_zoom_and_ends_on_its_last_frame(visit, held):
    visitor = visit(query=link(prompt="Write a long story about the sea.", max_new_tokens=400))
    held.upto(40)
    visitor.generate()
    visitor.shows(40)
    run = visitor.chart("length")["run"]
    zoomed = {name: (visitor.zooms(name, run), int(visitor.chart(name)["drawn"])) for name in CHARTS}
    held.upto(200)
    visitor.shows(200)
    held.free()
    assert "after 400 tokens" in visitor.ends()
    assert visitor.tokens == 400
    for name in CHARTS:
        visitor.settles(name)
        chart = visitor.chart(name)
        assert chart["created"] == "1", name
        assert chart["received"] == visitor.chart("length")["received"], f"{name} missed the last frame"
        ranges, drawn = zoomed[name]
        assert int(chart["drawn"]) > drawn, f"{name} was not drawn again"
        assert visitor.ranges(name) == ranges, f"{name} lost its zoom"
    last = visitor.page.evaluate("document.querySelector('#chart-length .ll-plot').data[1].x.at(-1)")
    assert last == 400
    assert int(visitor.chart("length")["received"]) >= 3


@pytest.mark.ui
def test_lines_move_between_the_whole_drawings_of_a_run(visit, held):
    visitor = visit(query=link(prompt="Write a long story about the sea.", max_new_tokens=300), clock=True)
    page = visitor.page
    held.upto(20)
    visitor.generate()
    visitor.shows(20)
    visitor.settles("entropy")
    # Of several charts each picture draws one whole: with this one alone it is known when.
    page.add_style_tag(content=".ll-chart:not([data-name=entropy]) { display: none !important; }")
    page.clock.pause_at(page.evaluate("Date.now() + 10_000"))
    page.evaluate(
        """() => { const react = Plotly.react; window.whole = 0;
        Plotly.react = (...all) => { window.whole += 1; return react(...all); }; }"""
    )

    def after(tokens: int, milliseconds: int) -> tuple[bool, int]:
        """Whether the line was changed, and how often the chart was drawn whole, by more tokens and in that time."""
        path = "[document.querySelector('#chart-entropy .js-line').getAttribute('d'), window.whole]"
        line, whole = page.evaluate(path)
        held.upto(shown := visitor.tokens + tokens)
        visitor.shows(shown)
        page.clock.run_for(milliseconds)
        visitor.settles("entropy")
        now = page.evaluate(path)
        return now[0] != line, now[1] - whole

    after(20, 60_000)
    # A picture every 0.8 s, of which a chart is drawn whole in each that is 1.5 s after the last such.
    assert [after(20, 800) for _ in range(4)] == [(True, 1), (True, 0)] * 2
    held.free()
    page.clock.resume()
    visitor.ends()
    visitor.settles("entropy")
    last = "((plot) => Math.max(...plot.querySelector('.js-line').getAttribute('d').match(/[\\d.]+(?=,)/g)))"
    width = "((plot) => plot._fullLayout.xaxis._length)"
    plot = "document.querySelector('#chart-entropy .ll-plot')"
    assert page.evaluate(f"{last}({plot}) / {width}({plot})") == pytest.approx(1, abs=0.02)


@pytest.mark.ui
def test_a_page_at_rest_asks_for_no_pictures(visit):
    visitor = visit()
    # Requests are numbered: of thirty pictures, each asked for in the one before, those of others are counted.
    visitor.page.wait_for_function(
        """() => new Promise((resolve) => {
          const first = requestAnimationFrame(() => 0);
          const next = (left) => {
            const number = requestAnimationFrame(() => (left ? next(left - 1) : resolve(number - first === 30)));
          };
          next(29);
        })"""
    )


@pytest.mark.ui
def test_a_token_tells_its_numbers_to_the_mouse_and_to_the_keyboard(visit):
    visitor = visit()
    visitor.page.locator("#text-run .tok").nth(3).hover()
    tip = visitor.page.locator("#text-run .ll-tip")
    expect(tip).to_be_visible()
    expect(tip).to_contain_text("probability")
    expect(tip).to_contain_text("nats")
    visitor.page.locator("#text-run .ll-text").focus()
    first = tip.inner_text()
    visitor.page.keyboard.press("ArrowRight")
    assert tip.inner_text() != first


def test_stop_ends_the_run_and_keeps_what_was_written(visit, held, runs):
    visitor = visit(query=link(prompt="Write a long story about the sea.", max_new_tokens=2000))
    held.upto(30)
    visitor.generate()
    visitor.shows(30)
    visitor.page.wait_for_selector("#stop:not([disabled])")
    visitor.page.keyboard.press("Escape")
    assert "Stopped after 30 tokens" in visitor.ends()
    assert visitor.tokens == 30 and visitor.field("produced") == "30 tokens"
    visitor.until(lambda: not len(runs))


@pytest.mark.ui
def test_the_target_moves_while_the_model_writes(visit, held):
    visitor = visit(
        query=link(prompt="Write a long story about the sea.", method="exp_decay", target=900, max_new_tokens=500)
    )
    held.upto(30)
    visitor.generate()
    visitor.shows(30)
    assert visitor.field("target") == "900"
    visitor.number("target", 25)
    visitor.until(lambda: held.control.goal(ANY) == 25)
    held.free()
    visitor.ends()
    assert visitor.field("target") == "25"
    assert visitor.field("error").startswith("+")


def test_a_trained_method_ends_at_its_target_and_goes_with_it_when_it_moves(visit, held):
    visitor = visit(query=link(prompt="Why is the sky blue?", method="ldpe", target=30, max_new_tokens=1000))
    visitor.generate()
    assert visitor.ends().startswith("Ended ") and abs(visitor.tokens - 30) <= 15
    visitor.number("target", 900)
    held.upto(20)
    visitor.generate()
    visitor.shows(20)
    assert visitor.field("target") == "900"
    visitor.number("target", 60)
    visitor.until(lambda: held.control.goal(ANY) == 60)
    held.free()
    assert visitor.ends().startswith("Ended ")
    assert visitor.field("target") == "60" and abs(visitor.tokens - 60) <= 25


@pytest.mark.ui
def test_a_method_for_long_texts_sets_its_positions_and_a_link_may_read_it_plainly(visit):
    visitor = visit(query=link(prompt="Write an essay on tides.", method="sft_dynamic", max_new_tokens=40))
    page = visitor.page
    page.wait_for_selector("#choice-method input[value=sft_dynamic]:checked", state="attached")
    assert page.is_checked("#choice-pic input[value=none]")
    visitor.generate()
    visitor.ends()
    assert visitor.tokens == 40 and page.inner_text("[data-field=target]") == "none"
    page.locator("#choice-method label", has=page.locator("input[value=sft_ntk]")).click()
    page.wait_for_selector("#choice-pic input[value=ntk]:checked", state="attached")
    page.wait_for_function("document.querySelector('#ratio input[type=number]').value === '16'")
    expect(page.locator("#cap input[type=number]")).to_have_value("40")
    page.locator("#choice-method label", has=page.locator("input[value=none]")).click()
    page.wait_for_selector("#choice-pic input[value=none]:checked", state="attached")
    page.wait_for_function("document.querySelector('#ratio input[type=number]').value === '1'")
    page.locator("#choice-pic label", has=page.locator("input[value=naive]")).click()
    page.locator("#choice-method label", has=page.locator("input[value=ldpe]")).click()
    page.wait_for_selector("#target input[type=number]:enabled")
    assert page.is_checked("#choice-pic input[value=naive]")


@pytest.mark.ui
def test_wrapping_up_sets_a_near_target(visit, held):
    visitor = visit(
        query=link(prompt="Write a long story about the sea.", method="exp_decay", target=900, max_new_tokens=60)
    )
    held.upto(20)
    visitor.generate()
    visitor.shows(20)
    visitor.page.click("#wrap")
    expect(visitor.page.locator("#target input[type=number]")).to_have_value("35")
    held.free()
    visitor.ends()
    assert visitor.field("target") == "35"


@pytest.mark.ui
def test_positions_are_the_runs_while_it_writes_and_then_the_forms(visit, held):
    prompt = "Write a long story about the sea."
    endless = {"method": "exp_decay", "target": 900, "max_new_tokens": 500}
    visitor = visit(query=link(prompt=prompt, pic="dynamic", ratio=4, recent=30, **endless))
    words = visitor.page.locator("#chart-positions .ll-words")
    words.scroll_into_view_if_needed()
    expect(words).to_contain_text(re.compile(r"compressed by 4, .*the last of 5"))
    held.upto(60)
    visitor.generate()
    visitor.shows(60)
    expect(words).to_contain_text(re.compile(r"compressed by 4, .*the last of [12]?\d\d tokens.*the first token"))
    visitor.number("ratio", 8)
    visitor.page.wait_for_selector("#chart-positions [data-held*='compressed by 8']")
    visitor.settles("positions")
    assert "compressed by 4" in words.inner_text()
    visitor.page.click("#stop")
    visitor.ends()
    expect(words).to_contain_text(re.compile(r"compressed by 8, .*the last of 5"))


def test_a_link_is_followed_before_the_script_is_there(visit):
    visitor = visit(query=link(prompt="Hello", pic="dynamic", ratio=4, recent=30), late=True)
    words = visitor.page.locator("#chart-positions .ll-words")
    words.scroll_into_view_if_needed()
    expect(words).to_contain_text("compressed by 4")


def test_a_link_restores_settings_and_says_what_it_left_out(visit):
    query = link(
        prompt="Hello & goodbye?", pic="dynamic", ratio=4, window=64, recent=32, ratios=1, temperature="hot", seed=7
    )
    visitor = visit(query=query)
    expect(visitor.page.locator(".toast-body")).to_contain_text("temperature was left out")
    expect(visitor.page.locator("#prompt textarea")).to_have_value("Hello & goodbye?")
    expect(visitor.page.locator("#ratio input[type=number]")).to_have_value("4")
    expect(visitor.page.locator("#window input[type=number]")).to_have_value("64")
    expect(visitor.page.locator("#windowed input")).to_be_checked()
    expect(visitor.page.locator("#choice-pic input[value=dynamic]")).to_be_checked()
    words = visitor.page.locator("#chart-positions .ll-words")
    words.scroll_into_view_if_needed()
    expect(words).to_contain_text("compressed by 4")
    visitor.page.click("#share")
    visitor.page.wait_for_function("!location.search.includes('ratios')")
    shared = parse_qs(urlparse(visitor.page.url).query)
    assert {name: shared[name] for name in ("prompt", "ratio", "window", "seed")} == {
        "prompt": ["Hello & goodbye?"], "ratio": ["4"], "window": ["64"], "seed": ["7"],
    }  # fmt: skip
    assert "temperature" not in shared and "target" not in shared


def test_markup_stays_text(visit):
    visitor = visit(query=link(prompt=HOSTILE, max_new_tokens=40))
    visitor.generate()
    visitor.ends()
    assert visitor.page.locator("#text-run .ll-text :is(img, script, b)").count() == 0
    visitor.page.evaluate(
        """() => { const line = JSON.stringify(["<img src=x onerror=alert(3)>", 0.5, 1, null]);
        const tip = document.querySelector('#text-run .ll-tip');
        const span = document.createElement('span'); span.className = 'tok'; span.textContent = JSON.parse(line)[0];
        document.querySelector('#text-run .ll-text').append(span); }"""
    )
    visitor.page.locator("#text-run .tok").last.hover()
    expect(visitor.page.locator("#text-run .ll-tip")).to_contain_text("<img")
    assert visitor.page.locator("#text-run .ll-tip img").count() == 0


@pytest.mark.ui
def test_markup_in_a_link_or_a_file_is_told_as_text(visit, tmp_path):
    markup = "<img src=http://127.0.0.2/x.png><b>bold</b>"
    visitor = visit(query=link(prompt="Hello?", model=markup))
    toast = visitor.page.locator(".toast-body")
    expect(toast).to_contain_text(f"The link's model was left out: '{markup}' is not on this lab's list")
    expect(visitor.page.locator("#prompt textarea")).to_have_value("Hello?")
    assert visitor.page.input_value("#model input") == "embedded"
    trace = json.loads(Trace(RunSettings(prompt="x")).to_json())
    damages = (("model", "The file's model was left out"), (markup, f"The trace is damaged: settings.{markup}"))
    for number, (changed, words) in enumerate(damages):
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps(trace | {"settings": trace["settings"] | {changed: markup}}))
        visitor.page.set_input_files("#load input[type=file], input[type=file]", file)
        expect(toast.filter(has_text=words)).to_be_visible()
        expect(visitor.page.locator("#prompt textarea")).to_have_value("x")
    assert visitor.page.locator("[data-testid=toast-text] :is(img, b)").count() == 0
    assert visitor.page.input_value("#model input") == "embedded"


def test_a_number_out_of_range_is_named_and_the_run_can_be_asked_for_again(visit):
    page = visit(query=link(prompt="Why?", method="exp_decay", max_new_tokens=5)).page
    expect(page.locator("#target input[type=number]")).to_be_enabled()
    page.fill("#target input[type=number]", "0")
    page.press("#target input[type=number]", "Control+Enter")
    expect(page.locator("#figures-run .ll-message")).to_contain_text("Target: give a number from 1 to 1,000")
    expect(page.locator("#go")).to_be_enabled()
    page.get_by_role("tab", name="Compare").click()
    page.fill("#c-cap input", "5000")
    page.click("#c-go")
    expect(page.locator("#figures-compare .ll-message")).to_contain_text(
        "Cap on new tokens: give a number from 1 to 4,096 in place of 5,000"
    )
    expect(page.locator("#c-go")).to_be_enabled()
    page.fill("#c-cap input", "2")
    page.click("#c-go")
    expect(page.locator("#figures-compare .ll-message")).to_contain_text(re.compile("^A, .*B, .*C, .*cut at the max"))


@pytest.mark.ui
@pytest.mark.parametrize(("limit", "most", "code"), [("max_size", 0, "503"), ("shares", Shares(visitor_runs=0), "429")])
def test_a_full_queue_is_said_and_what_was_written_stays(visit, demo, monkeypatch, limit, most, code):
    visitor = visit()
    before = visitor.tokens
    with monkeypatch.context() as patch:
        patch.setattr(demo._queue, limit, most)
        visitor.page.click("#go")
        expect(visitor.page.locator("#figures-run .ll-message")).to_contain_text("Too many runs are waiting")
        expect(visitor.page.locator("#go")).to_be_enabled()
    assert visitor.tokens == before > 0
    assert all(code in wrong for wrong in visitor.wrongs)
    visitor.wrongs.clear()


@pytest.mark.ui
def test_an_empty_prompt_is_answered_with_a_sentence_and_nothing_is_lost(visit):
    visitor = visit()
    before = visitor.tokens
    visitor.page.fill("#prompt textarea", "   ")
    visitor.page.click("#go")
    expect(visitor.page.locator("#figures-run .ll-message")).to_contain_text("The prompt is empty")
    expect(visitor.page.locator("#go")).to_be_enabled()
    assert visitor.tokens == before > 0


def test_a_model_that_cannot_be_loaded_is_explained_and_another_may_be_chosen(visit):
    visitor = visit()
    visitor.page.click("#reset")
    visitor.page.get_by_text("Advanced", exact=True).click()
    for name, state in ((MISSING, "bad"), ("embedded", "good")):
        visitor.page.locator("#model input").click()
        visitor.page.get_by_role("option", name=name).click()
        visitor.page.wait_for_selector(f"#model-state [data-state={state}]")
        expect(visitor.page.locator("#again")).to_be_visible(visible=state == "bad")
    visitor.page.locator("#model input").click()
    visitor.page.get_by_role("option", name=MISSING).click()
    visitor.page.wait_for_selector("#model-state [data-state=bad]")
    expect(visitor.page.locator("#model-state")).to_contain_text("There is no folder")
    visitor.page.click("#go")
    expect(visitor.page.locator("#figures-run .ll-message")).to_contain_text("There is no folder")


@pytest.mark.ui
def test_a_link_that_names_a_model_tells_of_that_model(visit, address):
    page = visit().page
    page.goto(address + link(prompt="Why is the sky blue?", model=MISSING))
    expect(page.locator("#model-state")).to_contain_text("There is no folder")
    page.locator("#reset").click()
    expect(page.locator("#model-state")).to_contain_text("30 layers of 9 heads")


@pytest.mark.ui
@pytest.mark.parametrize(("tab", "prefix", "figures"), [("Compare", "c", "compare"), ("Read far", "l", "long")])
def test_a_tab_has_a_model_of_its_own(visit, tab, prefix, figures):
    visitor = visit()
    page = visitor.page
    page.get_by_role("tab", name=tab).click()
    note = page.locator(f"#{prefix}-model-state")
    expect(note).to_contain_text("30 layers of 9 heads")
    page.locator(f"#choice-{prefix}-precision label", has=page.locator("input[value=fp32]")).click()
    expect(note).to_contain_text("fp32 on")
    page.locator(f"#{prefix}-model input").click()
    page.get_by_role("option", name=MISSING).click()
    expect(note).to_contain_text("There is no folder")
    expect(page.locator(f"#{prefix}-again")).to_be_visible()
    page.click(f"#{prefix}-go")
    expect(page.locator(f"#figures-{figures} .ll-message")).to_contain_text("There is no folder")
    page.get_by_role("tab", name="Lab").click()
    expect(page.locator("#model-state")).to_contain_text("bf16 on")


@pytest.mark.ui
def test_a_comparison_offers_the_methods_of_its_model(visit):
    page = visit().page
    page.get_by_role("tab", name="Compare").click()
    method = page.get_by_label("Method").locator("visible=true").first
    method.click()
    page.get_by_role("option", name="PIC-SFT NTK").click()
    ratio = page.get_by_label("Ratio").locator("visible=true").first
    expect(ratio).to_have_value("16")
    page.locator("#c-model input").click()
    page.get_by_role("option", name=MISSING).click()
    expect(method).to_have_value("Off")
    expect(ratio).to_have_value("1")
    method.click()
    expect(page.get_by_role("option", name="Push the end")).to_be_visible()
    expect(page.get_by_role("option", name="LDPE")).to_have_count(0)


def test_two_visitors_at_once_get_their_own_runs(visit):
    one = visit(query=link(prompt="Why is the sky blue?", max_new_tokens=40))
    two = visit(query=link(prompt="Count from one to twenty.", window=16, sinks=4, max_new_tokens=20))
    # Processors round differently: some end the second answer after 26 tokens.
    one.generate()
    two.page.click("#go")
    assert "after 40 tokens" in one.ends()
    two.page.wait_for_function("document.querySelector('#text-run .ll-response').dataset.tokens === '20'")
    assert "after 20 tokens" in two.ends()
    assert one.tokens == 40
    two.settles("entropy")
    attended = two.page.evaluate("Math.exp(document.querySelector('#chart-entropy .ll-plot').data[0].y.at(-1))")
    assert attended == pytest.approx(20, abs=0.1)


def test_closing_the_tab_stops_the_compute(browser, address, demo, runs, held, monkeypatch):
    monkeypatch.setattr(demo._queue, "shares", Shares(lost_seconds=1, closed_seconds=1))
    visitor = Visitor(browser, address, link(prompt="Write a long story about the sea.", max_new_tokens=4000))
    held.upto(10)
    others = threading.enumerate()
    visitor.generate()
    assert len(runs) == 1 and not held.control.stopped
    writing = [thread for thread in threading.enumerate() if thread.name == "run" and thread not in others]
    visitor.close()
    for thread in writing:
        thread.join()
    assert writing and held.control.stopped
    while len(runs):
        time.sleep(0.05)


@pytest.mark.ui
def test_stopping_while_waiting_leaves_the_queue(visit, held):
    one = visit(query=link(prompt="Write a long story about the sea.", max_new_tokens=3000))
    two = visit(query=link(prompt="Why?", max_new_tokens=30))
    held.upto(10)
    one.generate()
    two.page.click("#go")
    expect(two.page.locator("#queue")).to_contain_text("queue", ignore_case=True)
    two.page.click("#stop")
    expect(two.page.locator("#go")).to_be_enabled()
    expect(two.page.locator("#figures-run .ll-message")).to_have_text("Stopped before it began.")
    one.page.click("#stop")
    assert "Stopped" in one.ends()
    three = visit(query=link(prompt="Who?", max_new_tokens=4))
    three.generate()
    assert "after 4 tokens" in three.ends()
    expect(two.page.locator("#figures-run .ll-message")).to_have_text("Stopped before it began.")


GROUPS = """() => [...document.querySelectorAll(".ll-side .ll-panel")].map((panel) => [
  panel.querySelector("h2").textContent, [...panel.querySelectorAll("[id]")].map(({ id }) => id)])"""
# Scrolls the form alone.
TO_THE_TOP = """(parts) => {
  const side = document.querySelector(".ll-side"), top = (part) => part.getBoundingClientRect().top;
  side.scrollTop += Math.min(...parts.map((part) => top(document.querySelector(part)))) - top(side) - 8;
}"""
PLACED = {
    "How long?": ["choice-method", "target", "unit", "cap"], "How far does it look?": ["windowed", "window", "sinks"],
    "How far apart do words look?": ["choice-pic", "ratio", "initial", "recent"], "Instruction": ["system"],
    "Sampling": ["temperature", "seed"], "Model and probes": ["model", "layer", "head", "every"],
    "Paper variants": ["reading", "prefill"],
}  # fmt: skip


def test_settings_are_grouped_by_question_and_what_they_show_stands_beside_them(visit):
    page = visit(viewport={"width": 1440, "height": 900}).page
    page.click("#view label:last-child")
    found = page.evaluate(GROUPS)
    assert [name for name, _ in found] == [*PLACED]
    assert not [(name, at) for name, ids in found for at in PLACED[name] if at not in ids]
    page.locator("#windowed input").check()
    for at in ("window", "ratio"):
        together = [f"#{at} input[type=range]", "#chart-positions .ll-plot", "#chart-positions .ll-words"]
        page.evaluate(TO_THE_TOP, together)
        for seen in together:
            expect(page.locator(seen)).to_be_in_viewport(ratio=1)


@pytest.mark.ui
def test_previews_follow_the_sliders_before_anything_runs(visit):
    visitor = visit(viewport={"width": 1440, "height": 2400})
    before = visitor.page.inner_text("#chart-mask .ll-words")
    visitor.page.locator("#windowed input").check()
    visitor.number("window", 24)
    expect(visitor.page.locator("#chart-positions .ll-words")).to_contain_text("sees 34 of them")
    expect(visitor.page.locator("#chart-mask .ll-words")).not_to_have_text(before)
    assert visitor.chart("mask")["created"] == "1"


@pytest.mark.ui
def test_methods_are_offered_that_work_with_the_model(visit):
    page = visit().page
    for name, reason in available("embedded").items():
        radio = page.locator(f"#choice-method input[value={name}]")
        assert radio.count() == methods[name].works_with(False)
        assert not radio.count() or radio.is_disabled() == (reason is not None)


@pytest.mark.ui
def test_every_reason_is_read_by_keyboard_and_by_screen_reader(visit):
    page = visit().page
    page.evaluate(
        """() => { const reasons = [["a", ""], ["b", "no <b>"], ["c", "nor c"]];
        const options = reasons.map(([id, off]) => ({ id, label: id, off }));
        const props = { value: "a", options };
        LengthLab.choice(document.querySelector("#choice-method"), props, () => 0, () => 0); }"""
    )
    radio = page.locator("#choice-method input[value=c]")
    expect(radio).to_have_accessible_description("c: nor c")
    reasons = page.locator("#choice-method .ll-reasons")
    reasons.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(reasons.locator("li")).to_have_text(["b: no <b>", "c: nor c"])
    expect(reasons.locator("li").last).to_be_visible()
    expect(page.locator("#choice-pic .ll-reasons")).to_be_hidden()


def test_every_chart_has_words_a_table_and_can_be_saved(visit):
    visitor = visit()
    for name in (*CHARTS, "positions", "mask"):
        chart = visitor.page.locator(f"#chart-{name}")
        expect(chart.locator(".ll-words")).to_have_text(re.compile(".{20}"))
        chart.get_by_role("button", name="Table").click()
        expect(chart.locator("tbody tr").nth(2)).to_be_visible()
    chart = visitor.page.locator("#chart-length")
    for kind in ("PNG", "SVG", "HTML"):
        chart.locator("summary").click()
        with visitor.page.expect_download() as download:
            chart.get_by_role("button", name=kind, exact=True).click()
        assert download.value.suggested_filename == f"length-lab-length.{kind.lower()}"


def test_a_run_is_exported_loaded_and_replayed(visit, tmp_path):
    visitor = visit()
    for kind, start in (("json", "{"), ("csv", "index,"), ("python", '"""'), ("notebook", "{")):
        with visitor.page.expect_download() as download:
            visitor.page.click(f"#export-{kind}")
        file = tmp_path / download.value.suggested_filename
        download.value.save_as(file)
        assert file.read_text("utf-8").startswith(start), kind
    before = visitor.chart("length")["run"]
    visitor.page.set_input_files("#load input[type=file], input[type=file]", held_after(10, tmp_path))
    visitor.page.wait_for_function(
        "(r) => document.querySelector('#chart-length .ll-chart').dataset.run !== r", arg=before
    )
    visitor.page.click("#replay")
    visitor.shows(10)
    visitor.page.keyboard.press("Escape")
    assert "Stopped after 10 tokens" in visitor.ends()


def held_after(tokens: int, folder: Path) -> Path:
    """The run that was exported into `folder`, which after so many tokens made a pause that no replay comes past."""
    trace = Trace.load(folder / "length-lab-run.json")
    for index, step in enumerate(trace.steps):
        trace.steps[index] = replace(step, seconds=0 if index < tokens else 1e6)
    trace.save(file := folder / "held.json")
    return file


def test_a_broken_file_is_refused_with_a_sentence(visit, tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text('{"format": "nothing"}')
    visitor = visit()
    visitor.page.set_input_files("#load input[type=file], input[type=file]", broken)
    expect(visitor.page.locator(".toast-body")).to_contain_text("not a trace")


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (390, "dark"),
        pytest.param(1440, "light", marks=pytest.mark.ui),
        pytest.param(390, "light", marks=pytest.mark.ui),
        pytest.param(1440, "dark", marks=pytest.mark.ui),
    ],
)
def test_no_tab_is_wider_than_the_screen(visit, width, theme):
    visitor = visit(query=f"?__theme={theme}", viewport={"width": width, "height": 844})
    page = visitor.page
    assert page.evaluate("document.body.classList.contains('dark')") == (theme == "dark")
    for tab in ("Compare", "Read far", "Lessons", "Lab"):
        shown = page.get_by_role("tab", name=tab)
        if not shown.is_visible():
            page.locator(".overflow-menu button").first.click()
            shown = page.locator(".overflow-dropdown button", has_text=tab)
        shown.click()
        page.wait_for_function(DRAWN)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab


@pytest.mark.ui
def test_dark_follows_the_system_and_the_switch(visit):
    visitor = visit(color_scheme="dark")
    assert visitor.page.evaluate("document.body.classList.contains('dark')")
    colour = "document.querySelector('#chart-length .ll-plot').data[1].line.color"
    visitor.page.wait_for_function(f"{colour} === '#56b4e9'")
    visitor.page.click(".ll-theme")
    visitor.page.wait_for_function(f"{colour} === '#0072b2'")


def test_the_keyboard_alone_makes_a_run(visit, held):
    visitor = visit(query=link(prompt="x", max_new_tokens=40))
    visitor.page.locator("#prompt textarea").focus()
    visitor.page.keyboard.press("Control+A")
    visitor.page.keyboard.type("Name three colours.")
    before = visitor.chart("length")["run"]
    visitor.page.keyboard.press("Control+Enter")
    visitor.page.wait_for_function(
        "(r) => document.querySelector('#chart-length .ll-chart').dataset.run !== r", arg=before
    )
    visitor.ends()
    held.upto(10)
    visitor.page.keyboard.press("Control+Enter")
    visitor.shows(10)
    held.free()
    visitor.ends()
    visitor.settles("length")
    past = "document.querySelector('#chart-length .ll-plot').data.find((trace) => trace.name === 'earlier runs').x"
    assert len(visitor.page.evaluate(past)) == 1
    visitor.page.locator("#choice-pic input[value=none]").focus()
    visitor.page.keyboard.press("ArrowRight")
    expect(visitor.page.locator("#choice-pic input[value=naive]")).to_be_checked()
    ring = "getComputedStyle(document.querySelector('#choice-pic input:checked + span')).outlineStyle"
    assert visitor.page.evaluate(ring) == "solid"


def test_comparison_runs_every_setting_on_shared_axes(visit):
    visitor = visit()
    page = visitor.page
    page.get_by_role("tab", name="Compare").click()
    page.wait_for_selector("#chart-c-positions .main-svg")
    page.locator("#c-count").get_by_text("2", exact=True).click()
    page.fill("#c-cap input", "24")
    page.click("#c-go")
    expect(page.locator("#figures-compare .ll-message")).to_contain_text(re.compile("^A, .*B, .*cut at the maximum"))
    page.wait_for_selector("#c-go:not([disabled])")
    for name in ("c-a", "c-b"):
        assert page.get_attribute(f"#text-{name} .ll-response", "data-tokens") == "24"
    visitor.settles("c-length")
    names = page.evaluate("document.querySelector('#chart-c-length .ll-plot').data.map((trace) => trace.name)")
    assert [name for name in names if ":" not in name] == ["A", "B"]


@pytest.mark.ui
def test_a_long_text_is_read_in_every_way_that_is_ticked(visit):
    visitor = visit()
    page = visitor.page
    page.get_by_role("tab", name="Read far").click()
    page.wait_for_selector("#chart-l-loglikelihood .main-svg")
    page.locator("#l-length input").click()
    page.get_by_role("option", name="1,024 tokens").click()
    visitor.number("l-window", 128)
    others = ["Λ without sinks", "Truncation", "Naive PIC × 4", "NTK PIC × 4", "Dynamic PIC × 4"]
    for way in others:
        page.get_by_label(way.removesuffix(" × 4"), exact=True).check()
    expect(page.locator("#l-about")).to_contain_text("on two cores, most of it")
    page.click("#l-go")
    expect(page.locator("#figures-long .ll-message")).to_contain_text("perplexity", timeout=2 * LONG)
    visitor.settles("l-cache_memory")
    rows = page.evaluate(
        "document.querySelector('#chart-l-cache_memory .ll-plot').data.map((trace) => [trace.name, trace.y.at(-1)])"
    )
    assert [name for name, _ in rows] == ["Plain", "Λ", *others]
    assert rows[2][1] < rows[1][1] < rows[0][1]
    assert page.locator("#answers-l-answers dt").all_inner_texts() == ["The text itself", "Plain", "Λ", *others]
    assert all(len(words) > 40 for words in page.locator("#answers-l-answers dd").all_inner_texts())


@pytest.mark.ui
def test_a_number_hidden_in_a_text_is_told_by_who_sees_it(visit):
    visitor = visit()
    page = visitor.page
    page.get_by_role("tab", name="Read far").click()
    page.wait_for_selector("#chart-l-loglikelihood .main-svg")
    page.locator("#l-length input").click()
    page.get_by_role("option", name="512 tokens").click()
    visitor.number("l-window", 128)
    expect(page.locator("#l-depth")).to_have_count(0)
    page.get_by_label("Tell a hidden number").check()
    expect(page.locator("#l-depth")).to_be_visible()
    page.click("#l-go")
    expect(page.locator("#figures-long .ll-message")).to_contain_text("perplexity")
    number = page.locator("#answers-l-answers dd").first.inner_text().split(",")[0]
    assert number.isdigit() and len(number) == 5
    verdicts = page.locator("#answers-l-answers dt b").all_inner_texts()
    written = page.locator("#answers-l-answers dd").all_inner_texts()[1:]
    assert [number in words for words in written] == [verdict == "Found" for verdict in verdicts]
    assert verdicts[1] == "Not found"


@pytest.mark.ui
def test_an_enlarged_chart_takes_the_whole_row(visit):
    page = visit().page
    width = "document.querySelector('#chart-entropy .ll-plot').clientWidth"
    before = page.evaluate(width)
    page.locator("#chart-entropy [data-act=expand]").click()
    assert page.evaluate(width) > 2 * before
    page.locator("#chart-entropy [data-act=expand]").click()
    assert page.evaluate(width) == before


@pytest.mark.ui
def test_the_method_decides_between_target_and_limit(visit):
    page = visit().page
    page.locator("#choice-method input[value=none]").check()
    expect(page.locator("#target input[type=number]")).to_be_disabled()
    expect(page.locator("#unit input")).to_be_disabled()
    expect(page.locator("#landing")).to_be_hidden()
    page.locator("#choice-method input[value=mnt_ldpe]").check()
    expect(page.locator("#limit")).to_be_visible()
    expect(page.locator("#unit input")).to_be_enabled()
    expect(page.locator("#landing")).to_be_visible()
    expect(page.locator("#target input[type=number]")).to_be_disabled()
    page.locator("#choice-method input[value=ldpe]").check()
    expect(page.locator("#limit")).to_be_hidden()
    expect(page.locator("#landing")).to_be_visible()
    box = page.locator("#target input[type=number]")
    expect(box).to_be_enabled()
    # Events of the form are answered while a number is half typed; an error in the console would fail the test.
    for typed, kept in (("0", "1"), ("1000000000", "1000"), ("", "1")):
        box.fill(typed)
        page.wait_for_timeout(300)
        box.press("Tab")
        expect(box).to_have_value(kept)


@pytest.mark.ui
def test_the_same_error_twice_is_told_twice(visit):
    page = visit().page
    for text in ("", "  "):
        page.evaluate("LengthLab.deliver('run', { state: 'good', message: 'nothing yet' })")
        page.fill("#prompt textarea", text)
        page.click("#go")
        expect(page.locator("#figures-run .ll-message")).to_contain_text("The prompt is empty")
        expect(page.locator("#go")).to_be_enabled()


@pytest.mark.ui
def test_the_end_mark_shows_in_the_chance_to_end(visit):
    visitor = visit(query=link(prompt="Why is the sky blue?", method="ldpe", target=20, max_new_tokens=60))
    visitor.generate()
    assert visitor.ends().startswith("Ended ")
    visitor.settles("length")
    chances = "document.querySelector('#chart-length .ll-plot').data[0]"
    last = visitor.page.evaluate(f"(({{x, y}}) => [x.at(-1), y.at(-1)])({chances})")
    assert last[0] == visitor.tokens and last[1] > 0.5
    assert float(visitor.field("p_end").rstrip("%")) > 50


@pytest.mark.ui
def test_a_run_that_ends_at_once_says_so(visit):
    visitor = visit(query=link(prompt="Why is the sky blue?", method="ldpe", target=90, pic="naive", ratio=64))
    visitor.generate()
    # The first token, or the second, by the processor.
    assert re.match("Ended amid a sentence after (0 tokens|1 token) in", visitor.ends())
    expect(visitor.page.locator("#figures-run")).not_to_contain_text("Reading the prompt")


@pytest.mark.ui
def test_wrapping_up_a_free_run_says_why_it_cannot(visit, held):
    visitor = visit(query=link(prompt="Write a long story about the sea.", max_new_tokens=2000))
    held.upto(10)
    visitor.generate()
    visitor.page.click("#wrap")
    expect(visitor.page.locator(".toast-body")).to_contain_text("cannot change its target")
    visitor.page.click("#stop")
    assert "Stopped after" in visitor.ends()


@pytest.mark.ui
def test_a_stopped_replay_ends_where_it_was_stopped(visit, tmp_path):
    visitor = visit()
    recorded = presets.recorded()["Dynamic × 4"]
    recorded.save(tmp_path / "length-lab-run.json")
    visitor.page.set_input_files("#load input[type=file], input[type=file]", held_after(25, tmp_path))
    visitor.shows(len(recorded.steps))
    visitor.page.click("#replay")
    visitor.shows(25)
    visitor.page.click("#stop")
    assert "Stopped after 25 tokens" in visitor.ends()
    visitor.settles("length")
    assert "25 tokens produced" in visitor.page.inner_text("#chart-length .ll-words")


@pytest.mark.ui
def test_a_long_prompt_tells_how_far_it_was_read(visit, held):
    visitor = visit()
    held.upto(0)
    visitor.page.fill("#prompt textarea", "The cat sat on the mat. " * 1000)
    visitor.page.click("#go")
    expect(visitor.page.locator("#figures-run .ll-message")).to_contain_text("of 7,0")
    visitor.page.click("#stop")
    assert "Stopped after 0 tokens" in visitor.ends()


def test_the_run_is_an_endpoint_with_a_schema(address):
    from gradio_client import Client

    client = Client(address, verbose=False)
    schema = client.view_api(return_format="dict")["named_endpoints"]
    assert list(schema) == ["/generate"]
    named = {parameter["parameter_name"] for parameter in schema["/generate"]["parameters"]}
    assert {"prompt", "target", "window", "pic", "seed"} <= named
    described = schema["/generate"]["description"]
    assert all(f"\n{name}: " in described for name in named)
    assert "target: wanted length of the response, in `unit`; from 1 to 100,000." in described
    assert "Settings that cannot run are refused with a sentence." in described
    job = client.submit("Why is the sky blue?", max_new_tokens=12, api_name="/generate")
    result = job.result()
    assert result["finish"]["tokens"] == 12 and len(result["steps"]) == 12
    assert result["text"] == result["finish"]["text"] and 0 < result["steps"][0]["p"] <= 1
    first = [{"role": "system", "content": "Be brief."}]
    talk = client.predict("Why is the sky blue?", max_new_tokens=2, earlier=first, api_name="/generate")
    assert talk["finish"]["prompt_tokens"] != result["finish"]["prompt_tokens"]
    with pytest.raises(Exception, match="The prompt is empty"):
        client.predict(" ", api_name="/generate")
    with pytest.raises(Exception, match="A system message comes after another message"):
        client.predict("Why?", earlier=first * 2, api_name="/generate")
