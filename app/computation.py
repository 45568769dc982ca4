"""Perplexity of Λ and of truncation against what they compute for a token, as in 002 figure 4."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from typing import Any

from app.charts import drawing
from app.charts.base import Chart
from app.charts.palette import SERIES_COLOURS
from app.results import Figure
from backend.evaluation.computation import curves, whole
from backend.evaluation.markdown import figure


def figures(result: Mapping[str, Any]) -> list[Figure]:
    """Perplexity over operations, a line for each attention and a point for each window."""
    read = whole(result["rows"])
    layout = drawing.axes("billions of operations a token", "perplexity")
    layout["xaxis"] |= {"type": "log", "tickvals": [0.25, 0.5, 1, 2], "ticktext": ["0.25", "0.5", "1", "2"]}
    rows, data = [], []
    for colour, (name, points) in zip(SERIES_COLOURS, curves(read).items(), strict=False):
        cost = [round(operations / 1e9, 4) for operations, _ in points.values()]
        found = [round(exp(nats), 2) for _, nats in points.values()]
        data.append(drawing.line(cost, found, colour, name, mode="lines+markers", hover="%{y:.1f}"))
        rows += [
            [name, f"{window:,}", figure(operations), figure(perplexity)]
            for window, operations, perplexity in zip(points, cost, found, strict=True)
        ]
    drawing.legend(layout, data)
    texts = len({row["document"] for row in read})
    words = f"Tokens {result['first']:,} to {result['stop']:,} of {texts} texts; intervals stand in the table."
    columns = ("attention", "window", "billions of operations a token", "perplexity")
    hint = "A point a window; truncation reads anew what its window holds"
    return [Figure("Perplexity by computation (002 figure 4)", hint, Chart(data, layout, words, columns, rows))]
