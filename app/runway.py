"""The runway: how far runs that write side by side have come, where their sentences end, and how likely an end is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from app.series import RunSeries, sample
from backend.ending import ending
from backend.inference.base_model import PROBABLE
from backend.settings import counted, signed
from backend.steps import TriedEnding
from backend.text.sentences import final, sentences

# The runway is so many times as long as the target, and grows by halves of it where a run goes further.
SPAN = 1.5
POINTS = 160


def encode(runs: Sequence[RunSeries], frame: int = 0, scene: str = "") -> str:
    """JSON for `live.runway`: the target of the last run, the length of the runway, and a lane for each run. scene: the
    name of one that plays the same."""
    return orjson.dumps(
        {
            "run": str(runs[0].run),
            "frame": frame,
            "scene": scene,
            "prompt": runs[-1].settings.prompt,
            "lands": runs[-1].settings.lands,
            "unit": runs[-1].settings.unit,
            "target": _target(runs[-1]),
            "span": span(runs),
            "lanes": [lane(run) for run in runs],
        }
    ).decode()


def sentence_ends(run: RunSeries) -> list[int]:
    """How much was produced, in the unit of the goal, at the end of each sentence so far."""
    text, found, token, read, at = run.answer, [], run.thought, 0, 0
    for sentence in sentences(text):
        at = text.find(sentence, at) + len(sentence)
        while read < at:
            read += len(run.text[token])
            token += 1
        if final(text[:at]):
            found.append(run.produced[token - 1])
    return found


def lane(run: RunSeries) -> dict[str, Any]:
    """A run as far as it has come."""
    # The first chance is of an answer without a token, the last one of that which was written.
    chances = list(zip([0, *run.produced], run.p_eos, strict=False))
    state, words = ending(run.finish, run.settings) if run.finish else ("busy", "")
    return {
        "name": run.name,
        "produced": run.produced[-1] if len(run) else 0,
        "state": state if len(run) or run.finish else "",
        "ends": sentence_ends(run),
        "chance": [[chances[i][0], round(chances[i][1], 5)] for i in sample(len(chances), POINTS)],
        "forecast": _forecast(run),
        "tried": [[each.length, each.chosen, each.text.strip(), why(each)] for each in run.tried],
        "words": _words(run, words),
    }


def _words(run: RunSeries, ended: str) -> str:
    if not len(run):
        return ""
    words = counted(run.produced[-1], run.settings.unit)
    error = run.settings.missed(run.error)
    if error is not None and run.finish is not None:
        words += f", {signed(error)} from the target" if error else ", on the target"
    return f"{words}; {ended}" if ended else words


def why(ending: TriedEnding) -> str:
    """Why an ending is written, or is not, in a few words."""
    if ending.chosen:
        return "written"
    if not ending.near:
        return "too far from the target"
    if not ending.own:
        return "the steered model would go on here"
    if ending.p_end is None or ending.p_eos is None:
        return "the model alone was not asked"
    if ending.p_end < PROBABLE:
        return "the model alone would not end this sentence here"
    if ending.p_eos < PROBABLE:
        return "the model alone would end the sentence here, but not the answer"
    return "another one is likelier"


def _forecast(run: RunSeries) -> float | None:
    """Where the run would end, in the unit of the goal, if its chance to end stayed as it is."""
    stop = run.predicted_stop() if run.finish is None and len(run) else None
    return None if stop is None else stop * max(1, run.produced[-1]) / len(run)


def _target(run: RunSeries) -> int:
    moved = run.target[-1] if run.target else None
    return moved or run.settings.goal


def span(runs: Sequence[RunSeries]) -> float:
    """How long the runway is, in the unit of the target of the last run."""
    furthest = max(run.produced[-1] if len(run) else 0 for run in runs)
    target = _target(runs[-1])
    length = SPAN * target
    while length < furthest:
        length += target / 2
    return length
