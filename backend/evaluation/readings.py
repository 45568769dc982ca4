"""Perplexity as a text goes on, under each position policy, and within a long text on from its last checkpoint.

Perplexity at a length is that of the TAIL tokens before it.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field

from backend.engine import Lab
from backend.evaluation.experiment import Experiment, Result, Say, chosen, not_gone_on
from backend.evaluation.markdown import figure, table
from backend.evaluation.perplexity import Chunk, begin, read, truncation_start
from backend.evaluation.texts import LAMBDA, TRUNCATION, WINDOW, TextFlags
from backend.inference.chunks import CHUNK
from backend.record import checkpoint
from backend.record.provenance import CALL, provenance
from backend.record.results import counted
from backend.settings import RunSettings

LENGTHS = (2048, 4096, 8192, 16384, 32768, 65536, 131072)
TAIL = 1024
# A text begun anew this far before a length has the same last tokens within the model's training length.
FRESH = 8192
PROGRESS = 8192
# Seconds after which a reading that is under way is kept: what a stopped run loses at most, and a report more.
KEPT_EVERY = 300
# By name the settings of each; a window from which on nothing is windowed.
Policies = Mapping[str, Mapping[str, Any]]
EVERYTHING = max(LENGTHS)
FEW = "so few texts have no interval, and no difference is claimed"


@dataclass(frozen=True)
class Reading:
    """A text read from token `start` on. text: its `fingerprint`. Each list has one number a chunk: tokens read before
    its end, mean nats of a token, mean attention entropy of its last row in nats, tokens per second, bytes of the
    cache. calls: those before the last that it was read by, each stopped."""

    document: str
    text: str
    policy: str
    start: int
    position: list[int] = field(default_factory=list)
    nll: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    tokens_per_second: list[float] = field(default_factory=list)
    cache_bytes: list[int] = field(default_factory=list)
    calls: list[dict[str, str]] = field(default_factory=list)

    def add(self, chunk: Chunk) -> None:
        """Go on by a chunk."""
        self.position.append(chunk.position)
        self.nll.append(round(float(chunk.nll.mean()), 4))
        self.entropy.append(round(float(chunk.entropy.mean()), 3))
        self.tokens_per_second.append(round(chunk.tokens_per_second, 1))
        self.cache_bytes.append(chunk.cache_bytes)

    def tail(self, length: int) -> float | None:
        """Mean nats of the TAIL tokens before token `length` of the document; None where it was not read so far."""
        if not self.position or self.start + self.position[-1] < length:
            return None
        near = [n for p, n in zip(self.position, self.nll, strict=True) if length - TAIL < self.start + p <= length]
        return statistics.mean(near) if near else None


@dataclass(frozen=True)
class Task:
    """What is to be read: tokens from start to stop of a document, under a policy."""

    document: str
    policy: str
    start: int
    stop: int

    def continues(self, reading: Reading) -> bool:
        """Whether it begins as a reading did."""
        return (reading.document, reading.policy, reading.start) == (self.document, self.policy, self.start)

    def done(self, reading: Reading) -> bool:
        """Whether a reading holds it."""
        return self.continues(reading) and reading.start + reading.position[-1] >= self.stop


def tasks(names: Sequence[str], policies: Policies, lengths: Sequence[int], longest: int) -> list[Task]:
    """All readings, short ones first. longest: where policies stop that look at everything, in quadratic time."""
    found = []
    for name in names:
        for policy in policies:
            if policy == TRUNCATION:
                found += [Task(name, policy, _begins(length), length) for length in lengths]
                continue
            windowed = policies[policy].get("window", EVERYTHING) < EVERYTHING
            stop = max(lengths) if windowed else max((n for n in lengths if n <= longest), default=0)
            found += [Task(name, policy, 0, stop)] if stop else []
            if policy == LAMBDA:
                found += [Task(name, policy, n - FRESH, n) for n in lengths if FRESH < n <= stop]
    return sorted(found, key=lambda task: task.stop - task.start)


def _begins(length: int) -> int:
    """Where a truncated text begins of which the TAIL tokens before `length` are measured."""
    return truncation_start(length - TAIL, TAIL, WINDOW)


def fingerprint(text: str) -> str:
    """Of a text, by which it is known whatever its name."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def measured(
    lab: Lab,
    model: str,
    ids: torch.Tensor,
    task: Task,
    policy: Mapping[str, Any],
    text: str,
    call: Mapping[str, str],
    report: Callable[[str], None],
) -> Reading:
    """Read what a task names of a document's ids [n]; report is called after every PROGRESS tokens.

    policy: its settings. text: its fingerprint. call: the one under way. Goes on from the last checkpoint of a call
    that was stopped.
    """
    settings, ids = RunSettings(prompt="-", model=model, **policy), ids[task.start : task.stop]
    file = checkpoint.place(model, text, task.start, settings)
    stand, reading = begin(lab, settings, len(ids)), Reading(task.document, text, task.policy, task.start)
    if kept := checkpoint.load(file):
        stand.cache.restore(kept["cache"])
        stand.last, reading = kept["last"], Reading(**kept["reading"])
        reading.calls.append(kept["call"])
    kept_at = time.monotonic()
    for chunk in read(lab, ids, settings, stand=stand):
        reading.add(chunk)
        if chunk.position % PROGRESS == 0:
            report(f"{task.document} {task.policy}: {task.start + chunk.position:,} of {task.stop:,} tokens read")
            if time.monotonic() - kept_at >= KEPT_EVERY:
                state = {"reading": asdict(reading), "cache": stand.cache.state(), "last": stand.last, "call": call}
                checkpoint.save(file, state)
                kept_at = time.monotonic()
    file.unlink(missing_ok=True)
    return reading


def summary(readings: Sequence[Reading], policies: Sequence[str], lengths: Sequence[int]) -> list[dict[str, Any]]:
    """Perplexity by policy and length, over the documents that are long enough."""
    rows = []
    for policy in policies:
        mine = [reading for reading in readings if reading.policy == policy]
        row: dict[str, Any] = {"policy": policy}
        for length in lengths:
            found = by_document(mine, policy, length).values()
            row[f"{length:,}"] = round(math.exp(statistics.mean(found)), 2) if found else None
        if any(value is not None for key, value in row.items() if key != "policy"):
            rows.append(row)
    return rows


def by_document(readings: Sequence[Reading], policy: str, length: int) -> dict[str, float]:
    """Nats of the TAIL tokens before a length, by document, of those read so far from their start."""
    start = _begins(length) if policy == TRUNCATION else 0
    return _tails(readings, policy, length, start)


def by_document_fresh(readings: Sequence[Reading], length: int) -> dict[str, float]:
    """The same under Λ of texts begun FRESH before the length."""
    return _tails(readings, LAMBDA, length, length - FRESH)


def _tails(readings: Sequence[Reading], policy: str, length: int, start: int) -> dict[str, float]:
    mine = (reading for reading in readings if (reading.policy, reading.start) == (policy, start))
    return {reading.document: nats for reading in mine if (nats := reading.tail(length)) is not None}


class TextReadings(Experiment):
    """What experiments share that read texts under policies. policies: their settings by name."""

    policies: ClassVar[Policies]
    resumes = True

    class Options(TextFlags):
        documents: int = Field(3, ge=1, description="texts of the folder to read")
        lengths: tuple[Annotated[int, Field(ge=TAIL, multiple_of=CHUNK)], ...] = Field(
            LENGTHS, description="tokens after which to measure"
        )
        longest: int = Field(32768, description="where plain attention stops, and what costs as much")
        policy: tuple[str, ...] = Field((), description="policies, or all")

    def measure(self, options: Options, before: Result | None, say: Say) -> Iterator[dict[str, Any]]:
        policies = {name: self.policies[name] for name in chosen(options.policy, self.policies)}
        readings = _before(before, options.model)
        texts, lengths = options.texts(), sorted(options.lengths)
        prints = {name: fingerprint(text) for name, text in texts.items()}
        if other := next((r.document for r in readings if prints.get(r.document, r.text) != r.text), None):
            raise not_gone_on(f"it was read of another text named {other}")
        measured_at = sorted({*lengths, *(told_at(before) if readings and before else ())})
        lab = options.lab()
        ids = options.ids(lab, lengths[-1])
        about = provenance(seed=0)
        call = {key: about[key] for key in CALL}
        found: dict[str, Any] = {}
        for task in tasks(list(texts), policies, lengths, options.longest):
            name = task.document
            if not any(task.done(reading) for reading in readings):
                if len(ids[name]) < task.stop:
                    say(f"{name} has {len(ids[name]):,} tokens: {task.stop:,} left out")
                    continue
                readings = [reading for reading in readings if not task.continues(reading)]
                readings.append(
                    measured(lab, options.model, ids[name], task, policies[task.policy], prints[name], call, say)
                )
                say(f"{name} {task.policy} {task.start:,}–{task.stop:,}: {readings[-1].nll[-1]:.3f} nats")
            found = {
                "model": options.model,
                "window": WINDOW,
                "perplexity": summary(readings, list(self.policies), measured_at),
                "readings": [asdict(reading) for reading in readings],
            }
            yield found
        for row in found.get("perplexity", ()):
            say(json.dumps(row, ensure_ascii=False))
        for policy in policies:
            for length in lengths:
                count = len(by_document(readings, policy, length).keys() & texts.keys())
                why = "shorter than that, or past where the policy stops"
                say(counted(f"{policy}, {length:,} tokens", "texts", len(texts), count, why))


def _before(result: Result | None, model: str) -> list[Reading]:
    if result is None:
        return []
    try:
        measured_on, readings = result["model"], [Reading(**row) for row in result["readings"]]
    except (KeyError, TypeError) as error:
        raise not_gone_on("it is no result of this command") from error
    if measured_on != model:
        raise not_gone_on(f"it was measured on {measured_on}")
    return readings


def told_at(result: Result) -> list[int]:
    """The lengths at which a result tells perplexities."""
    return sorted({int(key.replace(",", "")) for row in result["perplexity"] for key in row if key != "policy"})


def perplexities(result: Result, title: str) -> str:
    """The perplexities of a result as a table under its title."""
    lengths = [f"{length:,}" for length in told_at(result)]
    texts = len({row["document"] for row in result["readings"]})
    rows = [[row["policy"], *(figure(row.get(at)) for at in lengths)] for row in result["perplexity"]]
    of = f"{texts} text{'s' * (texts > 1)}"
    return f"{title} ({of}):\n\n{table(['attention', *lengths], rows)}"
