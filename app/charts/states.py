"""The first layer's states in the plane of their first two principal components."""

from __future__ import annotations

from typing import Any

import numpy as np

from app.charts.base import Chart, axes, colour_bar, empty, note, rounded, table_rows
from app.charts.palette import PLACE_SCALE
from app.series import Series, pick, sample
from backend.measures.principal_components import components

STATES = 360


def states(series: Series) -> Chart:
    """(d) The first two principal components of the first layer's states, coloured by position (002 fig. 1)."""
    layout = axes("first component", "second component")
    positions, vectors, prompt = states_table(series)
    if len(vectors) < 3:
        return Chart(
            [], empty(layout, "states appear while the model writes"), "Too few states were recorded for a PCA."
        )
    model = components(vectors)
    plane = rounded(model.transform(vectors), 3)
    top = int(positions.max())
    data = [
        points(plane[chosen], positions[chosen], name, symbol, 0, top, bar=name == "prompt" or not prompt.any())
        for name, chosen, symbol in (("prompt", prompt, "circle"), ("response", ~prompt, "diamond"))
        if chosen.any()
    ]
    layout["hovermode"] = "closest"
    first, second = model.explained_variance_ratio_
    layout["annotations"].append(note(0, 1.02, "● prompt   ◆ response", "left"))
    summary = (
        f"{len(vectors)} first-layer states; the two components hold {first:.0%} and {second:.0%} of their variance."
    )
    order = np.argsort(positions)
    rows = table_rows(positions[order], plane[order, 0], plane[order, 1])
    return Chart(data, layout, summary, ("position", "first component", "second component"), rows)


def points(
    plane: np.ndarray, positions: np.ndarray, name: str, symbol: str, low: float, high: float, bar: bool
) -> dict[str, Any]:
    """Points [k, 2] coloured by position on a scale from `low` to `high`; bar: with the scale beside the chart."""
    marker: dict[str, Any] = {
        "size": 6,
        "symbol": symbol,
        "color": positions,
        "cmin": low,
        "cmax": high,
        "colorscale": PLACE_SCALE,
        "showscale": bar,
        "line": {"width": 0.5, "color": "@paper"},
    }
    if bar:
        marker["colorbar"] = colour_bar("position")
    return {
        "type": "scatter",
        "mode": "markers",
        "x": plane[:, 0],
        "y": plane[:, 1],
        "name": name,
        "customdata": positions,
        "marker": marker,
        "hovertemplate": f"{name}, position %{{customdata}}<extra></extra>",
    }


def states_table(series: Series) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions [k], states [k, d] (float32) and whether each belongs to the prompt [k]."""
    if not series.states:
        return np.zeros(0, np.int64), np.zeros((0, 0), np.float32), np.zeros(0, bool)
    at = sample(len(series.states), STATES // 2)
    positions = pick(series.context, at).astype(np.int64)
    vectors = np.array([series.states[i] for i in at], dtype=np.float32)
    reading = series.reading
    if reading is None or not reading.states.size:
        return positions, vectors, np.zeros(len(at), dtype=bool)
    rows = sample(len(reading.positions), STATES // 2)
    prompt = reading.states[rows].astype(np.float32)
    positions = np.concatenate([reading.positions[rows], positions])
    vectors = np.concatenate([prompt, vectors])
    return positions, vectors, np.arange(len(positions)) < len(rows)
