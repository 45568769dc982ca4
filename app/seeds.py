"""Further answers to the settings of a comparison, each with the next seed: how their lengths are distributed, and how
many of them have the length asked for and are ended by the model where a sentence ends."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, count
from typing import Any

from app import live, outcome
from app.charts import drawing
from app.charts.base import Chart, encode
from app.charts.palette import SERIES_COLOURS
from app.comparison import Answers
from app.frames import Frame
from app.lanes import PERIOD
from app.runs import Run, batches
from backend.inference.control import Control
from backend.refused import Refused
from backend.settings import RunSettings, Watch, counted
from backend.steps import Finish
from backend.sweep import finishes
from backend.text.sentences import final
from backend.text.units import met, tolerance

MOST, ROWS, SEEDS = 32, 8, 2**32
CHART = "c-lengths"
# Bars of a histogram at most, and the share of its height between two of them.
BINS, GAP = 40, 0.06


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
        (name, ended, settings.model_copy(
            update={"seed": (settings.seed + more) % SEEDS, "watch": Watch(enabled=False)}
        ))
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
            ended[settings.seed] = one
            run.outcomes.append(outcome.answer(name, settings, one))
        yield shown()
    yield shown()


def picture(found: Sequence[Answers]) -> Chart:
    """How many answers have which length: a histogram for each setting, one below the other, over the same lengths."""
    found = [each for each in found if each[2]]
    unit = found[0][1].unit if found else "tokens"
    layout = drawing.axes(f"length in {unit}", "answers")
    if sum(len(ended) for *_, ended in found) < 2:
        return drawing.empty(layout, "One answer each.", "There is one answer to each setting.")
    lengths = [_lengths(settings, [*ended.values()]) for _, settings, ended in found]
    aims = [settings.goal if settings.steered else None for _, settings, _ in found]
    bins = _bins([*chain(*lengths), *(aim for aim in aims if aim)])
    counts = [[sum(length in each for length in its) for each in bins] for its in lengths]
    up, data = layout.pop("yaxis") | {"range": [0, 1.1 * max(map(max, counts))], "dtick": _tick(counts)}, []
    for place, (colour, (name, *_), its, aim) in enumerate(zip(SERIES_COLOURS, found, counts, aims, strict=False)):
        number = str(place + 1) if place else ""
        layout[f"yaxis{number}"] = up | {
            "domain": drawing.share(len(found) - 1 - place, len(found), GAP), "title": {"text": name, "standoff": 6}
        }  # fmt: skip
        data.append(_bars(name, bins, its, colour) | {"yaxis": f"y{number}"})
        if aim:
            layout["shapes"].append(drawing.dotted("@ink", x=aim) | {"yref": f"y{number} domain"})
    layout["xaxis"] |= {"anchor": f"y{len(found)}" if len(found) > 1 else "y"}
    words = [[name, said(settings, [*ended.values()])] for name, settings, ended in found]
    summary = " ".join(f"{name}: {each}." for name, each in words)
    return Chart(data, layout | {"hovermode": "closest", "bargap": 0}, summary, ("Setting", "Answers"), words)


def said(settings: RunSettings, ended: Sequence[Finish]) -> str:
    """How long the answers to a setting are, and how many of them count as ended at the length asked for, in words."""
    lengths, unit, goal = _lengths(settings, ended), settings.unit, settings.goal
    span = f"{min(lengths):,} to {max(lengths):,} {unit}, median {statistics.median(lengths):g}"
    near = int(tolerance(goal, unit))
    wanted = f"at most {goal:,} {unit} long" if settings.limited else f"within {counted(near, unit)} of {goal:,}"
    those = f"{sum(kept(settings, one) for one in ended)} of {len(ended)}"
    own = "ended by the model itself, where a sentence ends"
    words = f"{those} {wanted} and {own}" if settings.steered else f"{those} {own}"
    return f"{counted(len(ended), 'answers')} of {span}; {words}"


def kept(settings: RunSettings, one: Finish) -> bool:
    """Whether an answer has the length asked for, if any, and the model drew its end itself, after a sentence's mark.

    These are the first two conditions of the joint rate. Its third asks the base model of the mark, and its fourth
    holds the whole set against that model's own texts; neither is in what runs carry.
    """
    there = not settings.steered or met(getattr(one, settings.unit), settings.goal, settings.unit, settings.limited)
    return there and one.own_end and final(one.text)


def _lengths(settings: RunSettings, ended: Sequence[Finish]) -> list[int]:
    return [getattr(one, settings.unit) for one in ended]


def _bins(lengths: Sequence[int]) -> list[range]:
    """At most BINS stretches of lengths, of a round number each, that hold all of these."""
    low, high = min(lengths), max(lengths)
    widths = (step * 10**power for power in count() for step in (1, 2, 5))
    width = next(width for width in widths if (high - low) // width < BINS - 1)
    return [range(start, start + width) for start in range(low - low % width, high + 1, width)]


def _bars(name: str, bins: Sequence[range], counts: Sequence[int], colour: str) -> dict[str, Any]:
    """The bars of one setting."""
    spans = [f"{each[0]:,}" if len(each) == 1 else f"{each[0]:,} – {each[-1]:,}" for each in bins]
    return {
        "type": "bar", "name": name, "x": [(each[0] + each[-1]) / 2 for each in bins], "y": list(counts),
        "width": len(bins[0]), "marker": {"color": colour}, "customdata": spans,
        "hovertemplate": "%{customdata}: %{y}<extra></extra>",
    }  # fmt: skip


def _tick(counts: Sequence[Sequence[int]]) -> int:
    """How far apart the marks of the upward axes are: whole numbers, two or three of them."""
    return max(1, round(max(map(max, counts)) / 2))


def _parts(found: Sequence[Answers], total: int, run: Run) -> dict[str, str]:
    done = sum(len(ended) for *_, ended in found)
    stopped = run.control.stopped
    state = "busy" if done < total and not stopped else "good"
    message = f"{done} of {total} answers" if state == "busy" else "Stopped." if stopped else "All answers have ended."
    tokens = sum(one.tokens for *_, ended in found for one in ended.values())
    figures = live.fill(
        setting="–", tokens=f"{tokens:,}", speed="–", progress=done / total, state=state, message=message
    )
    return {"compare": figures, CHART: encode(picture(found), run.stream.name, done)}
