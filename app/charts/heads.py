"""Attention logits of all heads of one layer, a small chart each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from app.charts import drawing
from app.charts.base import SLOW, Chart, LiveChart
from app.series import RunSeries
from backend.steps import Logits

# Shares of the chart's width and height that lie between two small charts.
GAP = 0.03
MOST = 36


class Heads(LiveChart):
    """The mean logit of every head of the watched layer, on the same axes; the watched head stands out."""

    name = "heads"
    title = "All heads of the layer"
    tabs = {"generate": "How strongly each head scores a word on average, by how far back it seems"}
    order = 52
    period = SLOW

    def draw(self, runs: Sequence[RunSeries]) -> Chart:
        recorded = runs[0].logits
        if recorded is None or recorded.heads is None:
            layout = drawing.axes("perceived distance in tokens", "logit")
            return drawing.empty(layout, "heads appear while the model writes", "No logits of all heads were recorded.")
        return _grid(recorded)


def shown_heads(heads: int, watched: int) -> list[int]:
    """All heads, or about MOST of them, evenly spread, the watched one included."""
    return sorted({watched, *np.linspace(0, heads - 1, min(heads, MOST)).round().astype(int).tolist()})


def _grid(recorded: Logits) -> Chart:
    means = recorded.heads
    assert means is not None
    shown = shown_heads(len(means), recorded.head)
    columns = math.ceil(math.sqrt(len(shown)))
    layout, across, up = _scales(recorded.distance, means)
    x = drawing.rounded(np.maximum(recorded.distance, 0.5), 2)
    data: list[dict[str, Any]] = []
    for place, head in enumerate(shown):
        number = str(place + 1) if place else ""
        colour, width = ("@c1", 2.2) if head == recorded.head else ("@muted", 1.4)
        line = drawing.line(x, drawing.rounded(means[head], 2), colour, f"head {head}", width, yaxis=f"y{number}")
        data.append(line | {"xaxis": f"x{number}", "hovertemplate": "%{y:,.4~g}"})
        layout[f"xaxis{number}"], layout[f"yaxis{number}"] = _cell(place, columns, len(shown), number, across, up)
        name = drawing.note(0.97, 0.97, str(head), "right", f"x{number} domain", f"y{number} domain")
        layout["annotations"].append(name | {"yanchor": "top", "font": {"size": 11, "color": colour}})
    near, far = means[:, 0], means[:, -1]
    summary = (
        f"Layer {recorded.layer}: the nearest keys score highest in head {int(near.argmax())} (mean logit "
        f"{near.max():.2f}) and lowest in head {int(near.argmin())} ({near.min():.2f}), the farthest highest in head "
        f"{int(far.argmax())} ({far.max():.2f}) and lowest in head {int(far.argmin())} ({far.min():.2f})."
    )
    rows = [[head, drawing.cell(near[head]), drawing.cell(far[head])] for head in range(len(means))]
    return Chart(data, layout, summary, ("head", "nearest", "farthest"), rows)


def _scales(distance: np.ndarray, means: np.ndarray) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A layout without axes, and the two axes that all small charts have alike."""
    layout = drawing.axes("", "")
    drawing.distance_axis(layout, max(0.5, float(distance.max())))
    across, up = layout.pop("xaxis"), layout.pop("yaxis")
    # A small chart has room for every other label.
    across |= {name: across[name][::2] for name in ("tickvals", "ticktext")} | {"tickangle": 0}
    up |= {"range": [5 * math.floor(means.min() / 5), 5 * math.ceil(means.max() / 5)], "nticks": 3}
    return layout | {"hovermode": "closest", "margin": {"l": 34, "r": 8, "t": 8, "b": 36}}, across, up


def _cell(
    place: int, columns: int, cells: int, number: str, across: dict[str, Any], up: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The axes of the small chart at a place; those at the left and at the bottom have labels."""
    row, column = divmod(place, columns)
    below, rows = place + columns >= cells, math.ceil(cells / columns)
    titled = (below and column == columns // 2) or cells == 1
    words = {"text": "perceived distance in tokens" if titled else "", "standoff": 6}
    x = {"domain": drawing.share(column, columns, GAP), "anchor": f"y{number}", "showticklabels": below, "title": words}
    y = {"domain": drawing.share(rows - 1 - row, rows, GAP), "anchor": f"x{number}", "showticklabels": column == 0}
    return across | x, up | y
