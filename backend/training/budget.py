"""What a training was given, so that only what was given the same is put into one table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What a training tells of itself, and of the one it went on from.
RECORD, LOG = "training.json", "training.jsonl"
UNRECORDED = "unrecorded"
# Two runs end with the batch that reaches their number of samples; prompts of other lengths fall into other batches.
CLOSE = 0.02


def record(folder: str | Path) -> dict[str, Any] | None:
    """What the training of an adapter or a model tells of itself; None where nothing is kept."""
    file = Path(folder, RECORD)
    return json.loads(file.read_text("utf-8")) if file.exists() else None


@dataclass(frozen=True)
class Budget:
    """Of one training: label tokens seen, EOS tokens included; responses seen, repeats included; distinct texts among
    them, and the hash of their set; checksum of the adapter that it went on from, "" for the base model. None: not
    recorded."""

    labels: int | None = None
    samples: int | None = None
    texts: int | None = None
    texts_sha256: str | None = None
    start: str | None = None

    @classmethod
    def of(cls, labels: int, samples: int, texts: set[str] | None, start: str) -> Budget:
        """texts: their fingerprints, None where they were not counted."""
        if texts is None:
            return cls(labels, samples, start=start)
        return cls(labels, samples, len(texts), hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest(), start)

    @classmethod
    def recorded(cls, about: Mapping[str, Any]) -> Budget:
        """That of a training.json, of earlier versions too."""
        if "budget" in about:
            return cls(**about["budget"])
        start = None if about["settings"]["start"] else ""
        return cls(about["result"]["labels"], about["result"]["samples"], start=start)


def trainings(adapter: Path) -> Iterator[dict[str, Any]]:
    """The trainings that an adapter's folder tells of, the last one first."""
    about = json.loads((adapter / RECORD).read_text("utf-8"))
    while about is not None:
        yield about
        about = about.get("resumed_from")


def budgets(adapter: Path) -> list[Budget]:
    """Of all trainings that led to an adapter, the last one first. One that is known of but not recorded is empty."""
    stages = list(trainings(adapter))
    return [*map(Budget.recorded, stages), *([Budget()] if stages[-1]["settings"]["start"] else [])]


def differences(first: Path, second: Path) -> list[str]:
    """Why two adapters are not to be compared as rows of one table, in words; empty where they were given the same:
    stage by stage as many label tokens (within 2 %) of the same texts, and the same start."""
    pairs = list(zip(budgets(first), budgets(second), strict=False))
    found = []
    if len(budgets(first)) != len(budgets(second)):
        found.append("the number of trainings")
    if any(None in (one.labels, other.labels) or _apart(one, other) for one, other in pairs):
        found.append("the label tokens")
    if any(one.texts_sha256 is None or one.texts_sha256 != other.texts_sha256 for one, other in pairs):
        found.append("the texts")
    first_start, second_start = budgets(first)[-1].start, budgets(second)[-1].start
    if first_start is None or first_start != second_start:
        found.append("the start")
    return found


def _apart(one: Budget, other: Budget) -> bool:
    assert one.labels is not None and other.labels is not None
    return abs(one.labels - other.labels) > CLOSE * max(one.labels, other.labels)
