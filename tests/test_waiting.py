"""A run that waits for memory knows its place, and who stops it or leaves gives the place up at once."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import orjson
import pytest
from held import Held
from visiting import Served, Visitor, eventually, serving

from backend import Lab, RunSettings
from backend.inference.control import Control
from backend.inference.memory import Memory
from backend.inference.scheduler import Scheduler
from backend.steps import Prefilling, Waiting

ASKED = RunSettings(prompt="Why is the sky blue?", max_new_tokens=4)


class Followed:
    """A run that another thread reads. events: what it has told so far."""

    def __init__(self, run: Iterator[Any]) -> None:
        self.events: list[Any] = []
        self._thread = threading.Thread(target=lambda: self.events.extend(run))
        self._thread.start()

    def told(self, *events: Any) -> None:
        """Waits until it has told these, and nothing else."""
        eventually(lambda: self.events == [*events], f"{events} of {self.events}")

    def over(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


def written(stopped: Callable[[], bool] = lambda: False) -> Iterator[str]:
    yield "stopped" if stopped() else "written"


def holding(go: threading.Event) -> Iterator[str]:
    yield "here"
    go.wait(60)


def test_each_that_waits_is_told_its_place_and_one_that_is_stopped_leaves_at_once():
    scheduler, go, stop = Scheduler(None, memory=Memory(10)), threading.Event(), threading.Event()  # type: ignore[arg-type]
    first = scheduler.stream(holding(go), 10)
    assert next(first) == "here"
    waiting = []
    for before, stopped in enumerate((lambda: False, stop.is_set, lambda: False)):
        waiting.append(Followed(scheduler.stream(written(stopped), 10, stopped, tells=True)))
        waiting[-1].told(Waiting(before))
    silent = Followed(scheduler.stream(written(), 10))
    stop.set()
    waiting[1].over()
    waiting[1].told(Waiting(1), "stopped")
    waiting[2].told(Waiting(2), Waiting(1))
    waiting[0].told(Waiting(0))
    go.set()
    list(first)
    for run in (*waiting, silent):
        run.over()
    waiting[0].told(Waiting(0), "written")
    assert waiting[2].events[0] == Waiting(2) and waiting[2].events[-1] == "written"
    silent.told("written")


def test_who_leaves_before_the_run_began_gives_its_place_up():
    scheduler, go = Scheduler(None, memory=Memory(10)), threading.Event()  # type: ignore[arg-type]
    first, second = scheduler.stream(holding(go), 10), scheduler.stream(written(), 10, tells=True)
    assert next(first) == "here" and next(second) == Waiting(0)
    third = Followed(scheduler.stream(written(), 10, tells=True))
    third.told(Waiting(1))
    second.close()
    third.told(Waiting(1), Waiting(0))
    go.set()
    list(first)
    third.over()


@contextmanager
def full(lab: Lab) -> Iterator[None]:
    """Nobody begins for want of memory for as long as the block runs."""
    memory = lab.runner(ASKED).scheduler.memory
    assert memory is not None
    left = memory.total - memory._taken
    assert memory.take(left)
    try:
        yield
    finally:
        memory.give(left)


def test_a_stopped_run_ends_without_what_it_waited_for(lab: Lab):
    control = Control()
    with full(lab):
        run = Followed(lab.stream(ASKED, control, progress=True))
        run.told(Waiting(0))
        control.stop()
        run.over()
    [_, finish] = run.events
    assert (finish.reason, finish.text, finish.tokens, finish.cache_bytes) == ("stopped", "", 0, 0)
    *_, finish = lab.stream(ASKED)
    assert finish.tokens == 4


def test_progress_is_told_where_it_is_asked_for_and_changes_nothing(lab: Lab):
    asked = RunSettings(prompt="Tell me of the sea. " * 360, max_new_tokens=2)
    plain, told = [*lab.stream(asked)], [*lab.stream(asked, progress=True)]
    reads = [event for event in told if isinstance(event, Prefilling)]
    rest = told[len(reads) :]
    assert [(type(event), event.text) for event in rest] == [(type(event), event.text) for event in plain]
    assert {event.total for event in reads} == {rest[-1].prompt_tokens}
    assert pickle.loads(pickle.dumps(told)) and pickle.loads(pickle.dumps(reads)) == reads
    so_far = [event.read for event in reads]
    assert len(reads) > 1 and so_far == sorted({*so_far}) and so_far[-1] < reads[0].total


@pytest.fixture
def served(held_lab: Held) -> Iterator[Served]:
    with serving(held_lab, concurrency=4) as served:
        yield served


def words(served: Served, place: str) -> Sequence[str]:
    """What the figures of the runs begun at that place say, oldest first."""
    frames = [run.stream._frame for run in served.runs._runs if run.place == place]
    return [orjson.loads(frame.parts["run"]).get("message", "") if frame else "" for frame in frames]


def test_page_and_endpoint_tell_the_place_and_stop_gives_it_up(served: Served):
    page = next(each for each in served.page.fns.values() if each.name == "write")
    values = [getattr(block, "value", None) for block in page.inputs]
    visitors = [Visitor(served) for _ in range(2)]
    places = ["Waiting: you are next", "Waiting: 1 before you"]
    with ExitStack() as there:
        with full(served.lab):
            for number, visitor in enumerate(visitors):
                assert visitor.presses("write", values).status_code == 200
                there.enter_context(visitor.reading())
                eventually(lambda number=number: words(served, "generate") == places[: number + 1], "its place")
            event = Visitor(served).calls(max_new_tokens=2).json()["event_id"]
            called = there.enter_context(Visitor(served).reading(event))
            assert next(called)[0]["progress"] == {"before": 2}
            assert visitors[0].presses("halt", [0], tab=4).status_code == 200
            eventually(lambda: words(served, "generate") == places[:1], "the end of the stopped run")
            assert next(called)[0]["progress"] == {"before": 1}
        [result] = [*called][-1]
        assert result["progress"] is None and result["finish"]["tokens"] == 2
