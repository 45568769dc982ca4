"""Attention entropy against context length, under its ceiling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from app.charts import drawing
from app.charts.base import Chart, LiveChart, alone, of_texts
from app.charts.palette import LAYER_SCALE
from app.series import RunSeries, pick, sample, stretches

STRETCHES = 64
LAYERS = 7
OF_SEVERAL = "How widely it looks, on average. Dashed: looking at everything equally."


class Entropy(LiveChart):
    """How widely attention spreads: of some layers of one run, or the mean of each of several."""

    name = "entropy"
    title = "Attention entropy"
    tabs = {
        "try": OF_SEVERAL,
        "generate": "How widely each layer looks. Dashed: looking at everything equally.",
        "compare": OF_SEVERAL,
        "long": OF_SEVERAL,
    }
    order = 40

    def draw(self, runs: Sequence[RunSeries]) -> Chart:
        run = alone(runs)
        return _together(runs) if run is None else _alone(run)


def _alone(run: RunSeries) -> Chart:
    """Attention entropy, mean over heads, of some layers against context length, under its ceiling ln(attended)."""
    layout = drawing.axes("tokens read", "nats")
    if not run.entropy:
        return drawing.empty(layout, "entropy appears while the model writes", "No attention entropy was recorded.")
    context, ceiling, values = table(run)
    layers = values.shape[1]
    watched = min(run.settings.watch.layer, layers - 1)
    shown = shown_layers(layers, watched)
    data = [drawing.line(context, ceiling, "@ink", "ceiling ln(attended)", width=1.4, dash="dash")]
    for layer in shown:
        colour = layer_colour(layer / max(1, layers - 1))
        bold = layer == watched
        data.append(drawing.line(context, values[:, layer], colour, f"layer {layer}", width=3 if bold else 1.2))
    data.append(layer_scale(layers))
    layout["yaxis"]["rangemode"] = "tozero"
    if run.finish is None:
        drawing.grows(layout["xaxis"], context[-1] - len(run) + drawing.planned(run))
        drawing.grows(layout["yaxis"], math.ceil(math.log(context[-1] - len(run) + run.settings.max_new_tokens)))
    if run.reading is not None and len(run):
        drawing.mark_x(layout, run.reading.tokens, "@muted", "response", anchor="left")
    last = values[-1]
    share = float(np.mean(last) / ceiling[-1]) if ceiling[-1] > 0 else 0.0
    summary = (
        f"Mean attention entropy {np.mean(last):.2f} nats of a ceiling of {ceiling[-1]:.2f} ({share:.0%}) at "
        f"{int(context[-1])} tokens; sharpest layer {int(np.argmin(last))} ({np.min(last):.2f}), "
        f"most spread layer {int(np.argmax(last))} ({np.max(last):.2f})."
    )
    rows = drawing.table_rows(context, ceiling, *(values[:, layer] for layer in shown))
    return Chart(data, layout, summary, ("tokens read", "ceiling", *(f"layer {i}" for i in shown)), rows)


def _together(runs: Sequence[RunSeries]) -> Chart:
    """Attention entropy, mean over layers and heads, each under its own ceiling."""
    texts = of_texts(runs)
    layout = drawing.axes("position in the text" if texts else "tokens read", "nats")
    layout["yaxis"]["rangemode"] = "tozero"
    data, rows = drawing.overlaid(runs, _mean)
    words = "{}: {} nats of at most {}" if texts else "{} {:.2f} nats of {:.2f}"
    columns = ("tokens" if texts else "tokens read", "mean entropy", "ceiling")
    return drawing.together(
        runs, layout, data, rows, columns, lambda name, _, mean, ceiling: words.format(name, mean, ceiling)
    )


def _mean(colour: str, run: RunSeries) -> drawing.Drawn | None:
    if not run.entropy:
        return None
    context, ceiling, values = table(run)
    mean = drawing.rounded(values.mean(axis=1), 3)
    data = [
        drawing.line(context, mean, colour, run.name, width=2 if run.to_read else 2.2),
        drawing.line(context, ceiling, colour, f"{run.name}: ceiling", width=1, dash="dash"),
    ]
    return data, [run.label, int(context[-1]), drawing.cell(mean[-1]), drawing.cell(ceiling[-1])]


def table(run: RunSeries) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Context [k], ceiling [k] and entropy meaned over heads [k, layers], the prompt's rows first."""
    at, values = thinned(run, run.entropy)
    context, attended = pick(run.context, at), pick(run.attended, at)
    reading = run.reading
    if reading is not None:
        context = np.concatenate([reading.positions + 1, context])
        attended = np.concatenate([reading.attended, attended])
        values = np.concatenate([reading.entropy.mean(axis=2), values])
    return context, drawing.rounded(np.log(np.maximum(attended, 1)), 3), drawing.rounded(values, 3)


def thinned(run: RunSeries, rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Of rows [n, layers] that a run recorded as many as are drawn [k, layers], and where each ends in them [k].

    Of a long response, stretches of tokens are averaged; of a text, chunks are picked.
    """
    if run.to_read:
        at = sample(len(rows), drawing.FEWER)
        return at, np.array(rows)[at]
    starts, ends = stretches(len(rows), STRETCHES)
    return ends - 1, np.add.reduceat(np.array(rows), starts, axis=0) / (ends - starts)[:, None]


def shown_layers(layers: int, watched: int) -> list[int]:
    """A few layers of all depths, and the one that is watched."""
    return sorted({int(i) for i in np.linspace(0, layers - 1, min(LAYERS, layers)).round()} | {watched})


def layer_colour(depth: float) -> str:
    """The colour of a layer, by its depth from 0 to 1."""
    return f"@layer{round(depth * 6)}"


def layer_scale(layers: int) -> dict[str, Any]:
    """No point, but the scale of the layers' colours beside the chart."""
    scale = {"color": [0], "cmin": 0, "cmax": layers - 1, "colorscale": LAYER_SCALE, "showscale": True}
    return drawing.marks([None], [None], "layers", scale | {"colorbar": drawing.colour_bar("layer")}, "")
