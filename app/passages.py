"""A long text read under several policies: what accumulates chunk by chunk, and its charts, pure like `app.charts`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app import charts
from app.charts import SERIES_COLOURS, Chart, Drawn
from app.series import sample
from backend.measures.principal_components import components
from backend.steps import Logits

BINS = 120
STATES = 240
SYMBOLS = ("circle", "diamond", "square", "cross", "triangle-up", "x", "star")


@dataclass
class Passage:
    """One reading of a text: per chunk its end position, mean nll (nats), speed, cache, entropy and attended keys.

    written: what the model went on with.
    """

    name: str
    wanted: int
    position: list[int] = field(default_factory=list)
    nll: list[np.ndarray] = field(default_factory=list)
    speed: list[float] = field(default_factory=list)
    cache: list[int] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    attended: list[int] = field(default_factory=list)
    states: list[np.ndarray] = field(default_factory=list)
    state_positions: list[np.ndarray] = field(default_factory=list)
    logits: Logits | None = None
    cap: float = float("inf")
    written: str = ""

    def add(self, chunk: Any) -> None:
        """Takes a backend.evaluation.perplexity.Chunk."""
        self.position.append(int(chunk.position))
        self.nll.append(np.asarray(chunk.nll, dtype=np.float32))
        self.speed.append(float(chunk.tokens_per_second))
        self.cache.append(int(chunk.cache_bytes))
        self.attended.append(int(chunk.attended))
        self.entropy.append(float(np.mean(chunk.entropy)) if chunk.entropy is not None else float("nan"))
        if chunk.states is not None and len(chunk.states):
            self.states.append(np.asarray(chunk.states, dtype=np.float32))
            self.state_positions.append(np.asarray(chunk.state_positions))
        self.logits = chunk.logits or self.logits

    @property
    def read(self) -> int:
        """Tokens read so far."""
        return self.position[-1] if self.position else 0

    @property
    def perplexity(self) -> float:
        """exp of the mean nll so far."""
        return float(np.exp(np.mean(np.concatenate(self.nll)))) if self.nll else float("nan")


def nll(passages: Sequence[Passage], training_length: int | None = None) -> Chart:
    """Negative log-likelihood, averaged over stretches of tokens, against position."""
    layout = charts.axes("position in the text", "nats per token")
    data, rows = charts.overlaid(passages, _nll)
    if training_length and data and max(p.read for p in passages) > training_length * 0.8:
        charts.mark_x(layout, training_length, "@muted", f"trained {training_length:,}")
    words = [f"{name}: perplexity {perplexity:,.4g} over {tokens:,} tokens" for name, tokens, _, perplexity in rows]
    return _chart(data, layout, words, ("policy", "tokens", "nats per token", "perplexity"), rows)


def entropy(passages: Sequence[Passage]) -> Chart:
    """Mean attention entropy of each chunk's last row, under the ceiling ln(attended)."""
    layout = charts.axes("position in the text", "nats")
    data, rows = charts.overlaid(passages, _entropy)
    layout["yaxis"]["rangemode"] = "tozero"
    words = [f"{name}: {value} nats of at most {top}" for name, _, value, top in rows]
    return _chart(data, layout, words, ("policy", "tokens", "mean entropy", "ceiling"), rows)


def logits(passages: Sequence[Passage], training_length: int | None = None) -> Chart:
    """Mean attention logits of the watched head by perceived distance, at the last token read."""
    layout = charts.axes("perceived distance in tokens", "logit")
    data, rows = charts.overlaid(
        passages, lambda colour, passage: charts.head_logits(passage.logits, colour, passage.name, passage.name)
    )
    for colour, passage in zip(SERIES_COLOURS, passages, strict=False):
        if passage.logits is not None and np.isfinite(passage.cap):
            charts.mark_x(layout, passage.cap, colour, f"cap {passage.cap:,.0f}", log=True, y=0.06)
    charts.distance_axis(layout, max([training_length or 1.0, *(float(trace["x"].max()) for trace in data)]))
    if training_length and data:
        charts.mark_x(layout, training_length, "@muted", f"trained {training_length:,}", log=True, y=0.94)
    words = [f"{name}: {near} near, {far} at a distance of {at:,.0f}" for name, near, far, at in rows]
    return _chart(data, layout, words, ("policy", "nearest", "farthest", "at distance"), rows)


def states(passages: Sequence[Passage]) -> Chart:
    """First-layer states in the plane of their common two principal components; one symbol a policy."""
    layout = charts.axes("first component", "second component")
    layout["hovermode"] = "closest"
    tables = []
    for passage in passages:
        if passage.states:
            vectors, places = np.concatenate(passage.states), np.concatenate(passage.state_positions)
            at = sample(len(vectors), STATES)
            tables.append((passage.name, vectors[at], places[at]))
    if not tables or sum(len(vectors) for _, vectors, _ in tables) < 3:
        return Chart([], charts.empty(layout, "states appear while the text is read"), "Too few states for a PCA.")
    model = components(np.concatenate([vectors for _, vectors, _ in tables]))
    top = max(int(places.max()) for *_, places in tables)
    data: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for symbol, (name, vectors, places) in zip(SYMBOLS, tables, strict=False):
        points = charts.rounded(model.transform(vectors), 3)
        data.append(charts.points(points, places, name, symbol, 0, top, bar=not data))
        rows.append([name, len(points), charts.cell(points[:, 0].mean()), charts.cell(points[:, 1].mean())])
    first, second = model.explained_variance_ratio_
    words = [f"one PCA over all readings; its components hold {first:.0%} and {second:.0%} of the variance"]
    return _chart(data, layout, words, ("policy", "states", "mean of first", "mean of second"), rows)


def speed(passages: Sequence[Passage]) -> Chart:
    """Tokens read a second, chunk by chunk."""
    return _column(passages, lambda p: p.speed, "tokens/s", "tokens a second at the end")


def memory(passages: Sequence[Passage]) -> Chart:
    """Bytes held by the key/value cache, in MiB."""
    return _column(passages, lambda p: [size / 2**20 for size in p.cache], "MiB", "MiB of cache at the end")


def _nll(colour: str, passage: Passage) -> Drawn | None:
    if not passage.nll:
        return None
    values = np.concatenate(passage.nll)
    width = max(1, int(np.ceil(len(values) / BINS)))
    starts = np.arange(0, len(values), width)
    means = np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values)))
    trace = charts.line(starts + width // 2, charts.rounded(means, 3), colour, passage.name)
    return [trace], [passage.name, passage.read, charts.cell(values.mean()), charts.cell(passage.perplexity)]


def _entropy(colour: str, passage: Passage) -> Drawn | None:
    if not passage.position:
        return None
    at = sample(len(passage.position), BINS)
    x, values = np.array(passage.position)[at], np.array(passage.entropy)[at]
    ceiling = np.log(np.maximum(np.array(passage.attended)[at], 1))
    data = [
        charts.line(x, charts.rounded(values, 3), colour, passage.name),
        charts.line(x, charts.rounded(ceiling, 3), colour, f"{passage.name}: ceiling", width=1, dash="dash"),
    ]
    return data, [passage.name, passage.read, charts.cell(values[-1]), charts.cell(ceiling[-1])]


def _column(passages: Sequence[Passage], values: Callable[[Passage], Sequence[float]], unit: str, what: str) -> Chart:
    layout = charts.axes("position in the text", unit)
    layout["yaxis"]["rangemode"] = "tozero"

    def draw(colour: str, passage: Passage) -> Drawn | None:
        if not passage.position:
            return None
        at = sample(len(passage.position), BINS)
        column = np.array(values(passage))[at]
        trace = charts.line(np.array(passage.position)[at], charts.rounded(column, 2), colour, passage.name)
        return [trace], [passage.name, passage.read, charts.cell(column[-1])]

    data, rows = charts.overlaid(passages, draw)
    words = [f"{name}: {value:,} {what}" for name, _, value in rows]
    return _chart(data, layout, words, ("policy", "tokens", unit), rows)


def _chart(
    data: list[dict[str, Any]],
    layout: dict[str, Any],
    words: Sequence[str],
    columns: tuple[str, ...],
    rows: list[list[Any]],
) -> Chart:
    if not data:
        return Chart([], charts.empty(layout, "appears while the text is read"), "Nothing has been read yet.")
    charts.legend(layout, data)
    summary = "; ".join(words) + "."
    return Chart(data, layout, summary[0].upper() + summary[1:], columns, rows)
