"""What the page shows and what its form asks for belong together, from the first picture on."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from app.charts.base import Chart, encode
from app.charts.drawing import axes
from app.presets import PRESETS
from app.share import from_query, to_query
from backend.methods import methods
from backend.record.trace import Trace
from backend.settings import CAP, MAX_NEW_TOKENS, RunSettings
from tests.test_app_browser import CHARTS, LONG, address, demo, runs, visit  # noqa: F401

VEILED = re.compile("ll-veiled")
# Every clip path in the charts, and whether it is one of this page as its address now is.
LOST = """() => [...document.querySelectorAll(".ll-plot [clip-path]")]
  .map((e) => e.getAttribute("clip-path")).filter((path) => {
  const [, where, id] = path.match(/^url\\(['"]?([^#]*)#([^'")]+)['"]?\\)$/);
  return (where && where !== location.href.split('#')[0]) || !document.getElementById(id);
})"""


def test_the_page_opens_on_a_run_and_the_settings_that_made_it(visit):  # noqa: F811
    page, first = visit().page, PRESETS[0].settings
    assert page.input_value("#prompt textarea") == first.prompt
    assert page.input_value("#target input[type=number]") == str(first.target)
    assert page.input_value("#cap input[type=number]") == str(first.max_new_tokens)
    assert page.locator("#choice-method [aria-checked=true], #choice-method input:checked").count() == 1
    assert page.inner_text("#figures-run [data-field=error]") == f"{Trace.load(PRESETS[0].file).finish.error:+}"
    expect(page.locator(".ll-stage")).not_to_have_class(VEILED)


def test_charts_keep_their_clip_paths_when_theme_and_address_change(visit):  # noqa: F811
    visitor = visit()
    page = visitor.page
    for name in CHARTS:
        visitor.settles(name)
    page.click(".ll-theme")
    page.click("#share")
    page.wait_for_function("location.search.includes('method')")
    page.evaluate("document.querySelectorAll('.ll-plot.js-plotly-plot').forEach((plot) => Plotly.redraw(plot))")
    assert page.locator(".ll-plot [clip-path]").count() > 4
    assert page.evaluate(LOST) == []


def test_paper_shows_every_chart_of_the_run_also_those_out_of_sight(visit):  # noqa: F811
    visitor = visit(query="?prompt=Why+do+birds+sing%3F&max_new_tokens=30", viewport={"width": 1440, "height": 500})
    visitor.generate()
    visitor.ends()
    behind = """[...document.querySelectorAll(".ll-chart")].filter((chart) => chart.offsetParent)
      .filter(({ dataset }) => dataset.drawn !== dataset.received).map(({ dataset }) => dataset.name)"""
    assert visitor.page.evaluate(behind) != []
    visitor.page.pdf()
    assert visitor.page.evaluate(behind) == []


def test_a_saved_chart_stays_on_the_readers_machine(visit, tmp_path):  # noqa: F811
    visitor = visit()
    visitor.settles("length")
    chart = visitor.page.locator("#chart-length")
    chart.locator("summary").click()
    with visitor.page.expect_download() as download:
        chart.get_by_role("button", name="HTML", exact=True).click()
    download.value.save_as(tmp_path / "chart.html")
    saved = visitor.context.new_page()
    for page, place in ((visitor.page, "#chart-length "), (saved, "")):
        if page is saved:
            page.goto((tmp_path / "chart.html").as_uri())
        page.wait_for_selector(f"{place}.modebar-btn", state="attached")
        buttons = page.locator(f"{place}.modebar-btn")
        titles = buttons.evaluate_all("all => all.map(({ dataset }) => dataset.title ?? '')")
        assert titles and not [title for title in titles if "hare" in title or "loud" in title]


@pytest.mark.ui
def test_the_theme_is_kept_over_a_reload_and_out_of_the_address(visit):  # noqa: F811
    page = visit().page
    before = page.evaluate("document.body.classList.contains('dark')")
    page.click(".ll-theme")
    assert "__theme" not in page.url
    page.reload()
    page.wait_for_function("(before) => document.body.classList.contains('dark') !== before", arg=before)


def test_a_run_is_veiled_while_the_form_asks_for_another(visit):  # noqa: F811
    visitor = visit()
    stage = visitor.page.locator(".ll-stage")
    visitor.number("temperature", 0.5)
    expect(stage).to_have_class(VEILED)
    visitor.number("temperature", 0)
    expect(stage).not_to_have_class(VEILED)


def test_the_cap_follows_the_target_until_it_is_set(visit):  # noqa: F811
    visitor = visit()
    cap = visitor.page.locator("#cap input[type=number]")
    visitor.number("target", 300)
    expect(cap).to_have_value("600")
    visitor.number("cap", 128)
    visitor.page.click("#share")
    visitor.page.wait_for_url(re.compile("max_new_tokens=128"))
    for target in (400, 401):
        visitor.number("target", target)
        # A link holds what the server has heard.
        visitor.page.click("#share")
        visitor.page.wait_for_url(re.compile(f"target={target}"))
    expect(cap).to_have_value("128")


@pytest.mark.ui
def test_recorded_runs_wait_while_another_is_written(visit):  # noqa: F811
    visitor = visit(query="?prompt=Write+a+long+story.&max_new_tokens=4000")
    preset = visitor.page.get_by_role("button", name="Dynamic × 4", exact=True).first
    visitor.generate()
    expect(preset).to_be_disabled()
    visitor.page.click("#stop")
    expect(preset).to_be_enabled(timeout=LONG)


@pytest.mark.parametrize(
    ("given", "cap"),
    [
        ({}, CAP),
        ({"method": "ldpe", "target": 60}, CAP),
        ({"method": "ldpe", "target": 500}, 1000),
        ({"method": "orpe", "target": 200, "unit": "words"}, 600),
        ({"method": "orpe", "target": 2000, "unit": "characters"}, 1000),
        ({"method": "mnt_ldpe", "target": 900, "limit": 200}, 400),
        ({"method": "mnt_ldpe", "limit": 400, "unit": "words"}, 1200),
        ({"method": "sft_dynamic"}, methods["sft_dynamic"].cap),
        ({"method": "ldpe", "target": 100_000}, MAX_NEW_TOKENS),
        ({"method": "ldpe", "target": 500, "max_new_tokens": 70}, 70),
        ({"method": "ldpe", "target": "500", "max_new_tokens": None}, 1000),
    ],
)
def test_the_cap_leaves_room_for_what_is_aimed_at(given, cap):
    assert RunSettings(prompt="x", **given).max_new_tokens == cap


@pytest.mark.parametrize("wrong", [{"target": "many"}, {"target": -1}, {"method": "x"}, {"unit": None}])
def test_what_is_wrong_with_a_target_is_said_of_the_target(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RunSettings(prompt="x", **wrong)


def test_a_link_names_the_cap_only_where_it_was_set():
    followed = RunSettings(prompt="x", method="ldpe", target=500)
    assert "max_new_tokens" not in to_query(followed)
    chosen = followed.model_copy(update={"max_new_tokens": 256})
    assert "max_new_tokens=256" in to_query(chosen)
    values, problems = from_query({"prompt": "x", "max_new_tokens": "300"})
    assert values["max_new_tokens"] == 300 and not problems


def test_an_axis_of_one_point_begins_at_0():
    one = encode(Chart([{"x": [512], "y": [3]}, {"x": [512], "y": [4]}], axes("a", "b"), ""))
    two = encode(Chart([{"x": [512, 513], "y": [3, 4]}], axes("a", "b"), ""))
    assert '"autorangeoptions":{"include":[0]}' in one and "autorangeoptions" not in two
