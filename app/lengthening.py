"""How much longer answers get by the ratio of position-id compression, and by its recent part (004 figures 1 and 4)."""

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
RECENT = "dynamic contiguous s=4"
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


def by_recent(summary: Mapping[str, Mapping[str, Any]], usual: int | None) -> Figure | None:
    """Words against those without compression by how many recent tokens dynamic PIC leaves alone; None for one size.

    usual: that number where a policy's name gives none.
    """
    sizes = {RECENT: usual, f"{RECENT}, no recent part": 1}
    named = (re.fullmatch(rf"{re.escape(RECENT)}, recent (\d+)", policy) for policy in summary)
    sizes |= {match[0]: int(match[1]) for match in named if match}
    known = sorted((size, name) for name, size in sizes.items() if size and name in summary)
    found = [(size, summary[name]) for size, name in known]
    gains = {size: round(row["lengthening"], 3) for size, row in found if row.get("lengthening") is not None}
    if len(gains) < 2:
        return None
    layout = charts.axes("recent tokens left alone", "words × plain")
    layout["xaxis"] |= {"type": "log", "tickvals": list(gains), "ticktext": [f"{size:,}" for size in gains]}
    layout["yaxis"]["rangemode"] = "tozero"
    data = [charts.line(list(gains), list(gains.values()), charts.SERIES_COLOURS[2], RECENT, mode="lines+markers")]
    keys = ("lengthening", "lengthening_low", "lengthening_high")
    rows = [
        [str(size), *(decimal(row.get(key)) for key in keys), figure(row.get("shared")), percent(row.get("corrupted"))]
        for size, row in found
    ]
    most = max(gains, key=lambda size: gains[size])
    told = f"with {most:,} recent tokens left alone it writes most: {decimal(gains[most])} × plain"
    hint = "Words by how many recent tokens dynamic PIC at ratio 4 leaves alone"
    columns = ("recent tokens", "× plain", "95 %: from", "to", "over prompts", "corrupted")
    return Figure("Length by recent part (004 figure 4)", hint, Chart(data, layout, told, columns, rows))


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
