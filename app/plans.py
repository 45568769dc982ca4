"""Ways to read a long text and to go on from it: reading by each in turn, and about how long that takes."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from app.runs import batches
from app.series import RunSeries
from app.share import settings_of
from backend.evaluation.experiments.passkey_retrieval import ANSWER_TOKENS, hidden
from backend.evaluation.perplexity import Chunk, Stand, begin, read, read_truncated, tokenise
from backend.evaluation.reader import go_on
from backend.inference.chunks import CHUNK
from backend.inference.control import Control
from backend.inference.kernels.tiles import TILED
from backend.positions import policies
from backend.refused import Refused
from backend.settings import RunSettings

PERIOD = 0.5
TRUNCATION = "Truncation"
POLICIES: dict[str, dict[str, Any]] = {
    "Plain": {},
    "Λ": {},
    "Λ without sinks": {"sinks": 0},
    TRUNCATION: {},
} | {policy.title or policy.label: {"pic": policy.name} for policy in policies if policy.name != "none"}
NOTHING, WRITE, NUMBER = "Nothing", "Write on", "Tell a hidden number"
WRITTEN = 60
# A shorter text has no room for a number and the question.
SHORTEST = 64
# Seconds that the embedded model takes to read a token on two cores, and more for each key that it sees, by whether the
# processor has a matrix unit: with one as in assets/results/bench_long.json, without one as on an AMD EPYC.
COSTS = {True: (3.4e-4, 7.5e-8), False: (8.9e-4, 3.9e-7)}
TOKEN, KEY = COSTS[TILED]


class Plan(NamedTuple):
    """A way to read: its name, its settings, and how much truncation keeps (None: it is another way)."""

    name: str
    settings: RunSettings
    kept: int | None = None

    def seconds(self, tokens: int) -> float:
        """About how long two cores take to read so many tokens with the embedded model."""
        if self.kept is not None:
            begun = min(CHUNK, self.kept)
            return tokens / begun * (self.kept + begun / 2) * (TOKEN + KEY * self.kept / 2)
        near = min(tokens, (self.settings.window or tokens) + self.settings.sinks)
        return tokens * TOKEN + KEY * near * (tokens - near / 2)


class Task(NamedTuple):
    """Tokens [n] to read and then to go on from for `written` more. own: how the text goes on by itself, or the hidden
    number with its place; number: empty where none is hidden."""

    tokens: Tensor
    written: int = 0
    own: str = ""
    number: str = ""


def plans(
    window: int, sinks: int, ratio: float, chosen: Sequence[str], on: dict[str, Any], both: bool = False
) -> list[Plan]:
    """The ways of POLICIES that are chosen. both: each other position policy under the Λ window as well. on: the
    settings of the model. ValueError with a sentence for none."""
    if not chosen:
        raise Refused("nothing is chosen: tick Plain, Λ or another way to read")
    seen, found = {"window": window, "sinks": sinks}, []
    for name, changes in POLICIES.items():
        if name in chosen:
            found.append(_plan(name, changes, seen, ratio, on))
            if both and "pic" in changes and "window" not in policies[changes["pic"]].heeds():
                found.append(_plan(f"Λ on {name}", changes, seen, ratio, on))
    return found


def _plan(name: str, changes: dict[str, Any], seen: dict[str, int], ratio: float, on: dict[str, Any]) -> Plan:
    heeded = policies[changes.get("pic", "none")].heeds()
    compressed = "ratio" in heeded
    changes = (seen if "Λ" in name or "window" in heeded else {}) | ({"ratio": ratio} if compressed else {}) | changes
    settings = settings_of({"prompt": "…"} | on | changes)
    return Plan(f"{name} × {ratio:g}" if compressed else name, settings, seen["window"] if name == TRUNCATION else None)


def task(lab: Any, text: str, settings: RunSettings, length: int, then: str, depth: float) -> Task:
    """What is read of a text, at most `length` tokens, and written then: one of NOTHING, WRITE and NUMBER.

    depth: how far into the text the number lies, from 0 to 1. ValueError with a sentence for a text that is too short.
    """
    tokens = tokenise(lab, text, settings, length + WRITTEN)
    tokenizer = lab.models.load(settings.model, settings.precision).tokenizer
    if then == WRITE:
        return Task(tokens[:length], WRITTEN, tokenizer.decode(tokens[length:].tolist()))
    tokens = tokens[:length]
    if then == NOTHING:
        return Task(tokens)
    if len(tokens) < SHORTEST:
        raise Refused(
            f"a text of {len(tokens)} tokens has no room for a number: give one of at least {SHORTEST}, or choose "
            f"“{NOTHING}” or “{WRITE}”"
        )
    number = str(random.randrange(10_000, 100_000))
    tokens, back = hidden(tokenizer, number, tokens, depth)
    return Task(tokens, ANSWER_TOKENS, f"{number}, hidden {back:,} tokens before the end", number)


def readings(lab: Any, todo: Task, ways: Sequence[Plan], control: Control) -> Iterator[list[RunSeries]]:
    """The readings that have begun, after every few chunks and tokens, until all are done or stopped."""
    done: list[RunSeries] = []
    for plan in ways:
        settings = plan.settings
        trained = lab.capabilities(settings.model, settings.precision).training_length
        series = RunSeries(settings, plan.name, training_length=trained, to_read=len(todo.tokens))
        stand = begin(lab, settings, len(todo.tokens) + todo.written)
        for chunks in batches(control.paced(_read(lab, todo.tokens, plan, control, stand)), PERIOD):
            for chunk in chunks:
                series.add(chunk)
            yield [*done, series]
        if control.stopped:
            return
        if todo.written:
            for pieces in batches(control.paced(_written(lab, todo, plan, control, stand))):
                series.written = pieces[-1]
                yield [*done, series]
        done.append(series)


def left(ways: Sequence[Plan], begun: Sequence[RunSeries], since: float) -> float:
    """Seconds left of reading by all ways, by what those that have begun took since then (`time.monotonic`)."""
    spent = sum(plan.seconds(series.read) for plan, series in zip(ways, begun, strict=False))
    whole = sum(plan.seconds(begun[0].to_read) for plan in ways)
    return (time.monotonic() - since) * (whole / spent - 1)


def duration(seconds: float) -> str:
    """In seconds, or from 100 on in minutes."""
    return f"{seconds:,.0f} s" if seconds < 100 else f"{seconds / 60:,.0f} min"


def _read(lab: Any, tokens: Tensor, plan: Plan, control: Control, stand: Stand) -> Iterator[Chunk]:
    if plan.kept is not None:
        return read_truncated(lab, tokens, plan.settings, plan.kept, control)
    return read(lab, tokens, plan.settings, control, stand=stand)


def _written(lab: Any, todo: Task, plan: Plan, control: Control, stand: Stand) -> Iterator[str]:
    """What it writes after the text, each time a token longer."""
    settings, tokens = plan.settings, list[int]()
    if plan.kept is not None:
        for _ in read(lab, todo.tokens[-plan.kept :], settings, control, stand=stand):
            pass
    if control.stopped or stand.last is None:
        return
    tokenizer = lab.models.load(settings.model, settings.precision).tokenizer
    for token in go_on(lab.runner(settings), stand.last, stand.cache, todo.written):
        tokens.append(token)
        yield tokenizer.decode(tokens)
        if control.stopped:
            return
