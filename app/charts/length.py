"""Produced against target, the chance to end and the stop it predicts, the error, and where earlier runs ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from app.charts import drawing
from app.charts.base import Chart, LiveChart, alone
from app.charts.p_eos import CHANCES
from app.series import PastRun, RunSeries, pick, sample
from backend.settings import counted


class Length(LiveChart):
    """What is produced by each token, against the target."""

    name = "length"
    title = "Length"
    tabs = {
        "generate": "Against the target, with the chance to end",
        "compare": "Produced against tokens generated; dashed is the target",
    }
    order = 10

    def draw(self, runs: Sequence[RunSeries]) -> Chart:
        run = alone(runs)
        return _together(runs) if run is None else _alone(run)


def _alone(run: RunSeries) -> Chart:
    """Produced against target, p(EOS) and the stop it predicts, the error, and where earlier runs ended."""
    at, chances = sample(len(run), drawing.POINTS), sample(len(run.p_eos), drawing.POINTS)
    x, produced, target = at + 1, pick(run.produced, at), pick(run.target, at)
    unit, p_eos = run.settings.unit, pick(run.p_eos, chances).astype(np.float32)
    data = [
        drawing.line(chances + 1, p_eos, "@c2", "p(end)", width=1.2, yaxis="y2", hover="%{y:.2~g}"),
        drawing.line(x, produced, "@c1", f"{unit} produced", width=2.6),
    ]
    if np.isfinite(target).any():
        data.append(drawing.line(x, target, "@ink", "target", width=1.4, dash="dash", shape="hv"))
    past = [earlier for earlier in run.past if earlier.unit == unit]
    if past:
        data.append(_past_points(past))
    layout = drawing.axes("tokens generated", unit)
    layout["yaxis"]["rangemode"] = "tozero"
    layout["yaxis2"] = CHANCES | {
        "overlaying": "y",
        "side": "right",
        "showgrid": False,
        "fixedrange": True,
        "color": "@c2",
        "title": {"text": "p(end)", "standoff": 4},
        "automargin": True,
        "ticklabeloverflow": "allow",
    }
    if run.finish is None and len(run):
        drawing.grows(layout["xaxis"], drawing.planned(run))
        drawing.grows(layout["yaxis"], target[-1] if produced[-1] <= target[-1] else drawing.room(produced[-1]))
    stop = run.predicted_stop() if run.finish is None else None
    if stop is not None and stop <= run.settings.max_new_tokens:
        drawing.mark_x(layout, stop, "@c2", f"ends ≈ {stop:.0f}")
    if len(at) and np.isfinite(target[-1]):
        layout["annotations"].append(drawing.note(0, 1.02, _error_words(run), "left"))
    rows = drawing.table_rows(x, produced, target, pick(run.p_eos, at))
    return Chart(data, layout, _summary(run, stop), ("token", unit, "target", "p(end)"), rows)


def _together(runs: Sequence[RunSeries]) -> Chart:
    """Produced against tokens generated, each with its target, and where each ended."""
    units = {run.settings.unit for run in runs if len(run)}
    layout = drawing.axes("tokens generated", f"produced, {units.pop()}" if len(units) == 1 else "produced")
    layout["yaxis"]["rangemode"] = "tozero"
    data, rows = drawing.overlaid(runs, _line)
    return drawing.together(runs, layout, data, rows, ("tokens", "produced", "target", "error", "tokens/s"), _words)


def _line(colour: str, run: RunSeries) -> drawing.Drawn | None:
    if not len(run):
        return None
    at = sample(len(run), drawing.FEWER)
    target = pick(run.target, at)
    data = [drawing.line(at + 1, pick(run.produced, at), colour, run.name, width=2.4)]
    if np.isfinite(target).any():
        data.append(drawing.line(at + 1, target, colour, f"{run.name}: target", width=1.2, dash="dash"))
    if run.finish is not None:
        end = {"size": 9, "color": colour, "symbol": "circle"}
        data.append(drawing.marks([len(run)], [run.produced[-1]], f"{run.name}: end", end, ""))
    missed = run.settings.missed(run.error)
    error = "" if missed is None else missed
    return data, [run.label, len(run), run.produced[-1], run.target[-1] or "", error, round(run.speed, 1)]


def _words(label: str, tokens: int, produced: int, target: int | str, error: int | str, speed: float) -> str:
    ended = f" (error {drawing.signed(error)})" if isinstance(error, int) else ""
    return f"{label} {counted(tokens, 'tokens')}{ended}"


def _past_points(past: Sequence[PastRun]) -> dict[str, Any]:
    x, y = [run.tokens for run in past], [run.produced for run in past]
    marker = {"size": 8, "symbol": "circle-open", "color": "@old", "line": {"width": 1.6, "color": "@old"}}
    words = [run.label + ("" if run.error is None else f", error {drawing.signed(run.error)}") for run in past]
    return drawing.marks(x, y, "earlier runs", marker, "%{text}<extra>earlier run</extra>") | {"text": words}


def _error_words(run: RunSeries) -> str:
    error, unit = run.error, run.settings.unit
    if error is None:
        return ""
    if run.finish is not None:
        ended = f"{run.produced[-1]:,}" if run.settings.limited else drawing.signed(error)
        return f"<b>{ended}</b> {unit} at the end"
    return f"{-error:,} {unit} to go" if error < 0 else f"{drawing.signed(error)} {unit}"


def _summary(run: RunSeries, stop: float | None) -> str:
    if not len(run):
        return "Nothing has been generated yet."
    unit, error = run.settings.unit, run.error
    words = f"{run.produced[-1]:,} {unit} produced"
    if error is None:
        words += " without a target"
    elif run.settings.limited:
        words += f" of at most {run.target[-1]:,}"
    else:
        words += f", target {run.target[-1]:,}, error {drawing.signed(error)}"
    if run.finish is None:
        near = stop is not None and stop <= run.settings.max_new_tokens
        ends = f"At this rate it would end near token {stop:,.0f}" if near else "No end is in sight before the cap"
        words += f". {ends}"
    return words + "."
