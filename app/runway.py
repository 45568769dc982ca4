"""The runway: how far runs that write side by side have come, where their sentences end, and how likely an end is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import orjson

from app.charts.drawing import signed
from app.series import RunSeries, sample
from backend.methods import methods
from backend.settings import RunSettings, counted
from backend.steps import Finish
from backend.text.sentences import final, sentences
from backend.text.units import met, words

# A sentence of fewer words may well be said twice: 'Yes.'
SAID = 4
# A list's number or mark, and all else before the first letter.
BEFORE = re.compile(r"^[\W\d_]+")
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


def ending(finish: Finish, settings: RunSettings) -> tuple[str, str]:
    """How an answer ended, as the page's figures name it and in a few words: 'good' is a whole sentence that the model
    ended itself, within the tolerance of the target or the limit. A count can put a full stop after half a
    thought, so a model that was steered is believed only where a search has asked the base model."""
    if finish.reason == "error":
        return "bad", "failed"
    if finish.reason == "stopped":
        return "", "stopped"
    if finish.reason == "cap":
        return "bad", "cut at the maximum"
    if not final(finish.text):
        return "bad", "amid a sentence"
    goal, error = settings.goal, finish.error
    near = error is None or met(goal + error, goal, settings.unit, settings.limited)
    if _repeats(finish.text):
        return ("" if near else "bad"), "with a sentence, repeating itself"
    if not near:
        return "bad", "with a sentence"
    if finish.landed:
        return ("good", "with a sentence") if finish.own_end else ("", "with a sentence, by force")
    method = methods[settings.method]
    led = settings.steered and (method.adapter or method.writes_end)
    return ("", "with a full stop, unchecked") if led else ("good", "with a sentence")


def _repeats(text: str) -> bool:
    """Whether one of its sentences, word for word, is there twice, be it as a list's points; lines of tables and code
    are none."""
    said = [" ".join(BEFORE.sub("", each).casefold().split()) for each in sentences(text) if final(each)]
    said = [each for each in said if words(each) >= SAID]
    return len(set(said)) < len(said)


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
