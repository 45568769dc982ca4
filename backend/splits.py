"""Which prompts are for training, which choose between trainings (validation), and which measure a release (test).

    python -m backend.splits FOLDER     # writes assets/prompts/splits.json, from the data sets in FOLDER

A prompt belongs to a set by the hash of its text, which that file keeps: whatever is not in it may be trained on. The
lab's own questions and stories stand in assets/prompts/own.jsonl; instructions, abstracts and tasks for long answers in
the data sets, whose texts are other people's.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from backend.record import jsonlines
from backend.refused import Refused

Split = Literal["train", "validation", "test"]
Kind = Literal["instructions", "questions", "stories", "abstracts", "long"]

FOLDER = Path(__file__).parents[1] / "assets" / "prompts"
SUMMARISE = "Summarize the following abstract:\n\n"
# Of each kind in each set. Longer prompts would be read for longer than they are answered.
COUNT, LONGEST = 28, 600
# Tokens asked for, one of them a prompt, in turn: their number shares no factor with that of the kinds of prompts.
TARGETS = (10, 20, 30, 40, 60, 80, 100, 150, 200)
# What earlier versions were chosen by: every tenth instruction was never trained on; the first abstracts and these
# shares of the long tasks were asked again and again.
HELD_OUT, ABSTRACTS_SEEN, TASKS_SEEN = 10, 100, (8, 24, 32)


class Prompt(NamedTuple):
    """A prompt and its kind."""

    kind: Kind
    text: str


def fingerprint(prompt: str) -> str:
    """What a prompt is known by: 16 hexadecimal digits of SHA-256, outer white space left out."""
    return hashlib.sha256(prompt.strip().encode()).hexdigest()[:16]


def split_of(prompt: str) -> Split:
    """The set a prompt belongs to."""
    known = fingerprint(prompt)
    return next((split for split, kinds in _file().items() for hashes in kinds.values() if known in hashes), "train")


def prompts(split: Split, folder: Path | None = None, kinds: Iterable[Kind] | None = None) -> list[Prompt]:
    """The prompts of the validation or the test set, kind by kind, in the order of their hashes.

    folder: the data sets; without them there are the lab's own questions and stories alone. kinds: those wanted (all
    but the long tasks). ValueError where there is none.
    """
    wanted = set(kinds or [kind for kind in get_args(Kind) if kind != "long"])
    hashes = _file().get(split, {})
    found = {
        prompt: fingerprint(prompt.text)
        for prompt in [*_own(), *(_others(folder) if folder else ())]
        if prompt.kind in wanted and fingerprint(prompt.text) in hashes.get(prompt.kind, ())
    }
    if not found:
        raise Refused(f"there is no {split} prompt of {', '.join(sorted(wanted))}: give the folder of the data sets")
    order = list(get_args(Kind))
    return sorted(found, key=lambda prompt: (order.index(prompt.kind), found[prompt]))


@cache
def _file() -> dict[Split, dict[Kind, frozenset[str]]]:
    sets = json.loads((FOLDER / "splits.json").read_text("utf-8"))
    return {split: {kind: frozenset(hashes) for kind, hashes in kinds.items()} for split, kinds in sets.items()}


def _own() -> Iterator[Prompt]:
    for row in jsonlines.read(FOLDER / "own.jsonl", "kind", "prompt"):
        yield Prompt(row["kind"], row["prompt"])


def _others(folder: Path) -> Iterator[Prompt]:
    for row in jsonlines.read(folder / "instructions.jsonl", "prompt"):
        yield Prompt("instructions", row["prompt"])
    for name in ("scitldr_dev.jsonl", "scitldr_test.jsonl"):
        for row in jsonlines.read(folder / name, "abstract"):
            yield Prompt("abstracts", SUMMARISE + row["abstract"])
    for row in jsonlines.read(folder / "hellobench_ht.jsonl", "prompt"):
        yield Prompt("long", row["prompt"])


def made(folder: Path) -> dict[str, dict[str, list[str]]]:
    """The sets anew: hashes by set and kind, none that an earlier version was trained on or chosen by."""
    own = {kind: [p.text for p in _own() if p.kind == kind] for kind in ("questions", "stories")}
    instructions = [row["prompt"] for row in jsonlines.read(folder / "instructions.jsonl", "prompt")]
    kept = [
        text
        for text in dict.fromkeys(instructions)
        if len(text) <= LONGEST and hashlib.sha256(text.strip().encode()).digest()[0] % HELD_OUT == 0
    ]
    dev, test = (
        [SUMMARISE + row["abstract"] for row in jsonlines.read(folder / f"scitldr_{part}.jsonl", "abstract")]
        for part in ("dev", "test")
    )
    tasks = [row["prompt"] for row in jsonlines.read(folder / "hellobench_ht.jsonl", "prompt")]
    spread = {tasks[i * len(tasks) // count] for count in TASKS_SEEN for i in range(count)}
    seen = spread | set(tasks[: max(TASKS_SEEN)])
    sets: dict[str, dict[str, list[str]]] = {"validation": {}, "test": {}}
    for kind, texts in {"instructions": kept, **own}.items():
        hashes = _sorted(texts)
        sets["validation"][kind], sets["test"][kind] = hashes[:COUNT], hashes[COUNT : 2 * COUNT]
    sets["validation"]["abstracts"] = _sorted(dev)[:COUNT]
    later = set(test[ABSTRACTS_SEEN:]) - set(dev) - set(test[:ABSTRACTS_SEEN])
    sets["test"]["abstracts"] = _sorted(later)[:COUNT]
    sets["test"]["long"] = _sorted(set(tasks) - seen)
    return sets


def _sorted(texts: Iterable[str]) -> list[str]:
    return sorted(set(map(fingerprint, texts)))


if __name__ == "__main__":
    (FOLDER / "splits.json").write_text(json.dumps(made(Path(sys.argv[1])), indent=1) + "\n", "utf-8")
