"""Recorded diagnoses of what breaks far into a text, as in 002 figure 1: logits, entropy and first-layer states."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel

from app.charts import drawing, live_charts
from app.charts.base import Chart
from app.charts.entropy import layer_colour, layer_scale
from app.charts.palette import SYMBOLS
from app.charts.states import points
from app.results import Figure
from app.series import RunSeries
from backend.settings import RunSettings

PLAIN = "plain"


class HeadLogits(BaseModel):
    """Logits of one head of a layer, by perceived distance: mean, lowest and highest of each bin."""

    layer: int
    head: int
    distance: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


class Reading(BaseModel):
    """One text under one policy. attended, entropy [layers]: at each `position`, the number of tokens read."""

    document: str
    policy: str
    position: list[int]
    attended: list[int]
    entropy: list[list[float]]
    logits: list[HeadLogits]


class Places(BaseModel):
    """First-layer outputs of a text in the common plane, at positions in it."""

    document: str
    position: list[int]
    x: list[float]
    y: list[float]


class States(BaseModel):
    """explained: shares of the variance along both components."""

    explained: tuple[float, float]
    texts: list[Places]


class Diagnoses(BaseModel):
    """assets/results/diagnoses.json. length: tokens of each text; trained: those that the model was trained on."""

    length: int
    trained: int | None = None
    readings: list[Reading]
    states: States


def figures(result: Mapping[str, Any]) -> list[Figure]:
    """The three panels of 002 figure 1."""
    found = Diagnoses.model_validate(result)
    plain = next((reading for reading in found.readings if reading.policy == PLAIN), None)
    entropy = live_charts["entropy"].draw([_entropy(reading) for reading in found.readings])
    drawn = [
        Figure("First-layer states", "Coloured by position in the text (002 figure 1c)", _states(found)),
        Figure("Attention entropy", "Mean over layers and heads, under ln(attended) (002 figure 1b)", entropy),
    ]
    if plain and plain.logits:
        title = f"Logits of head {plain.logits[0].head}, every layer"
        hint = "Plain attention, the last token's; one line a layer (002 figure 1a)"
        logits = Figure(title, hint, _logits(plain.logits, found.trained))
        drawn.insert(0, logits)
    return drawn


def _extreme(logits: Sequence[HeadLogits], key: str, choose: Any) -> float:
    return choose((value for row in logits for value in getattr(row, key)), default=math.nan)


def _logits(logits: Sequence[HeadLogits], trained: int | None) -> Chart:
    layout = drawing.axes("perceived distance in tokens", "logit")
    last = max(1, len(logits) - 1)
    data: list[dict[str, Any]] = []
    for row in logits:
        x = np.maximum(row.distance, 0.5)
        data.append(drawing.line(x, row.mean, layer_colour(row.layer / last), f"layer {row.layer}", width=1.2))
    drawing.distance_axis(layout, _extreme(logits, "distance", max))
    if trained:
        drawing.mark_x(layout, trained, "@muted", f"trained {trained:,}", log=True, y=0.94)
    data.append(layer_scale(len(logits)))
    rows = [[row.layer, row.mean[0], row.mean[-1], min(row.low), max(row.high)] for row in logits]
    low, high = _extreme(logits, "low", min), _extreme(logits, "high", max)
    words = f"The logits of {len(logits)} layers lie between {low:,.0f} and {high:,.0f}."
    return Chart(data, layout, words, ("layer", "nearest", "farthest", "lowest", "highest"), rows)


def _entropy(reading: Reading) -> RunSeries:
    layers = [np.array(each) for each in reading.entropy]
    return RunSeries(
        RunSettings(prompt="…"), reading.policy, to_read=reading.position[-1], context=reading.position,
        attended=reading.attended, entropy=layers,
    )  # fmt: skip


def _states(result: Diagnoses) -> Chart:
    first, second = result.states.explained
    layout = drawing.axes(f"first component, {first:.0%} of the variance", f"second, {second:.0%}")
    top = float(_shade(result.length))
    data: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for symbol, text in zip(SYMBOLS, result.states.texts, strict=False):
        plane = np.column_stack([text.x, text.y])
        data.append(points(plane, _shade(text.position), text.document, symbol, 0, top, bar=not data))
        rows.append([text.document, len(plane), *map(drawing.cell, plane[0]), *map(drawing.cell, plane[-1])])
    if data:
        marks = [0, *(10**n for n in range(1, 1 + int(top)))]
        data[0]["marker"]["colorbar"] |= {"tickvals": _shade(marks), "ticktext": [f"{mark:,}" for mark in marks]}
    columns = ("text", "states", "first token: x", "y", "last token: x", "y")
    words = f"One PCA over {len(rows)} texts; its components hold {first:.0%} and {second:.0%} of the variance."
    return Chart(data, layout, words, columns, rows)


def _shade(positions: Any) -> np.ndarray:
    """Positions as places on a scale that gives the first tokens, which lie apart, colours of their own."""
    return np.log10(1 + np.asarray(positions))
