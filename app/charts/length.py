"""The runway of each run: how far it came, where its sentences end, its target, the chance to end, and earlier ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from app.charts import drawing
from app.charts.base import Chart, LiveChart, alone
from app.charts.p_eos import CHANCES
from app.runway import sentence_ends, span, why
from app.series import PastRun, RunSeries, pick, sample
from backend.settings import counted, signed

# Where the lane of a run alone and that of earlier ends lie, how far a mark reaches beyond a lane, and how wide a lane
# is drawn, in pixels.
LANE, EARLIER, REACH, WIDE = 1, 0, 0.34, 12
# The height of the lanes of a run alone, as a share of the chart's.
TOP = 0.34


class Length(LiveChart):
    """How much of the way to its target a run has come."""

    name = "length"
    title = "Length"
    tabs = {
        "generate": "The way to the target, with sentence ends and the chance to end",
        "compare": "The way of each to its target, with sentence ends",
    }
    order = 10

    def draw(self, runs: Sequence[RunSeries]) -> Chart:
        run = alone(runs)
        return _together(runs) if run is None else _alone(run)


def _alone(run: RunSeries) -> Chart:
    """The lane of a run with its target, and above it the chance to end and the end that this predicts."""
    unit = run.settings.unit
    chances, at = sample(len(run.p_eos), drawing.POINTS), sample(len(run), drawing.POINTS)
    # The first chance is of an answer without a token.
    reached, p_eos = pick([0, *run.produced], chances), pick(run.p_eos, chances).astype(np.float32)
    data = [
        drawing.line(reached, p_eos, "@c2", "p(end)", width=1.2, yaxis="y2", hover="%{y:.2~g}"),
        *_lane(run, LANE, "@c1"),
    ]
    if run.tried:
        data.append(_tried(run))
    past = [earlier for earlier in run.past if earlier.unit == unit]
    if past:
        data.append(_past_points(past))
    layout = _with_chances(drawing.axes(f"{unit} produced", ""), bool(past))
    if run.finish is None and len(run):
        drawing.grows(layout["xaxis"], _span(run))
    stop = run.predicted_stop() if run.finish is None and len(run) else None
    if stop is not None and stop <= run.settings.max_new_tokens:
        drawing.mark_x(layout, stop * max(1, run.produced[-1]) / len(run), "@c2", f"ends ≈ {stop:.0f}", y=0.92)
    if len(run) and run.target[-1] is not None:
        layout["annotations"].append(drawing.note(0, 1.02, _error_words(run), "left"))
        target = drawing.note(run.target[-1], TOP, f"target {run.target[-1]:,}", "right", xref="x")
        layout["annotations"].append(target | {"yanchor": "bottom"})
    rows = drawing.table_rows(at + 1, pick(run.produced, at), pick(run.target, at), pick(run.p_eos, at))
    return Chart(data, layout, _summary(run, stop), ("token", unit, "target", "p(end)"), rows)


def _with_chances(layout: dict[str, Any], past: bool) -> dict[str, Any]:
    """The lanes in the lower third, the chance to end above them."""
    lanes = {"tickvals": [LANE, EARLIER][: 1 + past], "ticktext": ["this run", "earlier"][: 1 + past]}
    layout["yaxis"] |= lanes | _fixed(EARLIER if past else LANE, LANE) | {"domain": [0, TOP]}
    layout["yaxis2"] = drawing.axes("", "p(end)")["yaxis"] | CHANCES | {"domain": [0.44, 1], "fixedrange": True}
    layout["xaxis"]["rangemode"] = "tozero"
    return layout | {"hovermode": "closest"}


def _fixed(first: float, last: float) -> dict[str, Any]:
    """An axis that holds lanes from one place to another and no lines of its own."""
    return {"range": [first - 0.6, last + 0.6], "fixedrange": True, "showgrid": False}


def _lane(run: RunSeries, place: float, colour: str, name: str = "") -> list[dict[str, Any]]:
    """What was written, with the ends of sentences and the target. name: of the run, where it is one of several."""
    unit, several = run.settings.unit, f"{name}: " if name else ""
    far = [0, run.produced[-1]] if len(run) else []
    data = [drawing.line(far, [place] * len(far), colour, name or f"{unit} produced", width=WIDE, hover="%{x:,}")]
    if ends := sentence_ends(run):
        data.append(_ticks(ends, place, "@ink", f"{several}sentence ends", 1.4))
    now = run.target[-1] if run.target else None
    if before := [target for target in dict.fromkeys(run.target) if target not in (now, None)]:
        data.append(_ticks(before, place, "@muted", f"{several}earlier targets", 1.4))
    if now is not None:
        data.append(_ticks([now], place, "@ink", f"{several}target", 3))
    return data


def _ticks(at: Sequence[int], place: float, colour: str, name: str, width: float) -> dict[str, Any]:
    """A stroke across a lane at each of the places."""
    x = [part for each in at for part in (each, each, None)]
    y = [part for _ in at for part in (place - REACH, place + REACH, None)]
    # One at the end of the axis is whole.
    return drawing.line(x, y, colour, name, width=width, hover="%{x:,}") | {"cliponaxis": False}


def _together(runs: Sequence[RunSeries]) -> Chart:
    """A lane for each run, with its target and where it ended."""
    units = {run.settings.unit for run in runs if len(run)}
    layout = drawing.axes(f"{units.pop()} produced" if len(units) == 1 else "produced", "")
    places = {run.run: -number for number, run in enumerate(runs)}
    layout["yaxis"] |= {"tickvals": [*places.values()], "ticktext": [run.name for run in runs]}
    layout["yaxis"] |= _fixed(min(places.values()), 0)
    layout["xaxis"]["rangemode"] = "tozero"
    layout["hovermode"] = "closest"
    if writing := [run for run in runs if len(run) and run.finish is None]:
        drawing.grows(layout["xaxis"], *map(_span, writing))

    def draw(colour: str, run: RunSeries) -> drawing.Drawn | None:
        if not len(run):
            return None
        missed = run.settings.missed(run.error)
        error = "" if missed is None else missed
        row = [run.label, len(run), run.produced[-1], run.target[-1] or "", error, round(run.speed, 1)]
        return _lane(run, places[run.run], colour, run.name), row

    data, rows = drawing.overlaid(runs, draw)
    columns = ("tokens", "produced", "target", "error", "tokens/s")
    chart = drawing.together(runs, layout, data, rows, columns, _words)
    # Each lane has its name beside it.
    chart.layout["showlegend"] = False
    return chart


def _span(run: RunSeries) -> float:
    """How far the axis reaches while a run is written."""
    return drawing.planned(run) if run.target[-1] is None else span([run])


def _words(label: str, tokens: int, produced: int, target: int | str, error: int | str, speed: float) -> str:
    ended = f" (error {signed(error)})" if isinstance(error, int) else ""
    return f"{label} {counted(tokens, 'tokens')}{ended}"


def _tried(run: RunSeries) -> dict[str, Any]:
    """The endings that landing tried, the one that is written filled."""
    symbols = ["triangle-down" if each.chosen else "triangle-down-open" for each in run.tried]
    marker = {"size": 9, "symbol": symbols, "color": "@c4"}
    x, y = [each.length for each in run.tried], [LANE + REACH] * len(run.tried)
    words = [why(each) for each in run.tried]
    return drawing.marks(x, y, "endings tried", marker, "%{x:,}: %{text}<extra></extra>") | {"text": words}


def _past_points(past: Sequence[PastRun]) -> dict[str, Any]:
    x = [run.produced for run in past]
    marker = {"size": 8, "symbol": "circle-open", "color": "@old", "line": {"width": 1.6, "color": "@old"}}
    words = [run.label + ("" if run.error is None else f", error {signed(run.error)}") for run in past]
    points = drawing.marks(x, [EARLIER] * len(x), "earlier runs", marker, "%{text}<extra>earlier run</extra>")
    return points | {"text": words}


def _error_words(run: RunSeries) -> str:
    error, unit = run.error, run.settings.unit
    if error is None:
        return ""
    if run.finish is not None:
        ended = f"{run.produced[-1]:,}" if run.settings.limited else signed(error)
        return f"<b>{ended}</b> {unit} at the end"
    return f"{-error:,} {unit} to go" if error < 0 else f"{signed(error)} {unit}"


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
        words += f", target {run.target[-1]:,}, error {signed(error)}"
    if run.finish is None:
        near = stop is not None and stop <= run.settings.max_new_tokens
        ends = f"At this rate it would end near token {stop:,.0f}" if near else "No end is in sight before the cap"
        words += f". {ends}"
    return words + "."
