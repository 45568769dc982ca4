"""What the page weighs, and that what it takes of a visitor can be measured."""

from __future__ import annotations

import re

import pytest
from plotly.offline import get_plotlyjs_version
from test_app_browser import address, demo, held, lab, runs  # noqa: F401

from app import live, vitals
from app.charts import shown
from backend.evaluation.bench.vitals import CALLED, MOST
from backend.evaluation.bench.vitals import vitals as written


@pytest.fixture(scope="module")
def weighed(browser, address):  # noqa: F811
    return vitals.weighed(browser, address)


def test_the_page_is_light_on_the_wire_and_asks_no_other_host(weighed):
    assert weighed["total_bytes"] <= MOST, weighed["bytes"]
    assert {"HTML", "JS", "CSS", "Plotly", "fonts"} <= weighed["bytes"].keys()
    assert weighed["foreign"] == []


def test_the_page_draws_with_the_plotly_that_notebooks_draw_with():
    head = live.PLOTLY.read_text("utf-8")[:300]
    assert re.search(r"plotly\.js \(cartesian - minified\) v([\d.]+)", head)[1] == get_plotlyjs_version()


def test_every_chart_that_is_watched_is_called_as_the_page_calls_it():
    watched = {chart.name: chart.title for tab in ("generate", "try") for chart in shown(tab) if not chart.preview}
    assert len(watched) > 8 and watched.items() <= CALLED.items()


@pytest.mark.ui
@pytest.mark.parametrize("place", vitals.PLACES)
def test_frames_are_counted_from_the_first_token_to_the_last(browser, address, place):  # noqa: F811
    asked = {"lab": {"max_new_tokens": 30}, "try": {"target": 30}}[place]
    seen = vitals.watched(browser, address, place, prompt="Count to a hundred.", **asked)
    assert {"lab": {"length", "entropy"}, "try": {"try", "t-entropy"}}[place] <= seen.keys()
    assert all(part["frames_per_second"] > 0 and part["first_ms"] >= 0 for part in seen.values())


@pytest.mark.ui
def test_a_visitor_sees_the_page_before_it_reacts(browser, address):  # noqa: F811
    times = vitals.opened(browser, address)
    assert 0 < times["paint_ms"] < times["use_ms"]


def test_the_report_says_which_goals_there_are():
    opening = {
        "paint_ms": 900.0, "use_ms": 2500.0, "bytes": {"HTML": 40_000, "Plotly": 490_000}, "total_bytes": 530_000,
        "long_tasks": {"count": 1, "ms": 70.0, "longest_ms": 70.0}, "foreign": [], "requests": 3,
    }  # fmt: skip
    frames = {"lab": {"length": {"frames_per_second": 3.2, "first_ms": 40.0}}}
    frames["try"] = {"try": {"frames_per_second": 9.0, "first_ms": 5.0}}
    text = written({"rounds": 5, "opening": opening, "frames": frames, "speed": {"cost": {"page": 0.07}}})
    assert "| on the wire, kB | 530 | at most 1,600 |" in text and "| of it Plotly, kB | 490 | – |" in text
    assert "| Try it | Runway | 9.00 | at least 10 | 5.00 |" in text
    assert "| Lab | Length | 3.20 | at least 3 | 40.0 |" in text
