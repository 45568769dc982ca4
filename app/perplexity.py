"""Recorded perplexity as curves: nats of a token by how far into a text it stands (002 figure 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

from app.charts import drawing
from app.charts.base import Chart
from app.charts.palette import SERIES_COLOURS
from app.results import Figure

# Tokens of a point, those over which the tables take their perplexity; and where lines are cut off.
POINT, CEILING = 1024, 12.0
# They come first, so that each has one colour in all 
FIRST = ("plain", "Λ", "truncation")


def figures(result: Mapping[str, Any]) -> list[Figure]:
    """The curves of a file that `evaluate perplexity` wrote."""
    readings = result["readings"]
    documents = sorted({reading["document"] for reading in readings})
    of = documents[0] if len(documents) == 1 else f"{len(documents)} texts"
    hint = f"Mean over {POINT:,} tokens to a point (002 figure 3); truncation reads anew for each of its points"
    return [Figure(f"Nats against position: {of}", hint, _chart(result, readings))]


def _chart(result: Mapping[str, Any], readings: Sequence[Mapping[str, Any]]) -> Chart:
    layout = drawing.axes("tokens read", "nats of a token")
    data, rows = [], []
    policies = dict.fromkeys((*FIRST, *(reading["policy"] for reading in readings)))
    for colour, policy in zip(SERIES_COLOURS, policies, strict=False):
        curve = _curve(readings, policy)
        farthest = max((reading["position"][-1] for reading in readings if reading["policy"] == policy), default=0)
        at = curve if max(curve, default=0) >= farthest else _points(result, policy)
        if at:
            x, y = list(at), list(at.values())
            mode = "lines" if at is curve else "markers"
            data.append(drawing.line(x, y, colour, policy, mode=mode) | {"marker": {"size": 8}})
            rows.append([policy, f"{x[-1]:,}", f"{min(y):.2f}", f"{y[-1]:.2f}"])
    layout["xaxis"] |= {"type": "log", "tickvals": [POINT * 2**n for n in range(8)]}
    layout["xaxis"]["ticktext"] = [f"{2**n}k" for n in range(8)]
    drawing.legend(layout, data)
    words = f"{len(data)} policies; lines are cut off at {CEILING:g} nats."
    return Chart(data, layout, words, ("policy", "read to", "least nats", "nats at the end"), rows)


def _curve(readings: Sequence[Mapping[str, Any]], policy: str) -> dict[int, float]:
    """Mean nats by position of texts read from their start."""
    nats: dict[int, list[float]] = {}
    for reading in readings:
        if reading["policy"] == policy and reading["start"] == 0:
            for position, value in zip(reading["position"], reading["nll"], strict=True):
                nats.setdefault(-(-position // POINT) * POINT, []).append(value)
    return {place: round(min(sum(nats[place]) / len(nats[place]), CEILING), 3) for place in sorted(nats)}


def _points(result: Mapping[str, Any], policy: str) -> dict[int, float]:
    """Nats by tokens read of a policy that reads anew for each length."""
    row: Mapping[str, Any] = next((row for row in result["perplexity"] if row["policy"] == policy), {})
    found = {int(key.replace(",", "")): value for key, value in row.items() if key != "policy" and value}
    return {length: round(min(log(value), CEILING), 3) for length, value in found.items()}
