"""The share of attention on the first tokens, the sinks, against context length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from app.charts import drawing
from app.charts.base import Chart, LiveChart, alone, of_texts
from app.charts.entropy import layer_colour, layer_scale, shown_layers, thinned
from app.series import RunSeries, pick
from backend.steps import SINKS

OF_SEVERAL = f"Share of attention on the first {SINKS} tokens, mean over layers and heads"


class Sinks(LiveChart):
    """How much attention rests on the first tokens: by layer of one run, or the mean of each of several."""

    name = "sinks"
    title = "Attention sinks"
    tabs = {
        "generate": f"By layer, the share of attention on the first {SINKS} tokens",
        "compare": OF_SEVERAL,
        "long": OF_SEVERAL,
    }
    order = 55

    def draw(self, runs: Sequence[RunSeries]) -> Chart:
        run = alone(runs)
        return _together(runs) if run is None else _alone(run)


def _alone(run: RunSeries) -> Chart:
    layout = _axes("tokens read")
    if not run.sink_share:
        return drawing.empty(layout, "appears while the model writes", "No share of attention was recorded.")
    context, values = table(run)
    layers = values.shape[1]
    shown = shown_layers(layers, min(run.settings.watch.layer, layers - 1))
    data = [
        drawing.line(context, values[:, layer], layer_colour(layer / max(1, layers - 1)), f"layer {layer}", width=1.2)
        for layer in shown
    ]
    mean = drawing.rounded(values.mean(axis=1), 4)
    data += [drawing.line(context, mean, "@ink", "mean of all layers", width=2.4), layer_scale(layers)]
    if run.finish is None:
        drawing.grows(layout["xaxis"], context[-1] - len(run) + drawing.planned(run))
    last = values[-1]
    summary = (
        f"At {int(context[-1])} tokens {mean[-1]:.0%} of attention is on the first {SINKS}; most in layer "
        f"{int(np.argmax(last))} ({np.max(last):.0%}), least in layer {int(np.argmin(last))} ({np.min(last):.0%})."
    )
    rows = drawing.table_rows(context, mean, *(values[:, layer] for layer in shown))
    return Chart(data, layout, summary, ("tokens read", "mean", *(f"layer {i}" for i in shown)), rows)


def _together(runs: Sequence[RunSeries]) -> Chart:
    texts = of_texts(runs)
    layout = _axes("position in the text" if texts else "tokens read")
    data, rows = drawing.overlaid(runs, _mean)
    columns = ("tokens" if texts else "tokens read", "share on the first tokens")
    return drawing.together(runs, layout, data, rows, columns, lambda name, _, share: f"{name}: {share:.0%}")


def _axes(x: str) -> dict[str, Any]:
    layout = drawing.axes(x, "share of attention")
    layout["yaxis"] |= {"range": [0, 1], "tickformat": ".0%"}
    return layout


def _mean(colour: str, run: RunSeries) -> drawing.Drawn | None:
    if not run.sink_share:
        return None
    context, values = table(run)
    mean = drawing.rounded(values.mean(axis=1), 4)
    row = [run.label, int(context[-1]), drawing.cell(mean[-1])]
    return [drawing.line(context, mean, colour, run.name, hover="%{y:.1%}")], row


def table(run: RunSeries) -> tuple[np.ndarray, np.ndarray]:
    """Context [k] and the share of each layer [k, layers]."""
    at, values = thinned(run, run.sink_share)
    return pick(run.sink_context, at), drawing.rounded(values, 4)
