"""Produced against target, the chance to end and the stop it predicts, the error, and where earlier runs ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.charts.base import POINTS, Chart, axes, grows, line, mark_x, note, planned, room, signed, table_rows
from app.series import Series, pick, sample

P_END_RANGE = (-8, 0.3)
P_END_TICKS = {1e-8: "10⁻⁸", 1e-4: "10⁻⁴", 1: "1"}


@dataclass(frozen=True)
class Past:
    """What the length chart remembers of an earlier run of the same visitor."""

    label: str
    unit: str
    tokens: int
    produced: int
    error: int | None


def length(series: Series, history: Sequence[Past] = ()) -> Chart:
    """(a) Produced against target, p(EOS) and the stop it predicts, the error, and where earlier runs ended."""
    at, chances = sample(len(series), POINTS), sample(len(series.p_eos), POINTS)
    x, produced, target = at + 1, pick(series.produced, at), pick(series.target, at)
    unit, p_end = series.settings.goal_unit, pick(series.p_eos, chances).astype(np.float32)
    data = [
        line(chances + 1, p_end, "@c2", "p(end)", width=1.2, yaxis="y2", hover="%{y:.2~g}"),
        line(x, produced, "@c1", f"{unit} produced", width=2.6),
    ]
    if np.isfinite(target).any():
        data.append(line(x, target, "@ink", "target", width=1.4, dash="dash", shape="hv"))
    past = [run for run in history if run.unit == unit]
    if past:
        data.append(_past_points(past))
    layout = axes("tokens generated", unit)
    layout["yaxis"]["rangemode"] = "tozero"
    layout["yaxis2"] = {
        "overlaying": "y",
        "side": "right",
        "type": "log",
        "range": list(P_END_RANGE),
        "showgrid": False,
        "fixedrange": True,
        "tickvals": list(P_END_TICKS),
        "ticktext": list(P_END_TICKS.values()),
        "color": "@c2",
        "title": {"text": "p(end)", "standoff": 4},
        "automargin": True,
        "ticklabeloverflow": "allow",
    }
    if series.finish is None and len(series):
        grows(layout["xaxis"], planned(series))
        grows(layout["yaxis"], target[-1] if produced[-1] <= target[-1] else room(produced[-1]))
    stop = series.predicted_stop() if series.finish is None else None
    if stop is not None and stop <= series.settings.max_new_tokens:
        mark_x(layout, stop, "@c2", f"ends ≈ {stop:.0f}")
    if len(at) and np.isfinite(target[-1]):
        layout["annotations"].append(note(0, 1.02, _error_words(series), "left"))
    return Chart(
        data,
        layout,
        _length_summary(series, stop),
        ("token", unit, "target", "p(end)"),
        table_rows(x, produced, target, pick(series.p_eos, at)),
    )


def _past_points(past: Sequence[Past]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "earlier runs",
        "x": [run.tokens for run in past],
        "y": [run.produced for run in past],
        "marker": {"size": 8, "symbol": "circle-open", "color": "@old", "line": {"width": 1.6, "color": "@old"}},
        "text": [run.label + ("" if run.error is None else f", error {signed(run.error)}") for run in past],
        "hovertemplate": "%{text}<extra>earlier run</extra>",
    }


def _error_words(series: Series) -> str:
    error, unit = series.error, series.settings.goal_unit
    if error is None:
        return ""
    if series.finish is not None:
        return f"<b>{signed(error)}</b> {unit} at the end"
    return f"{-error:,} {unit} to go" if error < 0 else f"{signed(error)} {unit}"


def _length_summary(series: Series, stop: float | None) -> str:
    if not len(series):
        return "Nothing has been generated yet."
    unit, error = series.settings.goal_unit, series.error
    words = f"{series.produced[-1]:,} {unit} produced"
    if error is None:
        words += " without a target"
    else:
        words += f", target {series.target[-1]:,}, error {signed(error)}"
    if series.finish is None:
        near = stop is not None and stop <= series.settings.max_new_tokens
        words += f"; p(end) points to an end near token {stop:,.0f}" if near else "; p(end) shows no end before the cap"
    return words + "."
