"""How much longer answers get by the ratio of position-id compression and by its uncompressed parts (004 fig. 1, 4)."""

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
DYNAMIC = "dynamic contiguous s=4"
# Tokens that it leaves alone where a policy is named after having no such part.
NONE = {"initial": 0, "recent": 1}
MEASURED = ("× plain", "95 %: from", "to", "over prompts", "corrupted")
WHOLE = "over prompts that neither answered corruptly; bars: 95 % of draws of such prompts"

Row = Mapping[str, Any]


def by_ratio(summary: Mapping[str, Row]) -> Figure | None:
    """Words against those without compression by ratio; None where nothing can be compared.

    summary: measures by policy, as in longform.json.
    """
    layout = _axes("ratio", {0.25: "¼", 1: "1", 4: "4", 16: "16", 64: "64"})
    data, rows = [], []
    for colour, (kind, name) in zip(charts.SERIES_COLOURS, KINDS.items(), strict=False):
        theirs, ours = _published(kind), _by_ratio(summary, name)
        if len(ours) < 2:
            continue
        drawn = [round(gain, 3) for gain in theirs.values()]
        data.append(_line(ours, colour, kind))
        data.append(charts.line(list(theirs), drawn, colour, f"{kind} in 004", dash="dot", hover="%{y:.2f}×"))
        rows += [[kind, f"{ratio:g}", *_told(row), decimal(theirs.get(ratio))] for ratio, row in ours.items()]
    if not data:
        return None
    charts.legend(layout, data)
    best = "; ".join(map(_best, data[::2]))
    columns = ("compression", "ratio", *MEASURED, "004, × ratio 1")
    hint = f"Words by ratio {WHOLE}; dotted: the mean of 004's three models"
    return Figure("Length by ratio (004 figure 1)", hint, Chart(data, layout, best, columns, rows))


def by_part(summary: Mapping[str, Row], part: str, usual: int | None) -> Figure | None:
    """Words against those without compression by how many tokens dynamic PIC leaves alone; None for one size.

    part: "initial" or "recent". usual: that number where a policy's name gives none.
    """
    sizes = {DYNAMIC: usual, f"{DYNAMIC}, no {part} part": NONE[part]}
    named = (re.fullmatch(rf"{re.escape(DYNAMIC)}, {part} (\d+)", policy) for policy in summary)
    sizes |= {match[0]: int(match[1]) for match in named if match}
    known = sorted((size, name) for name, size in sizes.items() if size is not None and name in summary)
    # A logarithmic axis has no place for none.
    found = {max(1.0, size): summary[name] for size, name in known}
    trace = _line(found, charts.SERIES_COLOURS[2], DYNAMIC)
    if len(trace["x"]) < 2:
        return None
    told = {max(1.0, size): f"{size:,}" for size, _ in known}
    layout = _axes(f"{part} tokens left alone", told)
    rows = [[told[place], *_told(row)] for place, row in found.items()]
    most, gain = max(zip(trace["x"], trace["y"], strict=True), key=lambda point: point[1])
    words = f"with {told[most]} {part} tokens left alone it writes most: {decimal(gain)} × plain"
    hint = f"Words by how many {part} tokens dynamic PIC at ratio 4 leaves alone, {WHOLE}"
    chart = Chart([trace], layout, words, (f"{part} tokens", *MEASURED), rows)
    return Figure(f"Length by {part} part (004 figure 4)", hint, chart)


def _axes(x: str, ticks: Mapping[float, str]) -> dict[str, Any]:
    layout = charts.axes(x, "words × plain")
    layout["xaxis"] |= {"type": "log", "tickvals": list(ticks), "ticktext": list(ticks.values())}
    layout["yaxis"]["rangemode"] = "tozero"
    return layout


def _line(rows: Mapping[float, Row], colour: str, name: str) -> dict[str, Any]:
    """Lengthening over ratio or size, with its bounds as bars; without the rows that have none."""
    drawn = {x: row for x, row in rows.items() if row.get("lengthening") is not None}
    y = [round(row["lengthening"], 3) for row in drawn.values()]
    low, high = ([_reach(row, end) for row in drawn.values()] for end in ("low", "high"))
    bars = {"type": "data", "symmetric": False, "array": high, "arrayminus": low, "thickness": 1, "width": 3}
    return charts.line(list(drawn), y, colour, name, mode="lines+markers", hover="%{y:.2f}×") | {"error_y": bars}


def _reach(row: Row, end: str) -> float:
    """How far a bound lies from the lengthening; 0 where there is none."""
    bound = row.get(f"lengthening_{end}")
    return 0.0 if bound is None else abs(bound - row["lengthening"])


def _told(row: Row) -> list[str]:
    """Cells of the columns MEASURED."""
    gains = [decimal(row.get(key)) for key in ("lengthening", "lengthening_low", "lengthening_high")]
    return [*gains, figure(row.get("shared")), percent(row.get("corrupted"))]


def _best(trace: Mapping[str, Any]) -> str:
    gain, ratio = max(zip(trace["y"], trace["x"], strict=True))
    if ratio == 1:
        return f"{trace['name']} writes most without compression"
    return f"{trace['name']} writes most at ratio {ratio:g}: {decimal(gain)} × plain"


def _by_ratio(summary: Mapping[str, Row], name: str) -> dict[float, Row]:
    """Measures by ratio of a kind of compression; plain is every kind's ratio 1."""
    found: dict[float, Row] = {1.0: {**summary["plain"], "lengthening": 1.0}} if "plain" in summary else {}
    for policy, row in summary.items():
        ratio = re.fullmatch(rf"{re.escape(name)} s=([\d.]+)", policy)
        if ratio and row.get("lengthening") is not None:
            found[float(ratio[1])] = row
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
