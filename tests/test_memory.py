"""Memory for caches: what does not fit waits its turn, what never fits is refused, and all of it is given back."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reading import IDS, run

from app import freed as freed_module
from app.freed import EVERY, Freed
from app.runs import Runs
from backend import Finish, Lab, RunSettings
from backend.inference import chunks
from backend.inference.control import Control
from backend.inference.kv_cache import FramedCache, Shape
from backend.inference.memory import Memory
from backend.inference.pages import zeros
from backend.inference.scheduler import PASSING, Scheduler
from backend.positions import LambdaWindow, Plain
from backend.positions.dynamic_pic import DynamicPic
from backend.positions.naive_pic import NaivePic

# Bytes that differ between two looks at the memory of a process, and those of what is let go of here.
FEW, MANY = 2**24, 2**26


def held() -> int:
    """Bytes of memory that this process has, as Linux counts them."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Nothing:
    """Reads nothing."""

    def forward(self, reads: list[Any]) -> list[Any]:
        return [torch.zeros(1) for _ in reads]


def waiting(begun: list[str], name: str, go: threading.Event) -> Iterator[Any]:
    begun.append(name)
    yield "here"
    go.wait(60)
    yield "done"


def test_what_does_not_fit_waits_until_another_has_left():
    scheduler, begun, go = Scheduler(Nothing(), memory=Memory(10)), [], threading.Event()
    first, second = (scheduler.stream(waiting(begun, name, go), 6) for name in ("first", "second"))
    assert next(first) == "here"
    found: list[Any] = []
    late = threading.Thread(target=lambda: found.extend(second))
    late.start()
    small = scheduler.stream(waiting(begun, "small", go), 4)
    assert next(small) == "here" and begun == ["first", "small"] and not found
    go.set()
    list(first)
    late.join(60)
    assert found == ["here", "done"] and begun == ["first", "small", "second"]
    list(small)


def test_nobody_passes_one_that_many_have_passed():
    scheduler, begun, go = Scheduler(Nothing(), memory=Memory(10)), [], threading.Event()
    go.set()
    first = scheduler.stream(waiting(begun, "first", go), 8)
    next(first)
    large = threading.Thread(target=lambda: list(scheduler.stream(waiting(begun, "large", go), 8)))
    large.start()
    while len(scheduler._rows) < 2:
        pass
    for number in range(PASSING):
        assert list(scheduler.stream(waiting(begun, str(number), go), 1)) == ["here", "done"]
    last = threading.Thread(target=lambda: list(scheduler.stream(waiting(begun, "last", go), 1)))
    last.start()
    while len(scheduler._rows) < 3:
        pass
    list(first)
    large.join(60), last.join(60)
    assert begun == ["first", *map(str, range(PASSING)), "large", "last"]


def test_what_never_fits_is_refused_and_what_ended_is_given_back():
    held = Memory(10)
    scheduler, go = Scheduler(Nothing(), memory=held), threading.Event()
    go.set()
    with pytest.raises(ValueError, match="choose a shorter prompt, a lower cap on new tokens, a Λ window or fewer"):
        next(scheduler.stream(waiting([], "x", go), 11))
    for _ in range(3):
        assert list(scheduler.stream(waiting([], "x", go), 10)) == ["here", "done"]
    left = scheduler.stream(waiting([], "x", go), 10)
    next(left)
    left.close()
    while held._taken:
        pass
    assert held.take(10)


@pytest.mark.parametrize(
    "policy",
    [Plain(), LambdaWindow(window=8, sinks=2), DynamicPic(4.0, 2, 9), NaivePic(2.0)],
)
def test_a_cache_takes_no_more_than_was_said(tiny, policy):
    runner, room = run(tiny("llama")), len(IDS) + 30
    cache = runner.cache(policy, room)
    said = runner.cache_bytes(policy, -(-room // 64) * 64)
    runner.read(IDS, cache)
    for _ in range(29):
        runner.read(torch.tensor([5]), cache)
    # A window's buffers are made before it is known how short the run is.
    assert cache.bytes <= said or (policy.window is not None and cache.slots <= 8 + 2 + 256 + 64)


def test_a_run_too_large_for_the_machine_is_refused(lab: Lab, monkeypatch):
    asked = RunSettings(prompt="Why?", max_new_tokens=1000, precision="fp32")
    held = lab.runner(asked).scheduler.memory
    assert held is not None and held.total > 10**8
    monkeypatch.setattr(held, "total", 10**7)
    with pytest.raises(ValueError, match="Λ window"):
        next(lab.stream(asked))
    *_, finish = lab.stream(asked.model_copy(update={"max_new_tokens": 4}))
    assert isinstance(finish, Finish) and finish.reason == "cap"


@given(
    st.integers(0, 200_000), st.integers(1, 90_000), st.none() | st.integers(1, 40_000),
    st.sampled_from(["cpu", "cuda"]),
)  # fmt: skip
def test_chunks_are_all_of_a_prompt_and_become_no_dearer(first: int, count: int, window: int | None, device: str):
    chunk = chunks.chunk_on(torch.device(device))
    sizes = chunks.sizes(first, count, window, chunk)
    assert sum(sizes) == count and min(sizes) > 0
    if count > chunks.FIRST_CHUNK:
        assert first > chunks.SEEN or sizes[0] == chunk
        seen = first
        for size in sizes:
            keys = seen if window is None else min(seen, window)
            assert size <= chunk and (size <= chunks.LEAST or size * keys <= chunk * chunks.SEEN)
            seen += size


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="tells what lies in memory")
def test_a_cache_lies_in_memory_as_far_as_it_is_written_and_leaves_nothing_behind():
    shape = Shape(30, 3, 64, torch.bfloat16, torch.device("cpu"))

    gc.collect()
    before = held()
    cache = FramedCache(shape, Plain(), None, 8192)
    assert cache.bytes == 180 * 2**20 and held() - before < 20 * 2**20
    for buffer in cache.buffers:
        buffer[:, :, :1024] = 1
    assert 20 * 2**20 < held() - before < 60 * 2**20
    del cache, buffer
    # Rows of many lengths come and go, as a class has them; the C library would keep a good part of them.
    draws = random.Random(1)
    rows: list[FramedCache] = []
    for _ in range(60):
        if len(rows) > 8:
            rows.pop(draws.randrange(len(rows)))
        rows.append(FramedCache(shape, Plain(), None, draws.choice((64, 200, 400, 1024))))
        for buffer in rows[-1].buffers:
            buffer += 1
    del rows, buffer
    assert held() - before < 20 * 2**20


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_pages_are_zeros_of_their_own(dtype):
    one, other = (zeros((2, 3, 4), dtype, torch.device("cpu")) for _ in range(2))
    assert torch.equal(one, torch.zeros(2, 3, 4, dtype=dtype))
    one += 1
    assert not other.any() and zeros((2, 0, 4), dtype, torch.device("cpu")).shape == (2, 0, 4)


@pytest.mark.skipif(sys.platform != "linux", reason="memory that is held is read from /proc")
def test_what_runs_have_freed_goes_back_to_the_system_once_runs_have_ended(monkeypatch: pytest.MonkeyPatch):
    """Messages of many streams lie between one another: what is freed of them is not the end of any arena."""

    runs = Runs()
    freed = Freed(runs)

    def leaves() -> list[bytes]:
        return [bytes(3000) for _ in range(60_000)][::200]

    kept: list[Any] = []
    now = 100.0
    monkeypatch.setattr(freed_module.time, "monotonic", lambda: now)

    def let_go() -> int:
        """Leaves holes of all sizes behind, and what is held with them."""
        threads = [threading.Thread(target=lambda: kept.append(leaves())) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        return held()

    before = let_go()
    freed.tidy()
    assert held() > before - FEW
    with runs.started(None, Control(), "api"):
        pass
    freed.tidy()
    assert held() < before - MANY
    # Once more, a while later, and then not before another run has ended.
    for later, given_back in ((1.0, False), (EVERY, True), (EVERY, False)):
        before, now = let_go(), now + later
        freed.tidy()
        assert (held() < before - MANY) == given_back and (held() > before - FEW) != given_back
