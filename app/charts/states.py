"""The first layer's states in a plane of two principal components, one that was fixed beforehand where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np

from app.charts import drawing
from app.charts.base import SLOW, Chart, LiveChart, alone, of_texts
from app.charts.palette import PLACE_SCALE, SERIES_COLOURS, SYMBOLS
from app.series import RunSeries, pick, sample
from backend.measures.plane import Plane, plane_of
from backend.measures.principal_components import components

# States that are drawn of a response with its prompt, and of a text.
STATES, OF_A_TEXT = 360, 240
# A plane of which position explains less has no region of its own for the first tokens, or the last.
SEPARATES = 0.05


class States(LiveChart):
    """The first two principal components of the first layer's states (002 fig. 1)."""

    name = "states"
    title = "First-layer states"
    tabs = {
        "generate": "Two principal components, coloured by position; grey: a novel's",
        "compare": "One plane for all settings; grey: a novel's states",
        "long": "One plane for all readings, each with a symbol of its own; grey: a novel's",
    }
    order = 60
    period = SLOW

    def draw(self, runs: Sequence[RunSeries]) -> Chart:
        run = alone(runs)
        return _together(runs) if run is None else _alone(run)


def _alone(run: RunSeries) -> Chart:
    """The first two principal components of the first layer's states, coloured by position (002 fig. 1)."""
    layout = drawing.axes("first component", "second component")
    positions, vectors, prompt = table(run)
    if len(vectors) < 3:
        return drawing.empty(layout, "states appear while the model writes", "Too few states yet for a plane.")
    fixed, plane, words = _placed([run], vectors, "of this run")
    plane = drawing.rounded(plane, 3)
    top = int(positions.max())
    data = _cloud(fixed) + [
        points(plane[chosen], positions[chosen], name, symbol, 0, top, bar=name == "prompt" or not prompt.any())
        for name, chosen, symbol in (("prompt", prompt, "circle"), ("response", ~prompt, "diamond"))
        if chosen.any()
    ]
    layout["hovermode"] = "closest"
    layout["annotations"].append(drawing.note(0, 1.02, "● prompt   ◆ response", "left"))
    order = np.argsort(positions)
    rows = drawing.table_rows(positions[order], plane[order, 0], plane[order, 1])
    return Chart(data, layout, words, ("position", "first component", "second component"), rows)


def _together(runs: Sequence[RunSeries]) -> Chart:
    """The states of all runs in the plane of their common two components: a colour a run, or a symbol a text."""
    texts = of_texts(runs)
    layout = drawing.axes("first component", "second component")
    layout["hovermode"] = "closest"
    coloured = zip(cycle(SERIES_COLOURS), runs, strict=False)
    tables = [(colour, run, *table(run)) for colour, run in coloured if run.states]
    if sum(len(vectors) for *_, vectors, _ in tables) < 3:
        doing = "text is read" if texts else "model writes"
        return drawing.empty(layout, f"states appear while the {doing}", "Too few states yet for a plane.")
    every = np.concatenate([vectors for *_, vectors, _ in tables])
    fixed, placed, words = _placed(runs, every, "of all readings" if texts else "of all settings")
    places = iter(np.split(placed, np.cumsum([len(vectors) for *_, vectors, _ in tables])[:-1]))
    top = max(int(positions.max()) for _, _, positions, _, _ in tables)
    data = _cloud(fixed)
    rows: list[list[Any]] = []
    for symbol, (colour, run, positions, vectors, _) in zip(cycle(SYMBOLS), tables, strict=False):
        plane = drawing.rounded(next(places), 3)
        drawn = points(plane, positions, run.name, symbol if texts else "circle", 0, top, bar=texts and not rows)
        data.append(drawn if texts else drawn | {"marker": {"size": 5, "color": colour, "opacity": 0.75}})
        rows.append([run.label, len(vectors), drawing.cell(plane[:, 0].mean()), drawing.cell(plane[:, 1].mean())])
    chart = drawing.together(runs, layout, data, rows, ("states", "mean of first", "mean of second"), lambda *_: "")
    chart.summary = words
    return chart


def _placed(runs: Sequence[RunSeries], vectors: np.ndarray, whose: str) -> tuple[Plane | None, np.ndarray, str]:
    """The plane that was fixed for the model of all runs, if any, where the states [k, d] lie in it or in one of their
    own, [k, 2], and what the plane holds of them."""
    models = {run.settings.model for run in runs}
    plane = plane_of(models.pop()) if len(models) == 1 else None
    if plane is None or plane.mean.size != vectors.shape[1]:
        found = components(vectors)
        first, second = found.explained_variance_ratio_
        held = f"{first + second:.0%}"
        words = f"{len(vectors)} states {whose}. The plane is fitted on them and holds {held} of their variance."
        return None, found.transform(vectors), words
    tells = f"Position explains {plane.by_position:.2%} of it"
    tells += "." if plane.by_position >= SEPARATES else ", so no region belongs to the first tokens or the last."
    words = (
        f"{len(vectors)} states {whose}. The plane was fixed on {plane.tokens:,} tokens of a novel and holds "
        f"{sum(plane.explained):.0%} of the novel's variance and {plane.share(vectors):.0%} of theirs. {tells}"
    )
    return plane, plane.transform(vectors), words


def _cloud(plane: Plane | None) -> list[dict[str, Any]]:
    """Where the states of the text lie on which the plane was fixed."""
    if plane is None:
        return []
    x, y = drawing.rounded(plane.cloud, 2).T
    return [drawing.marks(x, y, "novel: states", {"size": 4, "color": "@old", "opacity": 0.35}, "")]


def points(
    plane: np.ndarray, positions: np.ndarray, name: str, symbol: str, low: float, high: float, bar: bool
) -> dict[str, Any]:
    """Points [k, 2] coloured by position on a scale from `low` to `high`; bar: with the scale beside the chart."""
    marker = {"size": 6, "symbol": symbol, "line": {"width": 0.5, "color": "@paper"}, "color": positions}
    marker |= {"cmin": low, "cmax": high, "colorscale": PLACE_SCALE, "showscale": bar}
    if bar:
        marker["colorbar"] = drawing.colour_bar("position")
    hover = f"{name}, position %{{customdata}}<extra></extra>"
    return drawing.marks(plane[:, 0], plane[:, 1], name, marker, hover) | {"customdata": positions}


def table(run: RunSeries) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions [k], states [k, d] (float32) and whether each belongs to the prompt [k]."""
    if not run.states:
        return np.zeros(0, np.int64), np.zeros((0, 0), np.float32), np.zeros(0, bool)
    at = sample(len(run.states), OF_A_TEXT if run.to_read else STATES // 2)
    positions = pick(run.state_positions, at).astype(np.int64)
    vectors = np.array([run.states[i] for i in at], dtype=np.float32)
    reading = run.reading
    if reading is None or not reading.states.size:
        return positions, vectors, np.zeros(len(at), dtype=bool)
    rows = sample(len(reading.positions), STATES // 2)
    prompt = reading.states[rows].astype(np.float32)
    positions = np.concatenate([reading.positions[rows], positions])
    vectors = np.concatenate([prompt, vectors])
    return positions, vectors, np.arange(len(positions)) < len(rows)
