"""Attention entropy of some layers against context length, under its ceiling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from app.charts.base import Chart, axes, colour_bar, empty, grows, line, mark_x, planned, rounded, table_rows
from app.charts.palette import LAYER_SCALE
from app.series import Series, pick, sample

STRETCHES = 64
LAYERS = 7


def entropy(series: Series) -> Chart:
    """(b) Attention entropy, mean over heads, of some layers against context length, under its ceiling ln(attended)."""
    layout = axes("tokens read", "nats")
    if not series.entropy:
        return Chart([], empty(layout, "entropy appears while the model writes"), "No attention entropy was recorded.")
    context, ceiling, values = entropy_table(series)
    layers = values.shape[1]
    watched = min(series.settings.watch.layer, layers - 1)
    shown = sorted({int(i) for i in np.linspace(0, layers - 1, min(LAYERS, layers)).round()} | {watched})
    data = [line(context, ceiling, "@ink", "ceiling ln(attended)", width=1.4, dash="dash")]
    for layer in shown:
        colour = layer_colour(layer / max(1, layers - 1))
        bold = layer == watched
        data.append(line(context, values[:, layer], colour, f"layer {layer}", width=3 if bold else 1.2))
    data.append(layer_scale(layers))
    layout["yaxis"]["rangemode"] = "tozero"
    if series.finish is None:
        grows(layout["xaxis"], context[-1] - len(series) + planned(series))
        grows(layout["yaxis"], math.ceil(math.log(context[-1] - len(series) + series.settings.max_new_tokens)))
    if series.reading is not None and len(series):
        mark_x(layout, series.reading.tokens, "@muted", "response", anchor="left")
    last = values[-1]
    share = float(np.mean(last) / ceiling[-1]) if ceiling[-1] > 0 else 0.0
    summary = (
        f"Mean attention entropy {np.mean(last):.2f} nats of a ceiling of {ceiling[-1]:.2f} ({share:.0%}) at "
        f"{int(context[-1])} tokens; sharpest layer {int(np.argmin(last))} ({np.min(last):.2f}), "
        f"most spread layer {int(np.argmax(last))} ({np.max(last):.2f})."
    )
    rows = table_rows(context, ceiling, *(values[:, layer] for layer in shown))
    return Chart(data, layout, summary, ("tokens read", "ceiling", *(f"layer {i}" for i in shown)), rows)


def entropy_table(series: Series) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Context [k], ceiling [k] and entropy meaned over heads [k, layers], the prompt's rows first.

    Of a long response, stretches of tokens are averaged, and their context and ceiling are those of the last one.
    """
    n = len(series.entropy)
    starts = sample(n, STRETCHES)[:-1] if n > STRETCHES else np.arange(n)
    ends = np.append(starts[1:], n)
    context, attended = pick(series.context, ends - 1), pick(series.attended, ends - 1)
    values = np.add.reduceat(np.array(series.entropy), starts, axis=0) / (ends - starts)[:, None]
    reading = series.reading
    if reading is not None:
        context = np.concatenate([reading.positions + 1, context])
        attended = np.concatenate([reading.attended, attended])
        values = np.concatenate([reading.entropy.mean(axis=2), values])
    return context, rounded(np.log(np.maximum(attended, 1)), 3), rounded(values, 3)


def layer_colour(depth: float) -> str:
    """The colour of a layer, by its depth from 0 to 1."""
    return f"@layer{round(depth * 6)}"


def layer_scale(layers: int) -> dict[str, Any]:
    """No point, but the scale of the layers' colours beside the chart."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [None],
        "y": [None],
        "hoverinfo": "skip",
        "marker": {
            "color": [0],
            "cmin": 0,
            "cmax": layers - 1,
            "colorscale": LAYER_SCALE,
            "showscale": True,
            "colorbar": colour_bar("layer"),
        },
    }
