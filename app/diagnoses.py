"""Recorded diagnoses of what breaks far into a text, as in 002 figure 1: logits, entropy and first-layer states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel

from app import charts, passages
from app.charts import Chart
from app.passages import SYMBOLS, Passage
from app.results import Figure, Recorded, Shown, Table, figure

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


class Diagnoses(Recorded):
    """assets/results/diagnoses.json. length: tokens of each text; trained: those that the model was trained on."""

    length: int
    trained: int | None = None
    readings: list[Reading]
    states: States


def diagnosed(result: Diagnoses) -> Shown:
    """The three panels of 002 figure 1, and the ranges behind them as a table."""
    plain = next((reading for reading in result.readings if reading.policy == PLAIN), None)
    head = plain.logits[0].head if plain and plain.logits else 0
    entropy = passages.entropy([_entropy(reading) for reading in result.readings])
    figures = [
        Figure("First-layer states", "Coloured by position in the text (002 figure 1c)", _states(result)),
        Figure("Attention entropy", "Mean over layers and heads, under ln(attended) (002 figure 1b)", entropy),
    ]
    if plain and plain.logits:
        hint = "Plain attention, the last token's; one line a layer (002 figure 1a)"
        figures.insert(0, Figure(f"Logits of head {head}, every layer", hint, _logits(plain.logits, result.trained)))
    rows = [
        [
            reading.policy,
            figure(float(reading.position[-1])),
            f"{_extreme(reading.logits, 'low', min):,.0f} to {_extreme(reading.logits, 'high', max):,.0f}",
            f"{_extreme(reading.logits, 'distance', max):,.0f}",
            f"{np.mean(reading.entropy[-1]):.2f} of {math.log(reading.attended[-1]):.2f}",
        ]
        for reading in result.readings
    ]
    columns = ["policy", "tokens read", f"logits of head {head}", "farthest distance", "entropy of its ceiling, nats"]
    trained = f"; the model was trained on {result.trained:,}" if result.trained else ""
    words = [f"Texts of {result.length:,} tokens{trained}."]
    if result.trained:
        words += [_rising(plain.logits if plain else [], result.trained), _leaving(result.states, result.trained)]
    return Shown(" ".join(filter(None, words)), [Table("At the end of the text", columns, rows)], figures)


def _rising(layers: Sequence[HeadLogits], trained: int) -> str:
    """In how many layers the logits grow beyond training, as 002 §3.1 expects: on average, and at their largest."""
    rises = [found for row in layers if (found := _rises(row, trained))]
    if not rises:
        return ""
    mean, size = map(sum, zip(*rises, strict=True))
    return (
        f"The mean logit of distances beyond {trained:,} is higher than that from {trained // 2:,} on in {mean} of "
        f"{len(rises)} layers; the largest size of a logit there exceeds the largest within {trained:,} in {size}."
    )


def _rises(row: HeadLogits, trained: int) -> tuple[bool, bool] | None:
    """Whether the mean logit beyond training is above that of the farther half within it, and the largest size of a
    logit above the largest within; None where one of these has no distances."""
    distance, mean = np.array(row.distance), np.array(row.mean)
    size = np.maximum(np.abs(row.low), np.abs(row.high))
    far = distance > trained
    near = (distance > trained / 2) & ~far
    if not far.any() or not near.any():
        return None
    return bool(mean[far].mean() > mean[near].mean()), bool(size[far].max() > size[~far].max())


def _leaving(states: States, trained: int) -> str:
    """How many states beyond training lie outside the ranges of both components within it, text by text."""
    outside = np.concatenate([_outside(text, trained) for text in states.texts] or [np.empty(0, bool)])
    if not len(outside):
        return ""
    return (
        f"Of {len(outside)} first-layer states past token {trained:,}, {outside.sum()} lie outside the ranges of the "
        "same text’s states before it."
    )


def _outside(text: Places, trained: int) -> np.ndarray:
    """For each state of a text beyond training, whether one of its components is none that a state within has."""
    plane, far = np.column_stack([text.x, text.y]), np.array(text.position) >= trained
    if far.all():
        return np.empty(0, bool)
    known = plane[~far]
    return ((plane[far] < known.min(0)) | (plane[far] > known.max(0))).any(1)


def _extreme(logits: Sequence[HeadLogits], key: str, choose: Any) -> float:
    return choose((value for row in logits for value in getattr(row, key)), default=math.nan)


def _logits(logits: Sequence[HeadLogits], trained: int | None) -> Chart:
    layout = charts.axes("perceived distance in tokens", "logit")
    last = max(1, len(logits) - 1)
    data: list[dict[str, Any]] = []
    for row in logits:
        x = np.maximum(row.distance, 0.5)
        data.append(charts.line(x, row.mean, charts.layer_colour(row.layer / last), f"layer {row.layer}", width=1.2))
    charts.distance_axis(layout, _extreme(logits, "distance", max))
    if trained:
        charts.mark_x(layout, trained, "@muted", f"trained {trained:,}", log=True, y=0.94)
    data.append(charts.layer_scale(len(logits)))
    rows = [[row.layer, row.mean[0], row.mean[-1], min(row.low), max(row.high)] for row in logits]
    low, high = _extreme(logits, "low", min), _extreme(logits, "high", max)
    words = f"The logits of {len(logits)} layers lie between {low:,.0f} and {high:,.0f}."
    return Chart(data, layout, words, ("layer", "nearest", "farthest", "lowest", "highest"), rows)


def _entropy(reading: Reading) -> Passage:
    mean = [float(np.mean(layers)) for layers in reading.entropy]
    wanted = reading.position[-1]
    return Passage(reading.policy, wanted, reading.position, entropy=mean, attended=reading.attended)


def _states(result: Diagnoses) -> Chart:
    first, second = result.states.explained
    layout = charts.axes(f"first component, {first:.0%} of the variance", f"second, {second:.0%}")
    top = float(_shade(result.length))
    data: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for symbol, text in zip(SYMBOLS, result.states.texts, strict=False):
        plane = np.column_stack([text.x, text.y])
        data.append(charts.points(plane, _shade(text.position), text.document, symbol, 0, top, bar=not data))
        rows.append([text.document, len(plane), *map(charts.cell, plane[0]), *map(charts.cell, plane[-1])])
    if data:
        marks = [0, *(10**n for n in range(1, 1 + int(top)))]
        data[0]["marker"]["colorbar"] |= {"tickvals": _shade(marks), "ticktext": [f"{mark:,}" for mark in marks]}
    columns = ("text", "states", "first token: x", "y", "last token: x", "y")
    words = f"One PCA over {len(rows)} texts; its components hold {first:.0%} and {second:.0%} of the variance."
    return Chart(data, layout, words, columns, rows)


def _shade(positions: Any) -> np.ndarray:
    """Positions as places on a scale that gives the first tokens, which lie apart, colours of their own."""
    return np.log10(1 + np.asarray(positions))
