"""Recorded measurements: figures of a card as charts, the papers' own tables, and how result files are downloaded."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from app.charts import drawing
from app.charts.base import Chart
from app.charts.entropy import layer_colour, layer_scale
from app.charts.palette import SERIES_COLOURS, SYMBOLS
from app.charts.states import points
from backend.evaluation.card import Axis, Curve, Figure
from backend.evaluation.markdown import table
from backend.record.results import RESULTS

FOLDER = RESULTS
# Where a file is downloaded: what stands before its name.
LINK = "lab/results/"
# The papers' own figures: other models and other data.
PUBLISHED = RESULTS.parent / "published"


def drawn(figure: Figure) -> Chart:
    """A figure of a card as a chart."""
    layout = drawing.axes(figure.x.title, figure.y.title)
    layout["xaxis"] |= _axis(figure.x)
    layout["yaxis"] |= _axis(figure.y)
    data = list(_curves(figure))
    if figure.mark:
        place, words = figure.mark
        drawing.mark_x(layout, place, "@muted", words, log=figure.x.log, y=0.94)
    if any(curve.depth is not None for curve in figure.curves):
        data.append(layer_scale(len(figure.curves)))
    elif not figure.scale:
        drawing.legend(layout, data)
    return Chart(data, layout, figure.words, figure.columns, [list(row) for row in figure.rows])


def _axis(axis: Axis) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "log"} if axis.log else {}
    if axis.ticks:
        made |= {"tickvals": list(axis.ticks), "ticktext": list(axis.ticks.values())}
    if axis.ends:
        made["range"] = [math.log10(end) if axis.log else end for end in axis.ends]
    return made | ({"rangemode": "tozero"} if axis.zero else {})


def _curves(figure: Figure) -> Iterator[dict[str, Any]]:
    """A trace a curve, dotted once the colours are used up; a ceiling has the colour of the curve before it."""
    colours, symbols = cycle(product(("solid", "dot"), SERIES_COLOURS)), cycle(SYMBOLS)
    top = max((max(curve.shades, default=0.0) for curve in figure.curves), default=0.0)
    stroke, colour = "solid", SERIES_COLOURS[0]
    scale = figure.scale
    for curve in figure.curves:
        if curve.depth is not None:
            yield drawing.line(curve.x, curve.y, layer_colour(curve.depth), curve.name, width=1.2)
            continue
        if curve.shades:
            yield _points(curve, next(symbols), top, scale)
            scale = None
            continue
        if not curve.ceiling:
            stroke, colour = next(colours)
        dash, width = ("dash", 1.0) if curve.ceiling else (stroke, 2.0)
        if curve.x:
            trace = drawing.line(curve.x, curve.y, colour, curve.name, width=width, dash=dash, mode=curve.mode)
            yield trace | ({"marker": {"size": 8}} if curve.mode == "markers" else {})


def _points(curve: Curve, symbol: str, top: float, scale: Any) -> dict[str, Any]:
    """scale: ticks of the bar beside the chart, None for no bar."""
    plane, shades = np.column_stack([curve.x, curve.y]), np.asarray(curve.shades)
    trace = points(plane, shades, curve.name, symbol, 0, top, bar=scale is not None)
    if scale:
        trace["marker"]["colorbar"] |= {"tickvals": list(scale), "ticktext": list(scale.values())}
    return trace


def published(folder: Path = PUBLISHED) -> str:
    """The papers' tables as Markdown."""
    papers = [json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*.json"))]
    return "\n\n".join(
        f"**{each['caption']}**\n\n{table(each['columns'], each['rows'])}"
        for paper in papers
        for each in paper["tables"]
    )


def names() -> list[str]:
    """Every result file that is there, as a path within the folder."""
    return sorted(file.relative_to(FOLDER).as_posix() for file in FOLDER.rglob("*.json"))


def route() -> Route:
    """Where result files are downloaded."""
    return Route(f"/{LINK}{{name:path}}", _download)


async def _download(request: Request) -> Response:
    name = request.path_params["name"]
    return FileResponse(FOLDER / name) if name in names() else Response(status_code=404)
