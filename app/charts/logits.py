"""Attention logits of one layer and head against perceived distance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np

from app.charts import drawing
from app.charts.base import Chart, LiveChart, alone, of_texts
from app.charts.palette import SERIES_COLOURS
from app.series import RunSeries
from backend.positions import policy_of
from backend.steps import Logits

OF_SEVERAL = "How strongly one head scores a word on average, by how far back it seems"


class AttentionLogits(LiveChart):
    """Logits before the softmax of the watched layer and head: their range in one run, the means of several."""

    name = "logits"
    title = "Attention logits"
    tabs = {
        "generate": "How strongly one head scores a word, by how far back it seems",
        "try": OF_SEVERAL,
        "compare": OF_SEVERAL,
        "long": OF_SEVERAL,
    }
    order = 50

    def draw(self, runs: Sequence[RunSeries]) -> Chart:
        run = alone(runs)
        return _together(runs) if run is None else _alone(run)


def _alone(run: RunSeries) -> Chart:
    """Pre-softmax attention logits of the watched layer and head against perceived distance."""
    layout = drawing.axes("perceived distance in tokens", "logit")
    recorded = run.logits
    if recorded is None:
        return drawing.empty(layout, "logits appear while the model writes", "No attention logits were recorded.")
    x = np.maximum(recorded.distance, 0.5)
    band = {
        "type": "scatter",
        "x": drawing.rounded(np.concatenate([x, x[::-1]]), 2),
        "y": drawing.rounded(np.concatenate([recorded.high, recorded.low[::-1]]), 3),
        "fill": "toself",
        "fillcolor": "@c1/0.16",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "name": "lowest to highest",
        "mode": "lines",
    }
    means = _means(recorded, "@c1", f"layer {recorded.layer}, head {recorded.head}", width=2.2)
    if run.finish is None:
        low, high = run.extremes
        drawing.grows(layout["yaxis"], 10 * math.floor(low / 10), 10 * math.ceil(high / 10))
    cap = policy_of(run.settings).limit
    drawing.distance_axis(layout, max([float(x.max()), run.training_length or 1, cap if math.isfinite(cap) else 1]))
    _mark_training(layout, run)
    if math.isfinite(cap):
        drawing.mark_x(layout, cap, "@c2", f"cap {cap:,.0f}", log=True, y=0.06)
    layout["annotations"].append(drawing.note(0, 1.02, f"layer {recorded.layer} · head {recorded.head}", "left"))
    near, far = recorded.mean[0], recorded.mean[-1]
    summary = (
        f"Layer {recorded.layer}, head {recorded.head}: mean logit {near:.2f} for the nearest keys and {far:.2f} for "
        f"the farthest, at a perceived distance of {recorded.distance[-1]:.0f}."
    )
    rows = drawing.table_rows(recorded.distance, recorded.mean, recorded.low, recorded.high)
    return Chart([band, means], layout, summary, ("perceived distance", "mean", "lowest", "highest"), rows)


def _together(runs: Sequence[RunSeries]) -> Chart:
    """Mean attention logit of the watched head against perceived distance; of texts also where distances are capped."""
    layout = drawing.axes("perceived distance in tokens", "logit")
    data, rows = drawing.overlaid(runs, _mean)
    for colour, run in zip(cycle(SERIES_COLOURS), runs, strict=False):
        cap = policy_of(run.settings).limit
        if run.to_read and run.logits is not None and math.isfinite(cap):
            drawing.mark_x(layout, cap, colour, f"cap {cap:,.0f}", log=True, y=0.06)
    trained = runs[0].training_length if runs else None
    drawing.distance_axis(layout, max([trained or 1.0, *(float(trace["x"].max()) for trace in data)]))
    if data:
        _mark_training(layout, runs[0])
    words = "{}: {} near, {}" if of_texts(runs) else "{} {:.2f} near, {:.2f}"
    return drawing.together(
        runs, layout, data, rows, ("nearest", "farthest", "at distance"),
        lambda name, near, far, at: f"{words.format(name, near, far)} at a distance of {at:,.0f}",
    )  # fmt: skip


def _mean(colour: str, run: RunSeries) -> drawing.Drawn | None:
    recorded = run.logits
    if recorded is None:
        return None
    ends = recorded.mean[0], recorded.mean[-1], recorded.distance[-1]
    return [_means(recorded, colour, run.name)], [run.label, *map(drawing.cell, ends)]


def _means(recorded: Logits, colour: str, name: str, width: float = 2) -> dict[str, Any]:
    x, mean = drawing.rounded(np.maximum(recorded.distance, 0.5), 2), drawing.rounded(recorded.mean, 3)
    return drawing.line(x, mean, colour, name, width=width, mode="lines+markers")


def _mark_training(layout: dict[str, Any], run: RunSeries) -> None:
    if run.training_length:
        drawing.mark_x(layout, run.training_length, "@muted", f"trained {run.training_length:,}", log=True, y=0.94)
