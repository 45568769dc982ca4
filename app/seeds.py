"""Further answers to the settings of a comparison, each with the next seed: how their lengths are distributed, and how
many of them have the length asked for and end well."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from app import live, outcome
from app.charts import drawing
from app.charts.base import Chart, encode
from app.charts.palette import SERIES_COLOURS
from app.frames import Frame
from app.lanes import PERIOD
from app.runs import Run, batches
from app.runway import ending
from backend.inference.control import Control
from backend.refused import Refused
from backend.settings import RunSettings, Watch, counted
from backend.steps import Finish
from backend.sweep import finishes

MOST, ROWS = 32, 8
CHART = "c-lengths"
# Of one setting: its name, what it asks for, and how its answers ended.
Answers = tuple[str, RunSettings, list[Finish]]


def checked(chosen: Sequence[RunSettings], count: int) -> None:
    """Refused where further answers would be the first one again."""
    if count > 1 and all(not settings.temperature for settings in chosen):
        raise Refused("at temperature 0 every seed writes the same: raise a temperature, or take one answer of each")


def frames(
    lab: Any, found: Sequence[Answers], count: int, run: Run, control: Control, last: Frame
) -> Iterator[Frame]:
    """Frames with what comes of `count` answers to each setting, until all have ended or were stopped.

    found: the settings with their first answers; it grows. control: the run's. last: the frame that showed these.
    """
    cases = [
        (name, ended, settings.model_copy(update={"seed": settings.seed + more, "watch": Watch(enabled=False)}))
        for more in range(1, count)
        for name, settings, ended in found
        if settings.temperature
    ]
    total = len(cases) + sum(len(ended) for *_, ended in found)

    def shown() -> Frame:
        return replace(last, parts=dict(last.parts) | _parts(found, total, run), running=True)

    asked = [settings for *_, settings in cases]
    for batch in batches(finishes(lab, asked, control, ROWS), PERIOD):
        for number, one in batch:
            name, ended, settings = cases[number]
            ended.append(one)
            run.outcomes.append(outcome.answer(name, settings, one))
        yield shown()
    yield shown()


def picture(found: Sequence[Answers]) -> Chart:
    """The lengths of all answers, a box for each setting and every answer a point."""
    found = [each for each in found if each[2]]
    unit = found[0][1].unit if found else "tokens"
    layout = drawing.axes("setting", f"length in {unit}")
    if sum(len(ended) for *_, ended in found) < 2:
        return drawing.empty(layout, "One answer each.", "There is one answer to each setting.")
    layout |= {"showlegend": False, "yaxis": layout["yaxis"] | {"rangemode": "tozero"}}
    data = []
    for colour, (name, settings, ended) in zip(SERIES_COLOURS, found, strict=False):
        lengths = [getattr(one, unit) for one in ended]
        data.append({
            "type": "box", "name": name, "x": [name] * len(lengths), "y": lengths, "boxpoints": "all", "jitter": 0.5,
            "pointpos": 0, "marker": {"color": colour, "size": 4}, "line": {"color": colour, "width": 1.5},
            "fillcolor": f"{colour}/0.15",
        })  # fmt: skip
        if settings.steered:
            data.append(drawing.marks(
                [name], [settings.goal], "target", {"symbol": "line-ew-open", "size": 40, "color": "@ink"}, "%{y}"
            ))  # fmt: skip
    words = [[name, _said(settings, ended)] for name, settings, ended in found]
    return Chart(data, layout, " ".join(f"{name}: {each}." for name, each in words), ("Setting", "Answers"), words)


def _said(settings: RunSettings, ended: Sequence[Finish]) -> str:
    """How long the answers to a setting are, and how they ended, in words."""
    unit = settings.unit
    lengths = [getattr(one, unit) for one in ended]
    span = f"{min(lengths):,} to {max(lengths):,} {unit}, median {statistics.median(lengths):g}"
    good = sum(ending(one, settings)[0] == "good" for one in ended)
    wanted = "have the length asked for and end well" if settings.steered else "end with a sentence"
    return f"{counted(len(ended), 'answers')} of {span}; {good} of {len(ended)} {wanted}"


def _parts(found: Sequence[Answers], total: int, run: Run) -> dict[str, str]:
    done = sum(len(ended) for *_, ended in found)
    stopped = run.control.stopped
    state = "busy" if done < total and not stopped else "good"
    message = f"{done} of {total} answers" if state == "busy" else "Stopped." if stopped else "All answers have ended."
    tokens = sum(one.tokens for *_, ended in found for one in ended)
    figures = live.fill(
        setting="–", tokens=f"{tokens:,}", speed="–", progress=done / total, state=state, message=message
    )
    return {"compare": figures, CHART: encode(picture(found), run.stream.name, done)}
