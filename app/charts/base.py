"""What all charts are made of: the chart itself, its axes, lines, marks and table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import orjson

from app.charts.palette import PALETTES, SERIES_COLOURS, resolve
from app.series import Series, sample

Run = TypeVar("Run")
Drawn = tuple[list[dict[str, Any]], list[Any]]
POINTS = 160


@dataclass
class Chart:
    """data, layout: Plotly's, with colour names. summary: one or two sentences. columns, rows: the same as a table."""

    data: list[dict[str, Any]]
    layout: dict[str, Any]
    summary: str
    columns: tuple[str, ...] = ()
    rows: list[list[Any]] = field(default_factory=list)


def encode(chart: Chart, run: int | str = 0, frame: int = 0) -> str:
    """JSON for the page. A change of `run` lets the page forget the reader's zoom; `frame` counts within a run."""
    payload = {
        "run": str(run),
        "frame": frame,
        "data": chart.data,
        "layout": _with_origin(chart),
        "summary": chart.summary,
        "columns": chart.columns,
        "rows": chart.rows,
    }
    return orjson.dumps(payload, default=np.ndarray.tolist, option=orjson.OPT_SERIALIZE_NUMPY).decode()


def _with_origin(chart: Chart) -> dict[str, Any]:
    """The layout; x begins at 0 where all points have one x, which by itself would be shown from half a token before it
    to half a token after."""
    axis = chart.layout.get("xaxis", {})
    found = {float(x) for trace in chart.data for x in trace.get("x", ()) if isinstance(x, int | float | np.number)}
    if len(found) != 1 or not {"range", "autorangeoptions"}.isdisjoint(axis) or axis.get("type", "linear") != "linear":
        return chart.layout
    return chart.layout | {"xaxis": axis | {"autorangeoptions": {"include": [0]}}}


def figure(chart: Chart, theme: str = "light") -> Any:
    """A plotly.graph_objects.Figure of the chart, for notebooks and files."""
    import plotly.graph_objects as go

    colours = PALETTES[theme]
    return go.Figure(resolve(chart.data, theme), resolve(chart.layout, theme)).update_layout(
        paper_bgcolor=colours["paper"], plot_bgcolor=colours["paper"], font_color=colours["ink"]
    )


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


def planned(series: Series) -> float:
    """Tokens that an axis should have place for: the target and a little more until that is passed."""
    target = (series.target[-1] or 0) if series.settings.goal_unit == "tokens" else 0
    planned = 1.1 * target if len(series) <= 1.1 * target else room(len(series))
    return min(planned, series.settings.max_new_tokens)


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


def empty(layout: dict[str, Any], words: str) -> dict[str, Any]:
    """The layout of a chart that has nothing to show, with a word about why."""
    layout["annotations"].append(note(0.5, 0.5, words, "center"))
    for axis in ("xaxis", "yaxis"):
        layout[axis] |= {"showticklabels": False, "showgrid": False}
    return layout


def line(
    x,
    y,
    colour: str,
    name: str,
    width: float = 2,
    dash: str = "solid",
    yaxis: str = "y",
    shape: str = "linear",
    mode: str = "lines",
    hover: str = "%{y:,.4~g}",
) -> dict[str, Any]:
    """A line trace."""
    return {
        "type": "scatter",
        "mode": mode,
        "x": x,
        "y": y,
        "name": name,
        "yaxis": yaxis,
        "marker": {"size": 4},
        "line": {"color": colour, "width": width, "dash": dash, "shape": shape},
        "hovertemplate": hover,
    }


def overlaid(
    runs: Iterable[Run], draw: Callable[[str, Run], Drawn | None]
) -> tuple[list[dict[str, Any]], list[list[Any]]]:
    """Traces and table rows of several runs, each in its colour; draw: those of one, or None while it has nothing."""
    drawn = [found for colour, run in zip(SERIES_COLOURS, runs, strict=False) if (found := draw(colour, run))]
    return [trace for traces, _ in drawn for trace in traces], [row for _, row in drawn]


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
    return {
        "x": x,
        "y": y,
        "xref": xref,
        "yref": yref,
        "text": text,
        "showarrow": False,
        "xanchor": anchor,
        "yanchor": "bottom" if yref == "y" or y > 1 else "middle",
        "font": {"size": 11, "color": "@muted"},
    }


def mark_x(
    layout: dict[str, Any], x: float, colour: str, words: str, log: bool = False, y: float = 0.04, anchor: str = "right"
) -> None:
    """Marks a place on x with a dotted line, and words beside it at the height `y` (0 to 1)."""
    layout["shapes"].append(
        {
            "type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1,
            "line": {"color": colour, "width": 1.2, "dash": "dot"},
        }
    )  # fmt: skip
    place = {"yanchor": "middle", "xshift": -3 if anchor == "right" else 3, "font": {"size": 11, "color": colour}}
    layout["annotations"].append(note(math.log10(x) if log else x, y, words, anchor, xref="x") | place)


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


def signed(number: int) -> str:
    """+3, −2 or ±0."""
    return "±0" if number == 0 else f"{'+' if number > 0 else '−'}{abs(number):,}"
