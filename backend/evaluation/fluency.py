"""How fluent a model stays as a text goes on, under each position policy (002 fig. 3 and 4, table 1).

    python -m backend evaluate perplexity --data FOLDER
    python -m backend evaluate perplexity --policy Λ --lengths 8192 131072

Writes assets/results/perplexity.json, or with --ablation what each part of Λ does to ablation.json, and goes on where
an earlier run stopped, within a long text from its last checkpoint. FOLDER holds novels or other *.txt; without one the
text is the documentation that comes with Python. Perplexity at a length is that of the TAIL tokens before it.
"""

from __future__ import annotations

import hashlib
import math
import pydoc_data.topics
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from backend.engine import Lab
from backend.evaluation.perplexity import Chunk, begin, read, tokenise, truncation_start
from backend.record import checkpoint
from backend.record.provenance import CALL, provenance
from backend.record.results import counted
from backend.refused import Refused
from backend.settings import RunSettings

LENGTHS = (2048, 4096, 8192, 16384, 32768, 65536, 131072)
TAIL = 1024
# A text begun anew this far before a length has the same last tokens within the model's training length.
FRESH = 8192
PROGRESS = 8192
# Seconds after which a reading that is under way is kept: what a stopped run loses at most, and a report more.
KEPT_EVERY = 300
WINDOW = 2048
TRUNCATION = "truncation"
POLICIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "Λ": {"window": WINDOW},
    "window only": {"window": WINDOW, "sinks": 0},
    TRUNCATION: {},
    "naive PIC, s = 4": {"pic": "naive", "ratio": 4},
    "NTK PIC, s = 4": {"pic": "ntk", "ratio": 4},
    "dynamic PIC, s = 4": {"pic": "dynamic", "ratio": 4},
}
# What each part of Λ mends (002 §3): far distances its limit, many keys its window, lost first tokens its sinks.
# Windows from a quarter to twice the embedded model's training length.
EVERYTHING = max(LENGTHS)
ABLATION: dict[str, dict[str, Any]] = {
    "plain": {},
    "limit alone": {"window": EVERYTHING, "sinks": 0, "distance_limit": WINDOW},
    "window alone": {"window": WINDOW, "sinks": 0},
    "window, sinks": {"window": WINDOW, "distance_limit": "off"},
    "window, sinks, limit": {"window": WINDOW},
    **{f"{n} sinks": {"window": WINDOW, "sinks": n} for n in (1, 2, 4, 30, 100)},
    **{f"window {n:,}": {"window": n} for n in (4096, 8192, 16384)},
}
KNOWN = POLICIES | ABLATION


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


def earlier(found: dict[str, Any], model: str) -> dict[str, Any]:
    """A result to go on from, checked. ValueError for one that cannot be gone on from."""
    try:
        measured_on, _ = found["model"], [Reading(**row) for row in found["readings"]]
    except (KeyError, TypeError) as error:
        raise Refused("it is no result of this command") from error
    if measured_on != model:
        raise Refused(f"it was measured on {measured_on}")
    return found


def documents(folder: Path | None, most: int) -> dict[str, str]:
    """Texts by name: the *.txt of a folder, at most `most`, or Python's documentation. ValueError for none."""
    if folder is None:
        return {"pydoc": "\n\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))}
    files = sorted(folder.glob("*.txt"))[:most]
    if not files:
        raise Refused(f"there is no .txt file in {folder}: give a folder with texts")
    return {file.stem: file.read_text("utf-8") for file in files}


def tasks(names: Sequence[str], policies: Sequence[str], lengths: Sequence[int], longest: int) -> list[Task]:
    """All readings, short ones first. longest: where policies stop that look at everything, in quadratic time."""
    found = []
    for name in names:
        for policy in policies:
            if policy == TRUNCATION:
                found += [Task(name, policy, _begins(length), length) for length in lengths]
                continue
            windowed = KNOWN[policy].get("window", EVERYTHING) < EVERYTHING
            stop = max(lengths) if windowed else max((n for n in lengths if n <= longest), default=0)
            found += [Task(name, policy, 0, stop)] if stop else []
            if policy == "Λ":
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
    text: str,
    call: Mapping[str, str],
    report: Callable[[str], None],
) -> Reading:
    """Read what a task names of a document's ids [n]; report is called after every PROGRESS tokens.

    text: its fingerprint. call: the one under way. Goes on from the last checkpoint of a call that was stopped.
    """
    settings, ids = RunSettings(prompt="-", model=model, **KNOWN[task.policy]), ids[task.start : task.stop]
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


def summary(readings: Sequence[Reading], lengths: Sequence[int]) -> list[dict[str, Any]]:
    """Perplexity by policy and length, over the documents that are long enough."""
    rows = []
    for policy in KNOWN:
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
    return _tails(readings, "Λ", length, length - FRESH)


def _tails(readings: Sequence[Reading], policy: str, length: int, start: int) -> dict[str, float]:
    mine = (reading for reading in readings if (reading.policy, reading.start) == (policy, start))
    return {reading.document: nats for reading in mine if (nats := reading.tail(length)) is not None}


def _lengths(found: Mapping[str, Any]) -> set[int]:
    """At which an earlier result tells perplexities."""
    return {int(key.replace(",", "")) for row in found.get("perplexity", ()) for key in row if key != "policy"}


def same_tokens(readings: Sequence[Reading], lengths: Sequence[int]) -> list[dict[str, Any]]:
    """Λ perplexity of the last tokens of a long text, over that of the same tokens in a text begun FRESH before."""
    rows = []
    for length in lengths:
        far, near = by_document(readings, "Λ", length), by_document_fresh(readings, length)
        both = sorted(far.keys() & near.keys()) if length > FRESH else []
        if both:
            late, early = statistics.mean(far[name] for name in both), statistics.mean(near[name] for name in both)
            rows.append(
                {
                    "tokens": length,
                    "documents": len(both),
                    "perplexity": round(math.exp(late), 3),
                    "perplexity of a fresh text": round(math.exp(early), 3),
                    "ratio": round(math.exp(late - early), 4),
                }
            )
    return rows


def evaluate(
    lab: Lab,
    model: str,
    texts: Mapping[str, str],
    policies: Sequence[str],
    lengths: Sequence[int],
    longest: int,
    before: Mapping[str, Any] | None = None,
    report: Callable[[str], None] = print,
) -> Iterator[dict[str, Any]]:
    """The result document after each reading, the last one whole. before: a document to go on from.

    Its provenance is that of this call; those of the calls it went on from are kept under `resumed_from`.
    """
    before = before or {"readings": []}
    readings = [Reading(**row) for row in before["readings"]]
    prints = {name: fingerprint(text) for name, text in texts.items()}
    if other := next((r.document for r in readings if prints.get(r.document, r.text) != r.text), None):
        raise Refused(f"what is to be gone on from was read of another text named {other}: give another --out")
    result = provenance(seed=0, before=before if readings else None)
    measured_at = sorted({*lengths, *_lengths(before)})
    ids = {
        name: tokenise(lab, text, RunSettings(prompt="-", model=model), max(lengths)) for name, text in texts.items()
    }
    for task in tasks(list(texts), policies, lengths, longest):
        if not any(task.done(reading) for reading in readings):
            if len(ids[task.document]) < task.stop:
                report(f"{task.document} has {len(ids[task.document]):,} tokens: {task.stop:,} left out")
                continue
            readings = [reading for reading in readings if not task.continues(reading)]
            name, call = task.document, {key: result[key] for key in CALL}
            readings.append(measured(lab, model, ids[name], task, prints[name], call, report))
            report(f"{task.document} {task.policy} {task.start:,}–{task.stop:,}: {readings[-1].nll[-1]:.3f} nats")
        result |= {
            "model": model,
            "window": WINDOW,
            "perplexity": summary(readings, measured_at),
            "same_tokens": same_tokens(readings, measured_at),
            "readings": [asdict(reading) for reading in readings],
        }
        yield result
    for policy in policies:
        for length in lengths:
            count = len(by_document(readings, policy, length).keys() & texts.keys())
            why = "shorter than that, or past where the policy stops"
            report(counted(f"{policy}, {length:,} tokens", "texts", len(texts), count, why))
