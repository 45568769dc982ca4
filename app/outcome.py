"""What runs came to: how each ended, and the figures that lessons ask for. It holds no word of a text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import orjson

from app.series import RunSeries
from backend.ending import ending
from backend.settings import RunSettings
from backend.steps import Finish

# The part of a run's last frame that `figures` fills.
PART = "outcome"
READ = "perplexity"
# A reading has left another where its mean over so many tokens is so many nats worse, from there to the end.
STRETCH, WORSE = 128, 0.5

Measure = Literal["length", "spread", "perplexity", "breaks"]


class Outcome(NamedTuple):
    """A run that has ended. name: of one of several side by side. produced: its length in `unit`; of a text that was
    read, the perplexity. target: in `unit`, None without one. state, ended: as `backend.ending.ending` has them.
    breaks: of a reading, the token at which it left the first of those beside it."""

    name: str
    method: str
    unit: str
    target: int | None
    produced: float
    state: str
    ended: str
    breaks: int | None = None


def written(series: RunSeries) -> Outcome:
    """Of an answer that has written something and has ended."""
    assert series.finish is not None
    found = answer(series.name, series.settings, series.finish)
    return found._replace(target=series.target[-1], produced=series.produced[-1])


def answer(name: str, settings: RunSettings, finish: Finish) -> Outcome:
    """Of an answer of which nothing but its end is kept."""
    target = settings.goal if settings.steered else None
    unit = settings.unit
    return Outcome(name, settings.method, unit, target, getattr(finish, unit), *ending(finish, settings))


def readings(read: Sequence[RunSeries], number: str = "") -> list[Outcome]:
    """Of a text that was read in several ways. number: which was hidden in it, empty where none was."""
    return [
        Outcome(
            one.name, one.settings.method, READ, None, float(f"{one.perplexity:.4g}"), *_ended(one, number),
            breaks=_leaves(read[0], one),
        )
        for one in read
        if one.nll
    ]  # fmt: skip


def figure(found: Iterable[Outcome], name: str, measure: Measure) -> float | None:
    """What the runs of that name came to. spread: how far the shortest and the longest are apart. None for none."""
    named = [one for one in found if one.name == name]
    if not named or (measure == READ) != (named[0].unit == READ and measure != "breaks"):
        return None
    if measure == "breaks":
        return named[0].breaks
    lengths = [one.produced for one in named]
    return max(lengths) - min(lengths) if measure == "spread" else lengths[0]


def encode(found: Sequence[Outcome]) -> str:
    """JSON for the page: the figures by the names of the runs and of what is measured."""
    measures: tuple[Measure, ...] = ("length", "spread", "perplexity", "breaks")
    return orjson.dumps(
        {
            name: {each: value for each in measures if (value := figure(found, name, each)) is not None}
            for name in dict.fromkeys(one.name for one in found)
        }
    ).decode()


def _ended(one: RunSeries, number: str) -> tuple[str, str]:
    if one.read < one.to_read or (number and not one.written):
        return "", "stopped"
    if not number:
        return "good", "read to the end"
    return ("good", "the number found") if number in one.written else ("bad", "the number not found")


def _leaves(first: RunSeries, one: RunSeries) -> int | None:
    """The token from which on a reading is worse than the first, None where it is not at the end."""
    if one is first or one.read != first.read:
        return None
    worse = np.concatenate(one.nll) - np.concatenate(first.nll)
    means = np.convolve(worse, np.full(STRETCH, 1 / STRETCH), "valid")
    fine = np.flatnonzero(means < WORSE)
    begins = int(fine[-1]) + 1 if len(fine) else 0
    return begins + STRETCH // 2 if begins < len(means) else None
