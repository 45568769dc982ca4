"""A run whose page is lost rests, goes on bit for bit when the page comes back, and takes nothing of others."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from cable import cable
from held import Held
from visiting import Served, Visitor, eventually, serving

from app import kept, orphans
from app.frames import Stream
from app.orphans import Orphans
from app.presets import PRESETS
from app.runs import Run
from app.shares import Shares
from app.view import View
from backend.inference.control import Control
from backend.record.trace import Trace
from backend.steps import Step

SHARES = Shares(lost_seconds=600)
PASSING = Shares(lost_seconds=1, closed_seconds=1)


SHORT = {"Landing": 0, "Target": 16}


@contextmanager
def reads(visitor: Visitor, **values: Any) -> Iterator[Run]:
    """The run of a page that reads it until the block ends, or its cable is cut. values: of its form, by their labels;
    the others are as the page opens with them."""
    runs, before = visitor.served.runs, {*visitor.served.runs._runs}
    function = next(each for each in visitor.served.page.fns.values() if each.name == "write")
    chosen = SHORT | values
    given = [chosen.get(getattr(block, "label", ""), getattr(block, "value", None)) for block in function.inputs]
    assert visitor.presses("write", given).status_code == 200
    with visitor.reading():
        eventually(lambda: {*runs._runs} - before, "the run")
        [run] = {*runs._runs} - before
        yield run


def written(run: Run) -> int:
    return len(run.view.series) if run.view else 0


def behind(served: Served, address: str) -> Visitor:
    """A visitor who reaches the page at another address."""
    there = copy.copy(served)
    there.address = address.rstrip("/")
    return Visitor(there)


def given_back(visitor: Visitor, name: str) -> Any:
    """What a page gets that asks for the run of that name."""
    assert visitor.presses("take_up", [name]).status_code == 200
    with visitor.reading() as messages:
        return next(each for each in messages if each["msg"] == "process_completed")["output"]


def test_a_lost_page_s_run_rests_while_others_write_and_goes_on_bit_for_bit(held_lab: Held):
    with serving(held_lab, SHARES, 3) as served, cable(served.page.server_port) as between:
        held_lab.upto(3)
        lost, other = behind(served, between.address), Visitor(served)
        with reads(lost, Temperature=0.9, Seed=5) as run, reads(other, Seed=6) as beside:
            eventually(lambda: written(run) == written(beside) == 3, "their tokens")
            between.cut()
            eventually(lambda: lost.session in served.queue._ending, "the loss of its page")
            held_lab.upto(9)
            eventually(lambda: written(beside) == 9, "the tokens of the other")
            # The one that was being written when the page was lost.
            assert written(run) <= 4
            between.mend()
            assert lost.presses("take_up", [run.stream.name]).status_code == 200
            with lost.reading() as messages:
                eventually(lambda: written(run) == 9, "its tokens after the pause")
                held_lab.free()
                assert next(each["success"] for each in messages if each["msg"] == "process_completed")
    steps = [event for event in held_lab.stream(run.view.trace.settings) if isinstance(event, Step)]
    numbers = [(step.token, step.p, step.p_eos, step.spread) for step in steps]
    assert len(numbers) > 9
    assert [(step.token, step.p, step.p_eos, step.spread) for step in run.view.trace.steps] == numbers


def test_pages_that_stay_away_give_back_places_and_memory_and_find_what_was_written(held_lab: Held):
    with serving(held_lab, PASSING, 2) as served:
        held_lab.upto(3)
        away = [Visitor(served), Visitor(served)]
        with reads(away[0]) as first, reads(away[1]) as second:
            eventually(lambda: written(first) == written(second) == 3, "their tokens")
        memory = held_lab.runner(first.view.trace.settings).scheduler.memory
        # Both places are taken: who comes now waits until the two are given up.
        with reads(Visitor(served)) as third:
            assert third not in (first, second)
            eventually(lambda: written(third) == 3, "the tokens of the third")
            eventually(lambda: first.control.stopped and second.control.stopped, "the end of the two")
            eventually(lambda: len(served.page.orphans) == 2, "what the two wrote")
            given = given_back(Visitor(served), first.stream.name)
            frame = next(each for each in given["data"] if isinstance(each, str) and "text-run" in each)
            pieces = [each for each in json.loads(frame)["texts"]["text-run"][1] if isinstance(each, list)]
            assert "".join(piece[0] for piece in pieces) == first.view.series.answer != ""
            assert len(served.page.orphans) == 1
            # It is handed over once, and to nobody who does not know its name.
            for name in (first.stream.name, "guessed"):
                assert not any(isinstance(each, str) for each in given_back(Visitor(served), name)["data"])
            served.page.orphans.seconds = 0
            eventually(lambda: not len(served.page.orphans), "the end of what the other wrote")
        held_lab.free()
        eventually(lambda: not len(served.runs) and not memory._taken, "the memory of all")


def test_of_a_page_that_was_closed_nothing_is_kept(held_lab: Held):
    with serving(held_lab, PASSING, 2) as served:
        held_lab.upto(2)
        page = Visitor(served)
        with reads(page) as run:
            eventually(lambda: written(run) == 2, "its tokens")
            assert page.http.post(f"/lab/left/{page.session}").status_code == 204
            held_lab.free()
            eventually(lambda: run.control.stopped and not len(served.runs), "its end")
        assert written(run) <= 3 and not len(served.page.orphans)


def test_a_run_that_rests_is_stopped_at_once():
    control = Control()
    events = control.paced(iter(range(9)))
    assert next(events) == 0
    control.pause()
    assert control.asked.paused
    threading.Timer(0.2, control.stop).start()
    assert [*events] == [*range(1, 9)]


def ended(trace: Trace, past: int = 0) -> Run:
    run = Run("me", Control(), Stream(), "generate", views=[View.of(trace)])
    run.last = f"frame {past}"
    return run


def test_an_orphan_is_what_its_page_would_have_had():
    trace, left = Trace.load(PRESETS[0].file), Orphans(600)
    left.keep(run := ended(trace))
    orphan = left.take(run.stream.name)
    assert orphan.last == "frame 0" and orphan.place == "generate"
    assert orphan.view.trace.to_json() == trace.to_json()
    run.last = ""
    left.keep(run)
    assert left.take(run.stream.name) is None


def test_orphans_are_bounded_each_and_in_number(monkeypatch):
    monkeypatch.setattr(orphans, "MOST", 3)
    monkeypatch.setattr(kept, "MAX_BYTES", 1000)
    trace, left = Trace.load(PRESETS[0].file), Orphans(600)
    runs = [ended(trace, number) for number in range(5)]
    for run in runs:
        left.keep(run)
    assert [(left.take(run.stream.name) or SimpleNamespace(last=None)).last for run in runs] == [
        None, None, "frame 2", "frame 3", "frame 4"
    ]  # fmt: skip
    left.keep(runs[0])
    assert left.take(runs[0].stream.name).view is None


@pytest.mark.parametrize("seconds", [0, 600])
def test_orphans_are_let_go_when_their_time_is_over(seconds):
    left = Orphans(seconds)
    left.keep(ended(Trace.load(PRESETS[0].file)))
    left.tidy()
    assert len(left) == bool(seconds)
