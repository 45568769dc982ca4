"""Replays cost those who wait nothing: no thread, no place, and an end when nobody watches."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from dataclasses import replace

import pytest
from visiting import Served, Visitor, eventually, serving

from app import presets
from app.replay import frames, paced
from app.shares import Shares
from backend.inference.control import Control
from backend.record.trace import Trace
from backend.steps import Step

RUNS = 48


def endless() -> Trace:
    """A recorded run whose second token comes in three hundred years."""
    recorded = next(iter(presets.recorded().values()))
    trace = Trace(recorded.settings, recorded.capabilities)
    first, second, *_ = recorded.steps
    for event in (replace(first, seconds=0.0), replace(second, seconds=1e10), recorded.finish):
        trace.append(event)
    return trace


@pytest.fixture
def served(held_lab, monkeypatch):
    """A page whose recorded run, that it opens on, has no end."""
    recorded = {"60 tokens": endless()}
    monkeypatch.setattr(presets, "recorded", lambda: recorded)
    with serving(held_lab, Shares(visitor_runs=RUNS)) as served:
        yield served


@pytest.mark.attacks
def test_replays_that_wait_keep_no_thread_and_end_when_nobody_reads(served: Served):
    visitors = [Visitor(served) for _ in range(RUNS)]
    with ExitStack() as stack:
        for visitor in visitors:
            assert visitor.presses("again", [None]).status_code == 200
            stack.enter_context(visitor.reading())
        eventually(lambda: len(served.runs) == RUNS, "all replays")
        assert threading.active_count() < RUNS
        assert Visitor(served).answered("show")
        event = Visitor(served).calls(max_new_tokens=1).json()["event_id"]
        with Visitor(served).reading(event) as messages:
            assert [*messages][-1][0]["finish"]["tokens"] == 1
    eventually(lambda: not len(served.runs), "the end of all replays")


def test_a_visitor_has_one_replay_at_a_time(served: Served):
    visitor = Visitor(served)
    assert visitor.presses("again", [None]).status_code == 200
    with visitor.reading() as messages:
        eventually(lambda: len(served.runs))
        first = served.runs.of(visitor.session, "generate")
        assert visitor.presses("again", [None]).status_code == 200
        assert next(each for each in messages if each["msg"] == "process_completed")["success"]
        assert first.control.stopped and len(served.runs) == 1


def test_a_replay_that_nobody_reads_never_begins(served: Served):
    assert Visitor(served).presses("again", [None]).status_code == 200
    assert Visitor(served).answered("show") and not len(served.runs)


def collected(trace: Trace, control: Control, after: int) -> list[list]:
    """What came until the replay was stopped after so many batches."""

    async def read() -> list[list]:
        seen = []
        async for events in paced(trace, lambda: control.stopped, 0):
            seen.append(events)
            if len(seen) == after:
                control.stop()
        return seen

    return asyncio.run(read())


def test_what_is_replayed_is_what_was_recorded(monkeypatch):
    trace = next(iter(presets.recorded().values()))
    assert [event for batch in collected(trace, Control(), -1) for event in batch] == [*trace.events()]


@pytest.mark.parametrize("after", [1, 2])
def test_a_replay_hears_at_its_next_look_that_it_is_to_stop(after):
    control = Control()
    if after == 2:
        asyncio.run(_stopped_while_it_waits(control))
    else:
        [[step]] = collected(endless(), control, 1)
        assert isinstance(step, Step)


async def _stopped_while_it_waits(control: Control) -> None:
    looks = iter([False, False, False])

    def stopped() -> bool:
        return next(looks, True)

    assert len([batch async for batch in paced(endless(), stopped, 0)]) == 1


def test_the_last_frame_shows_where_a_replay_was_stopped():
    async def last(stopped: bool) -> dict:
        *_, frame = [frame async for frame in frames(next(iter(presets.recorded().values())), lambda: stopped)]
        return frame

    assert "Stopped" in asyncio.run(last(True)).parts["run"]
