"""Branches: a run that goes on from one of its tokens with another in that token's place, and the tree of them."""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from backend.record.trace import Trace
from backend.refused import Refused
from backend.settings import RunSettings
from backend.steps import Resumed, Step, Written

# What the page calls the answer that the first branch left, and how many a tree keeps.
WHOLE, KEPT = "As it was written", 16
# Of a tree that a browser hands over, unpacked: several times what one has that the browser may keep.
MOST_BYTES = 16 * 2**20


@dataclass(frozen=True, eq=False)
class Answer:
    """One of a tree. left: the name of the answer that it left, None of the first; shared: so many of that one's steps
    it begins with."""

    trace: Trace
    left: str | None = None
    shared: int = 0

    @cached_property
    def packed(self) -> str:
        """What it has beyond the answer that it left, as a run of its own. TraceError where that cannot be saved."""
        rest = replace(self.trace, steps=_moved(self.trace.steps[self.shared :], -self.shared))
        return base64.b64encode(gzip.compress(rest.to_json().encode(), 6, mtime=0)).decode()


# Answers that branch from one another, by what the page calls them; each stands after the one that it left.
Tree = dict[str, Answer]


@dataclass(frozen=True)
class Branch:
    """left: the answer from which it goes on. settings: of the run, at the target that was in force. before: the steps
    that it keeps. then: the token that a person chose to follow; words: what it says."""

    left: Trace
    settings: RunSettings
    before: Sequence[Step]
    then: int
    words: str

    @classmethod
    def of(cls, trace: Trace, asked: str) -> Branch:
        """The branch that a page asks for. asked: {"index": the token's place from 1, "token": the id of one of the
        likeliest there} as JSON. ValueError with a sentence where there is no such token."""
        given = json.loads(asked)
        index, token = given.get("index"), given.get("token")
        step = trace.steps[index - 1] if isinstance(index, int) and 1 <= index <= len(trace.steps) else None
        found = next((each for each in (step and step.alternatives) or () if each.token == token), None)
        if step is None or found is None or found.ends:
            raise Refused("there is no such token to go on from: choose one of those that the answer shows")
        settings, aim = trace.settings, step.wanted
        if aim is not None and settings.bound and aim != settings.goal:
            settings = settings.model_copy(update={settings.bound: aim})
        return cls(trace, settings, trace.steps[: index - 1], found.token, found.text)

    @property
    def resumed(self) -> Resumed:
        """What the lab is to go on from."""
        written = tuple(Written(step.token, step.wanted) for step in self.before)
        return Resumed(written, self.before[-1].seconds if self.before else 0.0, then=self.then)

    @property
    def name(self) -> str:
        """What the page calls it."""
        return f"Token {len(self.before) + 1}: {self.words.strip() or '␣'}"


def grown(tree: Tree, branch: Branch | None, trace: Trace) -> Tree:
    """The tree with one more answer; of another answer than one of its own, a new one."""
    if branch is None:
        return {}
    begun = tree if holds(tree, branch.left) else {WHOLE: Answer(branch.left)}
    name, number = branch.name, 2
    while name in begun:
        name, number = f"{branch.name} ({number})", number + 1
    tree = begun | {name: Answer(trace, named(begun, branch.left), len(branch.before))}
    return without(tree, list(tree)[1]) if len(tree) > KEPT else tree


def without(tree: Tree, name: str) -> Tree:
    """The tree without a branch; those that left it hang on the answer that it left itself."""
    gone = tree[name]

    def hung(answer: Answer) -> Answer:
        if answer.left != name:
            return answer
        return Answer(answer.trace, gone.left, min(answer.shared, gone.shared))

    return {each: hung(answer) for each, answer in tree.items() if each != name}


def named(tree: Tree, trace: Trace | None) -> str | None:
    """The name of an answer; None where it is none of the tree."""
    return next((name for name, answer in tree.items() if answer.trace is trace), None)


def holds(tree: Tree, trace: Trace | None) -> bool:
    """Whether an answer is one of the tree."""
    return named(tree, trace) is not None


def shown(tree: Tree, trace: Trace | None) -> str:
    """The value of `live.branches`: the tree, and the answer that is shown; "" below an answer that is none of it."""
    if (name := named(tree, trace)) is None:
        return ""
    return json.dumps({"answers": [[each, answer.left] for each, answer in tree.items()], "shown": name})


def chosen(tree: Tree, value: str) -> Trace | None:
    """The answer that a value of `live.branches` shows; None where the tree has it no more."""
    answer = tree.get(json.loads(value)["shown"])
    return answer.trace if answer else None


def packed(tree: Tree, trace: Trace | None, most: int) -> list[list[Any]]:
    """The tree of an answer as the browser keeps it, in `most` signs: the oldest others are left out where it has more.
    Nothing where the answer itself is none of it, or too large. TraceError where one cannot be saved."""
    if not holds(tree, trace):
        return []
    while sum(len(answer.packed) for answer in tree.values()) > most:
        spare = [name for name, answer in [*tree.items()][1:] if answer.trace is not trace]
        if not spare:
            return []
        tree = without(tree, spare[0])
    return [[name, answer.left, answer.shared, answer.packed] for name, answer in tree.items()]


def unpacked(rows: Sequence[Sequence[Any]]) -> Tree:
    """The inverse of `packed`. ValueError, TypeError, LookupError, OSError or EOFError where the rows are none."""
    tree: Tree = {}
    room = MOST_BYTES
    for name, left, shared, rest in rows[:KEPT]:
        data = gzip.GzipFile(fileobj=io.BytesIO(base64.b64decode(rest))).read(room + 1)
        room -= len(data)
        if room < 0:
            raise ValueError("a tree of answers is too large")
        trace = Trace.load(data)
        if left is not None:
            trace.steps = [*tree[left].trace.steps[: int(shared)], *_moved(trace.steps, int(shared))]
        tree[name] = Answer(trace, left, int(shared))
    return tree


def _moved(steps: Sequence[Step], by: int) -> list[Step]:
    """Steps under other numbers."""
    return [replace(step, index=step.index + by) for step in steps]
