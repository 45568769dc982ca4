"""Attention entropy of every layer at every token, in shares of its ceiling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.charts import drawing
from app.charts.base import SLOW, Chart, LiveChart
from app.charts.entropy import table
from app.charts.palette import PLACE_SCALE
from app.series import RunSeries


class EntropyMap(LiveChart):
    """How widely each layer (down) looks at each token (across): 0 at one token, 1 at all it may see alike."""

    name = "entropy_map"
    title = "Entropy by layer"
    tabs = {"generate": "How widely every layer looks, in shares of its ceiling: 1 is all tokens alike"}
    order = 42
    period = SLOW

    def draw(self, runs: Sequence[RunSeries]) -> Chart:
        run = runs[0]
        layout = drawing.axes("tokens read", "layer")
        if not run.entropy:
            return drawing.empty(layout, "entropy appears while the model writes", "No attention entropy was recorded.")
        context, ceiling, values = table(run)
        # One token alone leaves no choice, and so no ceiling.
        shares = values / np.maximum(ceiling, 1e-9)[:, None] * (ceiling > 0)[:, None]
        heat = {
            "type": "heatmap",
            "x": context,
            "y": list(range(shares.shape[1])),
            "z": drawing.rounded(shares.T, 3),
            "colorscale": PLACE_SCALE,
            "zmin": 0,
            "zmax": 1,
            "colorbar": drawing.colour_bar("share"),
            "hovertemplate": "layer %{y}, %{x} tokens read<br>%{z:.0%} of its ceiling<extra></extra>",
        }
        layout["hovermode"] = "closest"
        layout["xaxis"]["showgrid"] = layout["yaxis"]["showgrid"] = False
        if run.reading is not None and len(run):
            # Above the map, on whose colours no one word can be read.
            drawing.mark_x(layout, run.reading.tokens, "@ink", "response", y=1.05, anchor="left")
        last = shares[-1]
        summary = (
            f"At {int(context[-1])} tokens layer {int(last.argmax())} looks most widely ({last.max():.0%} of its "
            f"ceiling) and layer {int(last.argmin())} most narrowly ({last.min():.0%})."
        )
        rows = [[layer, drawing.cell(of.mean()), drawing.cell(of[-1])] for layer, of in enumerate(shares.T)]
        return Chart([heat], layout, summary, ("layer", "mean share", "share at the end"), rows)
