"""Which earlier token each token sees, and how far away it seems."""

from __future__ import annotations

import numpy as np

from app.charts.base import Chart, axes, colour_bar, rounded
from app.charts.palette import PLACE_SCALE
from app.series import sample
from backend.positions import policy_of
from backend.settings import RunSettings

MASK_CELLS = 72


def mask(settings: RunSettings, tokens: int) -> Chart:
    """(f) Which earlier token (across) each token (down) sees, and how far away it seems; empty: not seen."""
    policy = policy_of(settings)
    at = np.unique(np.linspace(0, tokens - 1, min(MASK_CELLS, tokens)).astype(np.int64))
    distance = np.where(at[None, :] <= at[:, None], policy.distance(at, at), np.nan)
    seen = ~np.isnan(distance)
    heat = {
        "type": "heatmap",
        "x": at,
        "y": at,
        "z": rounded(distance, 1),
        "colorscale": [[1 - at, colour] for at, colour in reversed(PLACE_SCALE)],
        "hoverongaps": False,
        "zmin": 0,
        "colorbar": colour_bar("perceived distance"),
        "hovertemplate": "token %{y} sees token %{x}<br>at a distance of %{z:,.0f}<extra></extra>",
    }
    layout = axes("key: the token looked at", "query")
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
