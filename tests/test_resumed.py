"""A run that was cut off goes on as if it had not been: the same tokens, steps and end."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from backend import Finish, RunSettings, Step
from backend.inference.control import Control
from backend.steps import Resumed, Written

ASKED = RunSettings(prompt="Why is the sky blue?", max_new_tokens=10)
WAYS = {
    "greedy": {},
    "drawn": {"temperature": 1.0, "top_k": 40, "seed": 7},
    "repetition": {"repetition_penalty": 1.3},
    "Λ": {"window": 12, "sinks": 2},
    "dynamic": {"pic": "dynamic", "ratio": 4, "initial": 2, "recent": 8, "max_new_tokens": 14},
    "dynamic, the paper's prefill": {"pic": "dynamic", "ratio": 4, "initial": 2, "recent": 8, "prefill": "paper"},
    "ntk": {"pic": "ntk", "ratio": 2},
    "dual chunk": {"pic": "dual_chunk", "window": 24},
    "Λ on dynamic": {"pic": "dynamic", "ratio": 2, "initial": 2, "recent": 8, "window": 30, "sinks": 2},
    "ldpe": {"method": "ldpe", "target": 11, "temperature": 0.7},
    "pre": {"method": "pre", "target": 11},
    "lrpe, characters": {"method": "lrpe", "target": 40, "unit": "characters"},
    "words": {"method": "orpe", "target": 9, "unit": "words"},
    "limit": {"method": "mnt_ldpe", "limit": 12},
    "decay": {"method": "exp_decay", "target": 9},
    "decay, words": {"method": "exp_decay", "target": 4, "unit": "words"},
    "prompted": {"method": "prompted", "target": 9},
}


def written(steps: list[Step], count: int) -> Resumed:
    """What the first steps leave to go on from."""
    seconds = steps[count - 1].seconds if count else 0.0
    return Resumed(tuple(Written(step.token, step.wanted) for step in steps[:count]), seconds)


def settled(finish: Finish) -> Finish:
    """The end without how long it took."""
    return replace(finish, prefill_seconds=0.0, decode_seconds=0.0, tokens_per_second=0.0, p_eos=None, p_eos_model=None)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_a_run_cut_at_each_token_goes_on_to_the_same_end(lab, way, exact):
    # In fp32 no draw depends on how many tokens are read at once; in bf16 one may.
    precision = {"precision": "bf16" if exact else "fp32"}
    asked = RunSettings(**ASKED.model_dump() | WAYS[way] | precision)
    *steps, finish = lab.stream(asked)
    assert len(steps) > 2
    for count in sorted({1, len(steps) // 2, len(steps)}):
        *rest, end = lab.stream(asked, resumed=replace(written(steps, count), exact=exact))
        assert [step.token for step in rest] == [step.token for step in steps[count:]], count
        assert [step.index for step in rest] == [step.index for step in steps[count:]]
        assert [step.text for step in rest] == [step.text for step in steps[count:]]
        assert [step.wanted for step in rest] == [step.wanted for step in steps[count:]]
        for again, before in zip(rest, steps[count:], strict=True):
            assert again.p == (before.p if exact else pytest.approx(before.p, abs=1e-3))
            assert again.context == before.context
            assert again.remaining == before.remaining
        assert settled(end) == settled(finish)


def test_the_clock_goes_on_from_where_it_stood(lab):
    *steps, _ = lab.stream(ASKED)
    *rest, finish = lab.stream(ASKED, resumed=Resumed(written(steps, 5).written, 60.0))
    assert all(60 < step.seconds for step in rest) and finish.decode_seconds > 60
    assert finish.tokens_per_second == pytest.approx(finish.tokens / finish.decode_seconds)


def test_a_target_that_was_moved_before_the_cut_was_in_force_from_its_token_on(lab):
    asked = RunSettings(**ASKED.model_dump() | {"method": "ldpe", "target": 13})
    control, steps = Control(), []
    for event in lab.stream(asked, control):
        if isinstance(event, Step):
            steps.append(event)
            if event.index == 4:
                control.retarget(8)
    finish = event
    for count in (2, 5, len(steps) - 1):
        again = Control()
        if count > 4:
            again.retarget(8)
        events = lab.stream(asked, again, resumed=written(steps, count))
        rest = []
        for event in events:
            if isinstance(event, Step):
                rest.append(event)
                if event.index == 4:
                    again.retarget(8)
        assert [step.token for step in rest] == [step.token for step in steps[count:]]
        assert event.error == finish.error


def test_probes_see_the_same_after_the_cut(lab):
    asked = ASKED.model_copy(update={"watch": ASKED.watch.model_copy(update={"enabled": True})})
    *steps, _ = lab.stream(asked)
    *rest, _ = lab.stream(asked, resumed=written(steps, 6))
    for again, before in zip(rest, steps[6:], strict=True):
        assert (again.entropy == before.entropy).all() and (again.state == before.state).all()
        assert (again.logits is None) == (before.logits is None)
    assert rest[0].reading is None


def test_what_a_run_takes_and_yields_crosses_processes(lab):
    asked = ASKED.model_copy(update={"watch": ASKED.watch.model_copy(update={"enabled": True})})
    events = list(lab.stream(asked, progress=True))
    for each in [asked, lab.capabilities(), written(events[1:-1], 3), *events]:
        assert type(pickle.loads(pickle.dumps(each))) is type(each)
    control = Control()
    control.retarget(9)
    again = pickle.loads(pickle.dumps(control))
    assert again.goal(asked) == 9 and not again.stopped
