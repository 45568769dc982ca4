"""Attention logits of one layer and head against perceived distance."""

from __future__ import annotations

import math

import numpy as np

from app.charts.base import (
    Chart,
    Drawn,
    axes,
    cell,
    distance_axis,
    empty,
    grows,
    line,
    mark_x,
    note,
    rounded,
    table_rows,
)
from app.series import Series
from backend.positions import policy_of
from backend.steps import Logits


def logits(series: Series, training_length: int | None = None) -> Chart:
    """(c) Pre-softmax attention logits of the watched layer and head against perceived distance."""
    layout = axes("perceived distance in tokens", "logit")
    recorded = series.logits
    if recorded is None:
        return Chart([], empty(layout, "logits appear while the model writes"), "No attention logits were recorded.")
    x, mean = np.maximum(recorded.distance, 0.5), rounded(recorded.mean, 3)
    band_x = np.concatenate([x, x[::-1]])
    band_y = rounded(np.concatenate([recorded.high, recorded.low[::-1]]), 3)
    band = {
        "type": "scatter",
        "x": rounded(band_x, 2),
        "y": band_y,
        "fill": "toself",
        "fillcolor": "@c1/0.16",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "name": "lowest to highest",
        "mode": "lines",
    }
    means = line(
        rounded(x, 2), mean, "@c1", f"layer {recorded.layer}, head {recorded.head}", width=2.2, mode="lines+markers"
    )
    if series.finish is None:
        low, high = series.extremes
        grows(layout["yaxis"], 10 * math.floor(low / 10), 10 * math.ceil(high / 10))
    cap = policy_of(series.settings).limit
    distance_axis(layout, max([float(x.max()), training_length or 1, cap if math.isfinite(cap) else 1]))
    if training_length:
        mark_x(layout, training_length, "@muted", f"trained {training_length:,}", log=True, y=0.94)
    if math.isfinite(cap):
        mark_x(layout, cap, "@c2", f"cap {cap:,.0f}", log=True, y=0.06)
    layout["annotations"].append(note(0, 1.02, f"layer {recorded.layer} · head {recorded.head}", "left"))
    near, far = recorded.mean[0], recorded.mean[-1]
    summary = (
        f"Layer {recorded.layer}, head {recorded.head}: mean logit {near:.2f} for the nearest keys and {far:.2f} for "
        f"the farthest, at a perceived distance of {recorded.distance[-1]:.0f}."
    )
    rows = table_rows(recorded.distance, recorded.mean, recorded.low, recorded.high)
    return Chart([band, means], layout, summary, ("perceived distance", "mean", "lowest", "highest"), rows)


def head_logits(recorded: Logits | None, colour: str, name: str, label: str) -> Drawn | None:
    """Mean logits by perceived distance as one of several lines, and its row: nearest, farthest, at which distance."""
    if recorded is None:
        return None
    x, mean = rounded(np.maximum(recorded.distance, 0.5), 2), rounded(recorded.mean, 3)
    row = [label, cell(recorded.mean[0]), cell(recorded.mean[-1]), cell(recorded.distance[-1])]
    return [line(x, mean, colour, name, mode="lines+markers")], row
