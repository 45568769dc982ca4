"""Perplexity of Λ and of truncation against what they compute for a token, as in 002 figure 4."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import exp
from statistics import fmean

import numpy as np
from pydantic import BaseModel

from app import charts
from app.charts import Chart
from app.results import Figure, Recorded, Shown, Table, decimal, figure

LAMBDA = "Λ"
PUBLISHED = "002 figure 4, by BLEU: Λ takes a quarter of the operations that truncation takes for as good a text."


class Point(BaseModel):
    """One text read with one window. nats: mean of its tokens; operations: for each of them."""

    attention: str
    window: int
    document: str
    nats: float
    operations: float


class Computation(Recorded):
    """assets/results/computation.json. first, stop: the tokens of each text that were measured."""

    first: int
    stop: int
    rows: list[Point]


def compared(result: Computation) -> Shown:
    """Perplexity over operations, a line for each attention and a point for each window."""
    read = _whole(result.rows)
    curves = _curves(read)
    layout = charts.axes("billions of operations a token", "perplexity")
    layout["xaxis"]["type"] = "log"
    layout["xaxis"] |= {"tickvals": [0.25, 0.5, 1, 2], "ticktext": ["0.25", "0.5", "1", "2"]}
    rows, data = [], []
    for colour, (name, points) in zip(charts.SERIES_COLOURS, curves.items(), strict=False):
        cost = [round(operations / 1e9, 4) for operations, _ in points.values()]
        found = [round(exp(nats), 2) for _, nats in points.values()]
        data.append(charts.line(cost, found, colour, name, mode="lines+markers", hover="%{y:.1f}"))
        rows += [
            [name, f"{window:,}", figure(operations), figure(perplexity)]
            for window, operations, perplexity in zip(points, cost, found, strict=True)
        ]
    charts.legend(layout, data)
    texts = len({row.document for row in read})
    spared = _spared(curves)
    told = f"Tokens {result.first:,} to {result.stop:,} of {texts} texts. {spared} {PUBLISHED}"
    columns = ("attention", "window", "billions of operations a token", "perplexity")
    drawn = Figure(
        "Perplexity by computation (002 figure 4)",
        "A point a window; truncation reads anew what its window holds",
        Chart(data, layout, spared, columns, rows),
    )
    return Shown(" ".join(told.split()), [Table("By window", list(columns), rows)], [drawn])


def _whole(rows: Sequence[Point]) -> list[Point]:
    """Of the texts that were read in every way."""
    ways = {(row.attention, row.window) for row in rows}
    count = Counter(row.document for row in rows)
    return [row for row in rows if count[row.document] == len(ways)]


def _curves(rows: Sequence[Point]) -> dict[str, dict[int, tuple[float, float]]]:
    """Operations and nats by attention and window, means over the texts; Λ first."""
    cells: dict[tuple[str, int], list[Point]] = {}
    for row in rows:
        cells.setdefault((row.attention, row.window), []).append(row)
    curves: dict[str, dict[int, tuple[float, float]]] = {}
    for (attention, window), found in sorted(cells.items(), key=lambda cell: (cell[0][0] != LAMBDA, cell[0])):
        means = fmean(row.operations for row in found), fmean(row.nats for row in found)
        curves.setdefault(attention, {})[window] = means
    return curves


def _spared(curves: dict[str, dict[int, tuple[float, float]]]) -> str:
    """What truncation at its cheapest computes for the perplexity that Λ has with each window."""
    told = []
    for window, (cost, nats) in curves.get(LAMBDA, {}).items():
        others = [price for name, points in curves.items() if name != LAMBDA and (price := _price(points, nats))]
        if others:
            told.append(f"{decimal(min(others) / cost)} × with a window of {window:,}")
    if not told:
        return ""
    return f"For the perplexity of Λ truncation takes, of Λ’s operations, {', '.join(told)}."


def _price(points: dict[int, tuple[float, float]], nats: float) -> float | None:
    """Operations at which a curve comes to some nats, between its points; None beyond them."""
    cost, found = np.array(list(points.values())).T
    if not found.min() <= nats <= found.max():
        return None
    order = np.argsort(found)
    return float(np.interp(nats, found[order], cost[order]))
