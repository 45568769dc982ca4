"""How much longer answers get by the ratio of position-id compression: measured beside 004's models (004 figure 1)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from app import charts, published
from app.charts import Chart
from app.results import Figure, decimal, figure, percent

KINDS = {"naive": "naive", "NTK": "NTK", "dynamic": "dynamic contiguous"}
CORRUPTED = 50
COLUMNS = ("compression", "ratio", "× plain", "over prompts", "corrupted", "004, × ratio 1")


def by_ratio(summary: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Words against those without compression by ratio. summary: measures by policy, as in longform.json."""
    layout = charts.axes("ratio", "words × plain")
    layout["xaxis"] |= {"type": "log", "tickvals": [0.25, 1, 4, 16, 64], "ticktext": ["¼", "1", "4", "16", "64"]}
    layout["yaxis"]["rangemode"] = "tozero"
    data, rows = [], []
    for colour, (kind, name) in zip(charts.SERIES_COLOURS, KINDS.items(), strict=False):
        theirs, ours = _published(kind), _measured(summary, name)
        lines = ((ours, kind, "solid", "lines+markers"), (theirs, f"{kind} in 004", "dot", "lines"))
        for found, label, dash, mode in lines:
            y = [round(value, 3) for value in found.values()]
            data.append(charts.line(list(found), y, colour, label, dash=dash, mode=mode, hover="%{y:.2f}×"))
        for ratio, gain in ours.items():
            row = summary.get(f"{name} s={ratio:g}", summary.get("plain", {}))
            told = [decimal(gain), figure(row.get("shared")), percent(row.get("corrupted"))]
            rows.append([kind, f"{ratio:g}", *told, decimal(theirs.get(ratio))])
    charts.legend(layout, data)
    hint = "Words by ratio over prompts that neither answered corruptly; dotted: the mean of 004's three models"
    return Figure("Length by ratio (004 figure 1)", hint, Chart(data, layout, _told(data), COLUMNS, rows))


def _measured(summary: Mapping[str, Mapping[str, Any]], name: str) -> dict[float, float]:
    """Gains by ratio of a kind of compression; plain is every kind's ratio 1."""
    found = {1.0: 1.0} if "plain" in summary else {}
    for policy, row in summary.items():
        ratio = re.fullmatch(rf"{re.escape(name)} s=([\d.]+)", policy)
        if ratio and row.get("lengthening") is not None:
            found[float(ratio[1])] = row["lengthening"]
    return dict(sorted(found.items()))


def _published(kind: str) -> dict[float, float]:
    """Mean over 004's models of the length against ratio 1, where fewer than half of each one's answers are corrupt."""
    rows = {float(ratio): [float(value) for value in row] for ratio, row in published.ratios(kind).items()}
    whole = {ratio: row for ratio, row in rows.items() if max(row[4::4]) < CORRUPTED}
    return {
        ratio: fmean(now / then for now, then in zip(row[1::4], rows[1.0][1::4], strict=True))
        for ratio, row in whole.items()
        if ratio <= 64
    }


def _told(data: list[dict[str, Any]]) -> str:
    measured = [trace for trace in data if "004" not in trace["name"] and len(trace["x"]) > 1]
    best = [(max(zip(trace["y"], trace["x"], strict=True)), trace["name"]) for trace in measured]
    return "; ".join(f"{name} writes most at ratio {ratio:g}: {decimal(gain)} × plain" for (gain, ratio), name in best)
