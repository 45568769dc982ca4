"""The length signal that a method shows: what is added at each token of the answer (003 appendix A)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.charts import drawing
from app.charts.base import SLOW, Chart, LiveChart
from app.charts.palette import PLACE_SCALE
from app.series import RunSeries, sample
from backend.methods import methods
from backend.methods.signal import SignalMethod
from backend.text.units import tolerance

# Tokens across and pairs of the embedding down, the quickest first; an embedding's width where no state tells it.
COLUMNS, PAIRS, WIDTH = 96, 48, 576
# How far beyond its target a run is drawn.
BEYOND = 1.15


class Signal(LiveChart):
    """The first of each pair of numbers (down) that a method shows at each token (across), before its gain."""

    name = "signal"
    title = "Signal"
    tabs = {"generate": "What tells the model how far it has to go: added at each token, one row a pair of dimensions"}
    order = 20
    period = SLOW
    seldom = True

    def draw(self, runs: Sequence[RunSeries]) -> Chart:
        run = runs[0]
        method = methods[run.settings.method]
        layout = drawing.axes("token of the answer", "pair of dimensions")
        columns = ("token", "tokens to come", "first pair")
        if not isinstance(method, SignalMethod) or (shown := _shown(method, run)) is None:
            return drawing.empty(layout, "no signal", "The model is shown no signal.", columns)
        at, left, values = shown
        heat = {
            "type": "heatmap",
            "x": at,
            "y": list(range(1, values.shape[1] + 1)),
            "z": drawing.rounded(values.T, 2),
            "colorscale": PLACE_SCALE,
            "zmin": -1,
            "zmax": 1,
            "colorbar": drawing.colour_bar("value"),
            "hovertemplate": "token %{x:,}, pair %{y}<br>%{z:.2f}<extra></extra>",
        }
        layout["hovermode"] = "closest"
        layout["xaxis"]["showgrid"] = layout["yaxis"]["showgrid"] = False
        layout["yaxis"]["autorange"] = "reversed"
        if run.finish is None:
            drawing.mark_x(layout, len(run) - run.thought, "@ink", "now", y=1.05, anchor="left")
        summary = f"A signal over {int(at[-1]):,} tokens: after the last of them {int(left[-1]):,} are to come."
        return Chart([heat], layout, summary, columns, drawing.table_rows(at, left, values[:, 0]))


def _shown(method: SignalMethod, run: RunSeries) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Tokens of the response [k], tokens that are to come at each [k], and what is shown there [k, pairs]; None before
    the first token of an answer."""
    import torch

    # Thoughts come before the answer, and nothing is to come of them.
    goals = [number + left for number, left in enumerate((n for n in run.remaining if n is not None), 1)]
    if not goals:
        return None
    goals += [goals[-1]] * (round(BEYOND * goals[-1]) - len(goals))
    at = sample(len(goals), COLUMNS)
    ends = np.array([goals[i] + int(tolerance(goals[i], "tokens")) * method.slack for i in at])
    rows = method.rows(torch.from_numpy(at + 1), torch.from_numpy(ends), len(run.states[-1]) if run.states else WIDTH)
    return at + 1, np.maximum(ends - at - 1, 0), rows[:, : 2 * PAIRS : 2].numpy()
