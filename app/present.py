"""Scenes as the page plays them: recorded runs token by token, and measured figures. All of it comes with the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from app import presets, results, runway
from app.charts.base import encode
from app.scenes import scenes
from app.scenes.scene import Drawing, Lane, Scene
from app.series import RunSeries
from app.view import View
from backend.evaluation.report import section
from backend.record.trace import Trace


@cache
def playable() -> list[dict[str, Any]]:
    """What `live.present` shows: every scene whose recorded runs and results are there, in order."""
    return [made for scene in scenes().values() if (made := _scene(scene))]


def _scene(scene: Scene) -> dict[str, Any] | None:
    words = {"name": scene.name, "title": scene.title, "look": scene.look, "embeds": True}
    if scene.drawing:
        chart = _chart(scene.drawing)
        return words | {"chart": chart} if chart else None
    if not all(presets.file_of(lane.run).exists() for lane in scene.lanes):
        return None
    runs = [_run(lane) for lane in scene.lanes]
    return words | played(runs)


def _run(lane: Lane) -> RunSeries:
    return View.of(Trace.load(presets.file_of(lane.run)), name=lane.name).series


def played(runs: Sequence[RunSeries]) -> dict[str, Any]:
    """Runs that are played side by side: each lane as it ends, and its tokens as [text, seconds, how much was produced,
    target or None]."""
    lanes = [
        runway.lane(run)
        | {"tokens": [list(token) for token in zip(run.text, run.seconds, run.produced, run.target, strict=True)]}
        for run in runs
    ]
    return {"span": runway.span(runs), "unit": runs[-1].settings.unit, "lanes": lanes}


def _chart(drawing: Drawing) -> Any:
    """The curves of the figure in the order of the scene, which gives them their colours; None where it is not
    there."""
    card = section(drawing.experiment).card
    if card is None or len(card.figures) <= drawing.figure:
        return None
    figure = card.figures[drawing.figure]
    found = {curve.name: curve for curve in figure.curves}
    curves = [found[name]._replace(name=label) for name, label in drawing.curves.items() if name in found]
    return json.loads(encode(results.drawn(figure._replace(curves=curves))))
