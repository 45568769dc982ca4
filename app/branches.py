"""Branches: a run that goes on from one of its tokens with another in that token's place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from backend.record.trace import Trace
from backend.refused import Refused
from backend.settings import RunSettings
from backend.steps import Resumed, Step, Written

# The answer that the first branch left, and how many are kept.
WHOLE, KEPT = "As it was written", 8
# Answers that branch from one another, by what the page calls them.
Tree = dict[str, Trace]


@dataclass(frozen=True)
class Branch:
    """settings: of the run that goes on, at the target that was in force. before: the steps that it keeps. then: the
    token that a person chose to follow; words: what it says."""

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
        return cls(settings, trace.steps[: index - 1], found.token, found.text)

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
    """The tree with one more answer; the oldest branch goes where there are too many."""
    if branch is None:
        return tree
    name, number = branch.name, 2
    while name in tree:
        name, number = f"{branch.name} ({number})", number + 1
    oldest = list(tree)[1:2] if len(tree) >= KEPT else []
    return {each: one for each, one in tree.items() if each not in oldest} | {name: trace}


def branches_of(tree: Tree) -> Any:
    """An update of the radio buttons that show the tree, the newest chosen; out of sight while there is none."""
    return gr.update(choices=list(tree), value=next(reversed(tree), None), visible=len(tree) > 1)


def holds(tree: Tree, trace: Trace | None) -> bool:
    """Whether an answer is one of the tree."""
    return any(trace is one for one in tree.values())


def stands(trace: Trace | None, tree: Tree) -> Any:
    """An update of the same buttons, which stand below one of their answers alone."""
    return gr.skip() if holds(tree, trace) else gr.update(visible=False)
