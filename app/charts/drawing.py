"""What charts are made of: axes, lines, marks, words and tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from app.charts.base import Chart, alone, of_texts
from app.charts.palette import SERIES_COLOURS
from app.series import RunSeries, sample

Drawn = tuple[list[dict[str, Any]], list[Any]]
# Points of a line: of one run, and of each of several.
POINTS, FEWER = 160, 120


def axes(x: str, y: str) -> dict[str, Any]:
    """A layout with two titled axes, nothing on it yet."""
    # By itself Plotly measures every label at each drawing to hide those that lie over the edge: a quarter of its time.
    axis = {"ticklabeloverflow": "allow", "automargin": True, "nticks": 6, "ticks": ""}
    axis |= {"gridcolor": "@grid", "zeroline": False, "linecolor": "@grid"}
    return {
        "margin": {"l": 44, "r": 14, "t": 20, "b": 36},
        "xaxis": {**axis, "title": {"text": x, "standoff": 6}},
        "yaxis": {**axis, "title": {"text": y, "standoff": 6}},
        "showlegend": False,
        "hovermode": "x unified",
        "shapes": [],
        "annotations": [],
    }


def grows(axis: dict[str, Any], *included: float) -> None:
    """Lets an axis reach the included numbers while a run grows: the frames that fit into it only move its lines."""
    axis["autorangeoptions"] = {"include": list(included)}


def planned(run: RunSeries) -> float:
    """Tokens that an axis should have place for: the target and a little more until that is passed."""
    target = (run.target[-1] or 0) if run.settings.unit == "tokens" else 0
    planned = 1.1 * target if len(run) <= 1.1 * target else room(len(run))
    return min(planned, run.settings.max_new_tokens)


def room(number: float) -> float:
    """512, or the next fourfold of it at or above `number`: an axis that grows is drawn anew, which is dear."""
    return float(512 * 4 ** max(0, math.ceil(math.log(max(number, 1) / 512, 4))))


def distance_axis(layout: dict[str, Any], top: float) -> None:
    """Makes x logarithmic up to `top`, with a place for the distance 0, drawn at 0.5."""
    ticks = [0.5, *(10**k for k in range(int(math.log10(top)) + 1))]
    layout["xaxis"] |= {
        "type": "log",
        "tickvals": ticks,
        "ticktext": ["0", *(f"{int(tick):,}" for tick in ticks[1:])],
        "range": [math.log10(0.4), math.log10(top * 1.6)],
    }


def empty(layout: dict[str, Any], words: str, summary: str, columns: tuple[str, ...] = ()) -> Chart:
    """A chart that has nothing to show, with a word about why."""
    layout["annotations"].append(note(0.5, 0.5, words, "center"))
    for axis in ("xaxis", "yaxis"):
        layout[axis] |= {"showticklabels": False, "showgrid": False}
    return Chart([], layout, summary, columns)


def line(
    x: Any, y: Any, colour: str, name: str, width: float = 2, dash: str = "solid", yaxis: str = "y",
    shape: str = "linear", mode: str = "lines", hover: str = "%{y:,.4~g}",
) -> dict[str, Any]:  # fmt: skip
    """A line trace."""
    # A single point is no line.
    mode = "lines+markers" if len(x) == 1 else mode
    trace = {"type": "scatter", "mode": mode, "x": x, "y": y, "name": name, "yaxis": yaxis, "marker": {"size": 4}}
    look = {"color": colour, "width": width, "dash": dash, "shape": shape}
    return trace | {"line": look, "hovertemplate": hover}


def marks(x: Any, y: Any, name: str, marker: dict[str, Any], hover: str) -> dict[str, Any]:
    """A trace of points. hover: what is said of one, or "" for nothing."""
    trace = {"type": "scatter", "mode": "markers", "x": x, "y": y, "name": name, "marker": marker}
    return trace | ({"hovertemplate": hover} if hover else {"hoverinfo": "skip"})


def overlaid(
    runs: Sequence[RunSeries], draw: Callable[[str, RunSeries], Drawn | None]
) -> tuple[list[dict[str, Any]], list[list[Any]]]:
    """Traces and table rows of several runs, each in its colour; draw: those of one, or None while it has nothing.

    Where there are more runs than colours, the lines of the further ones are dashed.
    """
    data: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for number, (colour, run) in enumerate(zip(cycle(SERIES_COLOURS), runs, strict=False)):
        if found := draw(colour, run):
            further = number >= len(SERIES_COLOURS)
            data += [trace | {"line": trace["line"] | {"dash": "dash"}} if further else trace for trace in found[0]]
            rows.append(found[1])
    return data, rows


def together(
    runs: Sequence[RunSeries], layout: dict[str, Any], data: list[dict[str, Any]], rows: list[list[Any]],
    columns: tuple[str, ...], words: Callable[..., str],
) -> Chart:  # fmt: skip
    """The chart of what `overlaid` gave. columns: of the rows, after the run's own; words: what to say of a row."""
    columns = ("policy" if of_texts(runs) else "setting", *columns)
    if not data:
        doing, done = ("text is read", "read") if of_texts(runs) else ("models write", "generated")
        return empty(layout, f"appears while the {doing}", f"Nothing has been {done} yet.", columns)
    if not alone(runs):
        legend(layout, data)
    summary = "; ".join(words(*row) for row in rows) + "."
    return Chart(data, layout, summary[0].upper() + summary[1:], columns, rows)


def by_chunk(
    runs: Sequence[RunSeries], column: Callable[[RunSeries], Sequence[float]], unit: str, what: str
) -> Chart:
    """A number of every chunk of the texts that are read, against position. what: the last number, in words."""
    layout = axes("position in the text", unit)
    layout["yaxis"]["rangemode"] = "tozero"

    def draw(colour: str, run: RunSeries) -> Drawn | None:
        if not column(run):
            return None
        at = sample(len(run), FEWER)
        values = np.array(column(run))[at]
        trace = line(np.array(run.context)[at], rounded(values, 2), colour, run.name)
        return [trace], [run.label, run.read, cell(values[-1])]

    data, rows = overlaid(runs, draw)
    return together(runs, layout, data, rows, ("tokens", unit), lambda name, _, last: f"{name}: {last:,} {what}")


def colour_bar(title: str) -> dict[str, Any]:
    return {"thickness": 6, "outlinewidth": 0, "len": 0.9, "nticks": 4, "title": {"text": title, "side": "right"}}


def legend(layout: dict[str, Any], data: Sequence[dict[str, Any]]) -> None:
    """Names the traces above the chart, those with a colon in their name (a ceiling, a target) left out."""
    for trace in data:
        trace["showlegend"] = ":" not in trace["name"]
    layout |= {
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 11}},
    }
    layout["margin"]["t"] = 26


def note(x: float, y: float, text: str, anchor: str, xref: str = "paper", yref: str = "paper") -> dict[str, Any]:
    place = {"x": x, "y": y, "xref": xref, "yref": yref, "xanchor": anchor}
    place["yanchor"] = "bottom" if yref == "y" or y > 1 else "middle"
    return place | {"text": text, "showarrow": False, "font": {"size": 11, "color": "@muted"}}


def mark_x(
    layout: dict[str, Any], x: float, colour: str, words: str, log: bool = False, y: float = 0.04, anchor: str = "right"
) -> None:
    """Marks a place on x with a dotted line, and words beside it at the height `y`: 0 to 1, more is above."""
    layout["shapes"].append(dotted(colour, x=x))
    place = {"yanchor": "middle", "xshift": -3 if anchor == "right" else 3, "font": {"size": 11, "color": colour}}
    layout["annotations"].append(note(math.log10(x) if log else x, y, words, anchor, xref="x") | place)


def dotted(colour: str, x: float | None = None, y: float | None = None) -> dict[str, Any]:
    """A dotted line across the chart, at a place on x or at one on y."""
    look = {"type": "line", "line": {"color": colour, "width": 1.2, "dash": "dot"}}
    if y is None:
        return look | {"xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1}
    return look | {"xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": y, "y1": y}


def area(low: float, high: float, colour: str) -> dict[str, Any]:
    """A stretch of x in a colour, below the lines."""
    place = {"xref": "x", "yref": "paper", "x0": low, "x1": high, "y0": 0, "y1": 1}
    return place | {"type": "rect", "fillcolor": colour, "line": {"width": 0}, "layer": "below"}


def share(place: int, of: int, gap: float) -> list[float]:
    """The stretch of an axis that one of several charts beside each other has, with a gap between two of them."""
    size = (1 - gap * (of - 1)) / of
    return [round(place * (size + gap), 4), round(place * (size + gap) + size, 4)]


def table_rows(*columns: np.ndarray) -> list[list[Any]]:
    """At most about 12 rows of the columns, for reading: four significant digits, empty where nothing is known."""
    at = sample(len(columns[0]), 12)
    return [[cell(column[i]) for column in columns] for i in at]


def cell(value: float) -> float | int | str:
    """A number for a table: whole, or with four significant digits; "" where nothing is known."""
    if not np.isfinite(value):
        return ""
    return int(value) if float(value).is_integer() else float(f"{value:.4g}")


def rounded(values: np.ndarray, digits: int) -> np.ndarray:
    """Rounded, so that the JSON stays short."""
    return np.round(np.asarray(values, dtype=np.float64), digits)
