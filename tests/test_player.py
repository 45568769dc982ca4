"""A run as one HTML file: it plays without a server, and holds nothing but the run."""

from __future__ import annotations

import re
from types import SimpleNamespace

import gradio as gr
import pytest
from playwright.sync_api import expect

from app import player, presets
from app.exports import exporter
from backend.record.trace import Trace
from backend.settings import RunSettings
from tests.test_app_browser import LONG
from tests.test_trace import make_run

expect.set_options(timeout=LONG)
HOSTILE = "</script><img src=x onerror=alert(1)>\u2028{scene}<b>"


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a run's file with no network and no server; fails on any error in the console."""
    wrong: list[str] = []
    page = browser.new_context(offline=True).new_page()
    page.on("console", lambda message: message.type == "error" and wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: request.url.startswith("file:") or wrong.append(request.url))
    page.on("dialog", lambda dialog: (wrong.append("dialog"), dialog.dismiss()))

    def open_file(trace: Trace, **media):
        page.emulate_media(**media)
        file = tmp_path / "run.html"
        file.write_text(player.page(trace), "utf-8")
        page.goto(file.as_uri())
        return page

    yield open_file
    page.close()
    assert not wrong


def test_a_run_plays_to_its_end_and_can_be_read_as_text(opened):
    trace = Trace.load(presets.file_of("60-tokens"))
    page = opened(trace)
    expect(page.locator(".ll-present[data-played=whole]")).to_be_visible(timeout=60_000)
    expect(page.locator(".ll-saying")).to_have_text(trace.finish.text)
    expect(page.locator(".ll-goal")).to_have_text("60")
    page.click("[data-act=close]")
    expect(page.locator("main .answer")).to_have_text(trace.finish.text)
    page.click("[data-present]")
    expect(page.locator(".ll-present[open]")).to_be_visible()


def test_a_run_without_a_target_has_no_flag(opened):
    page = opened(Trace.load(presets.file_of("lambda-window-48")), reduced_motion="reduce")
    expect(page.locator(".ll-present[data-played=whole]")).to_be_visible(timeout=60_000)
    expect(page.locator(".ll-goal")).to_have_count(0)
    expect(page.locator(".ll-look")).to_contain_text("no length was asked for")


def test_hostile_text_stays_text(opened):
    trace = make_run(2, prompt=HOSTILE, texts=[HOSTILE, "."])
    page = opened(trace, reduced_motion="reduce")
    expect(page.locator(".ll-saying")).to_have_text(re.compile(re.escape("onerror=alert(1)>")))
    assert page.locator("img").count() == 0
    assert HOSTILE[:20] in page.locator("h2").inner_text()


def test_a_run_that_wrote_nothing_is_refused():
    with pytest.raises(ValueError, match="press Generate"):
        player.page(Trace(RunSettings(prompt="x")))


def test_an_export_that_cannot_be_made_is_refused_in_a_sentence(caplog):
    export = exporter("HTML", Trace(RunSettings(prompt="x")), SimpleNamespace(write=None))
    with pytest.raises(gr.Error, match="press Generate"):
        export(None, SimpleNamespace(request=None))
    assert not caplog.records
