"""Beginnings that prompts share: read once, and nobody's numbers depend on whether they were read before."""

from __future__ import annotations

import numpy as np
import pytest

from backend import Finish, Lab, RunSettings
from backend.inference.beginnings import KEPT, Beginning, Beginnings
from backend.inference.model_runner import Runner
from backend.models.pool import Loaded
from backend.steps import Step
from backend.text.prompt import LEAST, prompt

READ = ("tokens", "positions", "entropy", "attended", "states")
SETTINGS = {
    "plain": {},
    "sampled": {"temperature": 1.0, "seed": 3},
    "window": {"window": 24, "sinks": 4},
    "dynamic": {"pic": "dynamic", "ratio": 4.0, "initial": 4, "recent": 16},
    "ntk": {"pic": "ntk", "ratio": 4.0},
    "tuned": {"method": "prompted_tuned", "target": 9},
    "without probes": {"watch": {"enabled": False}},
}


def asked(text: str, **more) -> RunSettings:
    return RunSettings(prompt=text, max_new_tokens=5, precision="fp32", **more)


def numbers(lab: Lab, settings: RunSettings) -> list[object]:
    """Everything of a run but its times."""
    found: list[object] = []
    for event in lab.stream(settings):
        assert not isinstance(event, Finish) or not event.message
        if isinstance(event, Step):
            found += [event.token, event.p, event.p_eos, event.spread, event.entropy, event.state]
            found += [getattr(event.reading, name) for name in READ] if event.reading else []
    return found


def same(some: list[object], others: list[object]) -> bool:
    return len(some) == len(others) and all(np.array_equal(a, b) for a, b in zip(some, others, strict=True))


@pytest.fixture
def chunks(monkeypatch) -> list[int]:
    """The sizes of the chunks of prompts that are read."""
    forward, found = Runner.forward, []

    def counted(self, reads):
        found.extend(len(read.ids) for read in reads if len(read.ids) > 1)
        return forward(self, reads)

    monkeypatch.setattr(Runner, "forward", counted)
    return found


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_beginning_is_read_once_and_changes_nothing(kind, embedded_fp32: Loaded, lab: Lab, chunks: list[int]):
    first, second = (asked(text, **SETTINGS[kind]) for text in ("Why is the sky blue?", "Name three rivers."))
    own, others = (prompt(settings, embedded_fp32.tokenizer) for settings in (first, second))
    assert own.begins == others.begins >= LEAST
    runner = lab.runner(first)
    runner.beginnings._kept.clear()
    alone = numbers(lab, first)
    assert chunks == [own.begins, len(own.ids) - own.begins]
    after = numbers(lab, second)
    assert chunks[2:] == [len(others.ids) - others.begins]
    runner.beginnings._kept.clear()
    assert same(numbers(lab, second), after)
    assert same(numbers(lab, first), alone)


def test_other_policies_and_adapters_have_beginnings_of_their_own(lab: Lab, chunks: list[int]):
    lab.runner(asked("x")).beginnings._kept.clear()
    begun = []
    for kind in ("plain", "sampled", "window", "dynamic", "ntk", "tuned", "without probes"):
        chunks.clear()
        numbers(lab, asked("Why is the sky blue?", **SETTINGS[kind]))
        begun.append(len(chunks))
    assert begun == [2, 1, 2, 2, 2, 2, 2]


@pytest.mark.parametrize(
    "more", [{"method": "ldpe", "target": 5}, {"prefill": "paper", "pic": "dynamic", "ratio": 2.0}]
)
def test_what_a_target_or_one_frame_changes_is_read_whole(more, lab: Lab, chunks: list[int]):
    numbers(lab, asked("Why is the sky blue?", **more))
    assert len(chunks) == 1


def test_only_the_most_recently_used_are_kept():
    kept = Beginnings()
    for key in range(KEPT):
        kept.keep(key, Beginning({}, None))
    assert kept.find(0)
    kept.keep("another", Beginning({}, None))
    assert kept.find(0) and not kept.find(1) and kept.find("another") and len(kept._kept) == KEPT
