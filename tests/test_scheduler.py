"""Runs that are written together: each is what it is alone, and none can hold up or break another."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch
from conftest import tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import IDS, loaded, run
from threads import at_once
from torch.nn import Linear

from backend import Finish, Lab, RunSettings
from backend.inference.control import Control
from backend.inference.kv_cache import Stopped
from backend.inference.model_runner import Runner
from backend.inference.scheduler import Read, Scheduler, together
from backend.models.lora import Lora
from backend.positions import LambdaWindow, Plain, PositionPolicy
from backend.positions.dynamic_pic import DynamicPic
from backend.positions.naive_pic import NaivePic
from backend.positions.ntk_pic import NtkPic
from backend.settings import Watch

pytestmark = pytest.mark.usefixtures("two_threads")
POLICIES = [
    Plain(),
    LambdaWindow(window=6, sinks=2),
    DynamicPic(3.0, 2, 5),
    NaivePic(2.0),
    NtkPic(4.0),
    LambdaWindow(window=7, sinks=2, limit=4.0),
    LambdaWindow(DynamicPic(3.0, 3, 5), 12, 3, 6.0),
]
PROMPTS = ("Why is the sky blue?", "Tell me a story about a fox.")
ASKED = [
    {},
    {"window": 24, "sinks": 4},
    {"pic": "dynamic", "ratio": 4, "initial": 4, "recent": 16},
    {"pic": "naive", "ratio": 2},
    {"pic": "ntk", "ratio": 4},
    {"temperature": 0.9, "seed": 3, "top_k": 40},
    {"method": "prompted", "target": 12, "landing": 2},
    {"repetition_penalty": 1.3, "watch": Watch(enabled=False)},
]


def writing(runner: Runner, policy: PositionPolicy, prompt: torch.Tensor, count: int) -> Iterator[torch.Tensor | Read]:
    """A run that writes `count` tokens greedily and yields the logits of each."""
    cache = runner.cache(policy, 8)
    logits = yield Read(prompt, cache)
    for _ in range(count):
        yield logits
        logits = yield Read(logits.argmax()[None], cache)


ROW = st.tuples(st.sampled_from(POLICIES), st.integers(1, len(IDS)), st.integers(0, 14))


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@settings(deadline=None, max_examples=15)
@given(rows=st.lists(ROW, min_size=1, max_size=9), most=st.integers(1, 9))
def test_rows_that_come_and_go_are_to_the_last_bit_what_they_are_alone(family: str, rows, most: int):
    runner = run(model_of(family))

    def whole(scheduler: Scheduler, policy: PositionPolicy, prompt: int, count: int) -> list[torch.Tensor]:
        return list(scheduler.stream(writing(runner, policy, IDS[:prompt], count)))

    alone = [whole(Scheduler(runner), *row) for row in rows]
    together = Scheduler(runner, most)
    found = at_once(*(lambda row=row: whole(together, *row) for row in rows))
    for (_, _, count), mine, theirs in zip(rows, alone, found, strict=True):
        assert len(mine) == len(theirs) == count
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


_models: dict[str, torch.nn.Module] = {}


def model_of(family: str):
    if family not in _models:
        _models[family] = tiny_model(family)
    return _models[family]


def events(lab: Lab, asked: RunSettings, control: Control | None = None) -> list[object]:
    """What a person would see of a run, seconds left out."""
    found: list[object] = []
    for event in lab.stream(asked, control):
        if isinstance(event, Finish):
            found.append((event.reason, event.text, event.error, event.landed))
        else:
            found.append((event.token, event.p, event.p_eos, event.spread, event.goal))
            found += [] if event.entropy is None else [event.entropy.tolist()]
    return found


def test_runs_of_every_kind_are_what_they_are_alone(lab: Lab):
    asked = [
        RunSettings(prompt=prompt, max_new_tokens=14, precision="int8", **kind) for prompt in PROMPTS for kind in ASKED
    ]
    alone = [events(lab, each) for each in asked]
    assert at_once(*(lambda each=each: events(lab, each) for each in asked)) == alone


def test_a_run_that_is_stopped_or_given_another_target_changes_no_other(lab: Lab):
    plain = RunSettings(prompt=PROMPTS[0], max_new_tokens=12)
    steered = RunSettings(prompt=PROMPTS[1], max_new_tokens=40, method="ldpe", target=30)

    def stopped() -> list[object]:
        control, found = Control(), []
        for event in lab.stream(plain, control):
            found.append(event)
            if len(found) == 5:
                control.stop()
        return [found[-1].reason, found[-1].tokens]

    def retargeted() -> list[object]:
        control, wanted = Control(), []
        for event in lab.stream(steered, control):
            if not isinstance(event, Finish):
                wanted.append(event.wanted)
                if event.index == 6:
                    control.retarget(9)
        return wanted

    alone = events(lab, plain)
    found = at_once(stopped, retargeted, lambda: events(lab, plain), lambda: events(lab, plain))
    assert found[0] == ["stopped", 5] and found[1][:7] == [30] * 6 + [9] and set(found[1][6:]) == {9}
    assert found[2] == found[3] == alone


def test_a_row_that_fails_leaves_alone(tiny):
    runner = run(tiny("llama"))
    scheduler = Scheduler(runner)

    def broken() -> Iterator[object]:
        cache = runner.cache(Plain(), 8)
        logits = yield Read(IDS[:3], cache)
        yield logits
        yield Read(torch.tensor([10**6]), cache)

    def whole() -> list[torch.Tensor]:
        return list(scheduler.stream(writing(runner, Plain(), IDS, 12)))

    alone = whole()
    found = at_once(lambda: list(scheduler.stream(broken())), whole, whole)
    assert isinstance(found[0], (IndexError, RuntimeError))
    for rows in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(alone, rows, strict=True)) and len(rows) == 12


def test_parts_of_a_run_read_in_the_same_steps_what_they_read_alone(tiny, monkeypatch):
    runner, lengths, steps = run(tiny("llama")), (5, 1, 9, 3), []
    read = runner.forward
    monkeypatch.setattr(runner, "forward", lambda reads: (steps.append(len(reads)), read(reads))[1])

    def part(seed: int) -> Iterator[object]:
        cache, found = runner.cache(Plain(), 8), []
        for token in IDS[seed : seed + lengths[seed]]:
            found.append((yield Read(token[None], cache)))
        return found

    def parts(*seeds: int) -> Iterator[object]:
        yield tuple((yield from together([part(seed) for seed in seeds])))

    scheduler = Scheduler(runner)
    [all_parts] = scheduler.stream(parts(*range(4)))
    assert [step for step in steps if step] == [4, 3, 3, 2, 2, 1, 1, 1, 1]
    for seed, found in enumerate(all_parts):
        [[alone]] = scheduler.stream(parts(seed))
        assert len(found) == lengths[seed] and all(map(torch.equal, found, alone))
    assert list(scheduler.stream(parts())) == [()]


def test_what_goes_wrong_in_a_part_is_the_run_s(tiny):
    runner = run(tiny("llama"))

    def part(token: int) -> Iterator[object]:
        yield Read(torch.tensor([token]), runner.cache(Plain(), 8))

    def both() -> Iterator[object]:
        try:
            yield from together([part(5), part(10**6)])
        except IndexError:
            yield "asked"

    assert list(Scheduler(runner).stream(both())) == ["asked"]


def test_a_run_goes_no_further_than_its_reader(tiny):
    """Nothing is computed for who does not ask, and a run that was left is closed."""
    runner = run(tiny("llama"))
    scheduler, reached, closed = Scheduler(runner), [], threading.Event()

    def counting() -> Iterator[object]:
        try:
            for logits in (inner := writing(runner, Plain(), IDS, 50)):
                while isinstance(logits, Read):
                    logits = inner.send((yield logits))
                reached.append(1)
                yield logits
        finally:
            closed.set()

    stream = scheduler.stream(counting())
    next(stream), next(stream)
    list(scheduler.stream(writing(runner, Plain(), IDS, 12)))
    assert len(reached) == 2
    stream.close()
    assert closed.wait(60) and len(reached) == 2


def test_a_short_prompt_does_not_wait_for_a_long_one(tiny):
    runner = run(tiny("llama"))
    scheduler, order = Scheduler(runner), []

    def reading(name: str, chunks: int) -> Iterator[object]:
        cache = runner.cache(Plain(), 8)
        yield name
        for _ in range(chunks):
            yield Read(IDS, cache)
            order.append(name)

    streams = [scheduler.stream(reading(*each)) for each in (("long", 12), ("short", 1))]
    for stream in streams:
        next(stream)
    at_once(*(lambda stream=stream: list(stream) for stream in streams))
    assert order.index("short") <= 11


def test_short_prompts_are_read_in_one_step_up_to_a_chunk_s_tokens(tiny, monkeypatch):
    runner, steps = run(tiny("llama")), []
    forward = runner.forward

    def counted(reads: list[Read]) -> list[torch.Tensor | Exception]:
        steps.append(sum(len(read.ids) > 1 for read in reads))
        return forward(reads)

    monkeypatch.setattr(runner, "forward", counted)
    monkeypatch.setattr("backend.inference.scheduler.PROMPTS", 100)
    scheduler, begin = Scheduler(runner), threading.Barrier(6)

    def waiting() -> Iterator[object]:
        cache = runner.cache(Plain(), 8)
        yield "there"
        logits = yield Read(IDS, cache)
        yield (yield Read(logits.argmax()[None], cache))

    def whole() -> None:
        stream = scheduler.stream(waiting())
        assert next(stream) == "there"
        begin.wait()
        list(stream)

    at_once(*[whole] * 6)
    assert max(steps) == 2 and sum(steps) == 6


def test_a_model_that_is_let_go_of_is_freed(tiny):
    runner = Runner(loaded(tiny("llama")))
    list(runner.scheduler.stream(writing(runner, Plain(), IDS, 3)))
    seen = weakref.ref(runner)
    for thread in threading.enumerate():
        if thread.name == "scheduler":
            thread.join(60)
    del runner
    gc.collect()
    assert seen() is None


@cache
def lora_of(family: str, seed: int) -> Lora:
    """An adapter of random numbers for every product."""
    draw = torch.Generator().manual_seed(seed)
    linears = {f"model.{name}": each for name, each in model_of(family).model.named_modules() if type(each) is Linear}
    return Lora(
        {
            name: (
                torch.randn(3, each.in_features, generator=draw) / 8,
                torch.randn(each.out_features, 3, generator=draw) / 8,
            )
            for name, each in linears.items()
        }
    )


CHUNK = st.tuples(
    st.sampled_from(POLICIES), st.integers(0, 9), st.integers(2, 40), st.sampled_from((None, 1, 2))
)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@settings(deadline=None, max_examples=15)
@given(chunks=st.lists(CHUNK, min_size=2, max_size=9))
def test_chunks_that_are_read_together_are_to_the_last_bit_what_they_are_alone(family: str, chunks):
    runner = run(model_of(family))

    def reads() -> list[Read]:
        found = []
        for policy, before, count, adapter in chunks:
            own = runner.cache(policy, 8)
            own.lora = lora_of(family, adapter) if adapter else None
            if before:
                runner.read(IDS[:before], own)
            found.append(Read(IDS[:count], own, runner.probe(Watch()) if count % 2 else None))
        return found

    alone, together = reads(), reads()
    found = [runner.forward([read])[0] for read in alone]
    assert all(map(torch.equal, found, runner.forward(together)))
    for one, other in zip(alone, together, strict=True):
        if one.probe is not None:
            assert all(map(np.array_equal, one.probe.prefilled(), other.probe.prefilled()))
        assert torch.equal(runner.read(IDS[:1], one.cache), runner.read(IDS[:1], other.cache))


def test_a_chunk_that_fails_leaves_the_others_as_they_are(tiny):
    runner = run(tiny("llama"))
    policies = Plain(), DynamicPic(3.0, 2, 5), LambdaWindow(window=6, sinks=2)

    def reads() -> list[Read]:
        return [Read(IDS[:12], runner.cache(policy, 8)) for policy in policies]

    alone, together = [runner.forward([read])[0] for read in reads()], reads()
    together[1].cache.stopped = lambda: True
    first, stopped, last = runner.forward(together)
    assert isinstance(stopped, Stopped) and torch.equal(first, alone[0]) and torch.equal(last, alone[2])
