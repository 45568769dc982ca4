"""Which earlier token each token sees, and how far away it seems."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.charts import drawing
from app.charts.base import Chart, LiveChart
from app.charts.palette import PLACE_SCALE
from app.charts.positions import context_length
from app.series import RunSeries, sample
from backend.positions import policy_of

MASK_CELLS = 72


class Mask(LiveChart):
    """Which earlier token (across) each token (down) sees, and how far away it seems; of several runs, the first's."""

    name = "mask"
    title = "Shape of the mask"
    tabs = {"generate": "Which token sees which, and how far it seems"}
    order = 100
    preview = True

    def draw(self, runs: Sequence[RunSeries]) -> Chart:
        run = runs[0]
        policy, tokens = policy_of(run.settings), context_length(run)
        at = np.unique(np.linspace(0, tokens - 1, min(MASK_CELLS, tokens)).astype(np.int64))
        distance = np.where(at[None, :] <= at[:, None], policy.distance(at, at), np.nan)
        seen = ~np.isnan(distance)
        heat = {
            "type": "heatmap",
            "x": at,
            "y": at,
            "z": drawing.rounded(distance, 1),
            "colorscale": [[1 - at, colour] for at, colour in reversed(PLACE_SCALE)],
            "hoverongaps": False,
            "zmin": 0,
            "colorbar": drawing.colour_bar("perceived distance"),
            "hovertemplate": "token %{y} sees token %{x}<br>at a distance of %{z:,.0f}<extra></extra>",
        }
        layout = drawing.axes("key: the token looked at", "query")
        layout["hovermode"] = "closest"
        layout["yaxis"] |= {"autorange": "reversed", "showgrid": False}
        layout["xaxis"]["showgrid"] = False
        causal = len(at) * (len(at) + 1) / 2
        share = float(seen.sum() / causal)
        far = float(np.nanmax(distance))
        summary = (
            f"Of all pairs a causal model could use among {tokens:,} tokens, {share:.0%} are seen; "
            f"the largest perceived distance is {far:,.0f}."
        )
        chosen = at[sample(len(at), 10)]
        rows = [[int(t), int(np.sum(~np.isnan(policy.distance(np.array([t]), np.arange(t + 1)))))] for t in chosen]
        return Chart([heat], layout, summary, ("token", "tokens it sees"), rows)
