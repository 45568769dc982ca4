"""Runs in progress: each reads its events in a thread of its own and belongs to one visitor."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from app import outcome
from app.frames import PERIOD, SLOWEST, Frame, Stream, Streams
from app.outcome import Outcome
from backend.inference.control import Control

Event = TypeVar("Event")
SHARE = 0.08
# Seconds between looks whether a run has ended.
LOOK = 0.05
_END = object()
THREAD = "run"  # the name of each thread that computes a run


def batches(events: Iterable[Event], period: float = PERIOD) -> Iterator[list[Event]]:
    """What arrived, at most once every `period` seconds and the first at once, while `events` are read elsewhere.

    Where handling a batch takes more than SHARE of the time, batches come more seldom, down to one in SLOWEST seconds.
    The reading thread never waits for the page. It ends by itself once `events` do; an error of theirs is raised here.
    """
    arrived: SimpleQueue[Any] = SimpleQueue()
    _reads(events, arrived.put)
    done = False
    while not done:
        batch = [arrived.get(), *_drain(arrived)]
        started = time.monotonic()
        done = batch[-1] is _END
        error = next((item for item in batch if isinstance(item, BaseException)), None)
        batch = [item for item in batch if item is not _END and item is not error]
        if batch:
            yield batch
        if error is not None:
            raise error
        if not done:
            handling = time.monotonic() - started
            time.sleep(max(0.0, max(period, min(SLOWEST, handling / SHARE)) - handling))


def merged(streams: Sequence[Iterable[Event]]) -> Iterator[tuple[int, Event]]:
    """What several streams bring, each with its number, as it comes. An error of one is raised here; the others read
    on until they end."""
    arrived: SimpleQueue[Any] = SimpleQueue()

    def tagged(number: int) -> Callable[[Any], None]:
        return lambda item: arrived.put((number, item))

    for number, events in enumerate(streams):
        _reads(events, tagged(number))
    reading = len(streams)
    while reading:
        number, item = arrived.get()
        if item is _END:
            reading -= 1
        elif isinstance(item, BaseException):
            raise item
        else:
            yield number, item


def _reads(events: Iterable[Any], put: Callable[[Any], None]) -> None:
    # With the caller's context, in which Gradio keeps the request: a ZeroGPU Space reads whose share of time it is.
    context = copy_context()
    threading.Thread(target=context.run, args=(_read, events, put), daemon=True, name=THREAD).start()


def _read(events: Iterable[Any], put: Callable[[Any], None]) -> None:
    try:
        for event in events:
            put(event)
    except BaseException as error:
        put(error)
    put(_END)


def _drain(arrived: SimpleQueue[Any]) -> list[Any]:
    items = []
    while True:
        try:
            items.append(arrived.get_nowait())
        except Empty:
            return items


@dataclass(eq=False)
class Run:
    """A session's run: what steers and shows it, where on the page it was begun, whether it goes on beside others of
    the session, whether its last frame was sent, its views, its last frame as it is sent, what a file of it is made of
    where its views are not all, whether its page was lost and did not come back in time. outcomes: of what it writes or
    reads beside its views."""

    session: str | None
    control: Control
    stream: Stream
    place: str
    beside: bool = False
    delivered: threading.Event = field(default_factory=threading.Event)
    views: Sequence[Any] = ()
    outcomes: list[Outcome] = field(default_factory=list)
    last: str = ""
    made: Any = None
    lost: bool = False

    @property
    def view(self) -> Any:
        """The first of its views, None while it has none."""
        return self.views[0] if self.views else None

    @property
    def came_to(self) -> list[Outcome]:
        """What it came to, once it has ended: of each view that has written something, and of what else there was."""
        series = [view.series for view in self.views]
        return [*(outcome.written(one) for one in series if len(one) and one.finish), *self.outcomes]

    def ends(self, frame: Frame) -> str:
        """Its last frame, for whoever reads it now or takes it up."""
        figures = {outcome.PART: outcome.encode(found)} if (found := self.came_to) else {}
        self.last = replace(frame, parts={**frame.parts, **figures}, whole=True).encode()
        return self.last

    async def ended(self, most: float) -> None:
        """Waits until its last frame was sent, for at most so many seconds, and keeps no thread meanwhile."""
        until = time.monotonic() + most
        while not self.delivered.is_set() and time.monotonic() < until:
            await asyncio.sleep(LOOK)


class Runs:
    """Who is running what. A session is Gradio's hash of an open page, or a program's; nobody can reach the run of
    another, and a run without a session is nobody's. finished: how many have ended so far. begins, ended: hear of each
    that begins and ends; orphaned: hears of each that ended because its page was lost."""

    def __init__(
        self, begins: Callable[[Run], None] = lambda run: None, ended: Callable[[Run], None] = lambda run: None
    ) -> None:
        self.streams = Streams()
        self.finished = 0
        self._begins, self._ended = begins, ended
        self.orphaned: Callable[[Run], None] = lambda run: None
        self._runs: list[Run] = []
        self._lock = threading.Lock()

    def of(self, session: str | None, place: str) -> Run | None:
        """The session's run, the newest that was begun at that place, if one is in progress."""
        return next((run for run in reversed(self._all(session)) if run.place == place), None)

    def named(self, name: str) -> Run | None:
        """The run whose frames are read under that name, which cannot be guessed, if it is in progress."""
        with self._lock:
            return next((run for run in self._runs if run.stream.name == name), None)

    def __len__(self) -> int:
        with self._lock:
            return len(self._runs)

    def stop(self, session: str | None) -> None:
        """Stops the session's runs, if any, within a token."""
        for run in self._all(session):
            run.control.stop()

    def pause(self, session: str | None) -> None:
        """Lets the session's runs rest, whose page was lost."""
        for run in self._all(session):
            run.control.pause()

    def go_on(self, session: str | None) -> None:
        """Lets the session's runs go on, whose page came back."""
        for run in self._all(session):
            run.control.go_on()

    def lose(self, session: str | None) -> None:
        """Stops the session's runs, whose page did not come back."""
        for run in self._all(session):
            run.lost = True
            run.control.stop()

    def close(self) -> None:
        """Stops every run within a token."""
        with self._lock:
            runs = tuple(self._runs)
        for run in runs:
            run.control.stop()

    def _all(self, session: str | None) -> list[Run]:
        with self._lock:
            return [run for run in self._runs if session and run.session == session]

    @contextmanager
    def started(self, session: str | None, control: Control, place: str, beside: bool = False) -> Iterator[Run]:
        """Holds a run as the session's; whatever ends the block stops its compute.

        It ends the one before, unless it goes on `beside` the others.
        """
        with self.streams.opened() as stream:
            run = Run(session, control, stream, place, beside)
            for other in self._all(session):
                if not beside and not other.beside:
                    other.control.stop()
            with self._lock:
                self._runs.append(run)
            self._begins(run)
            try:
                yield run
            finally:
                control.stop()
                with self._lock:
                    self._runs.remove(run)
                    self.finished += 1
                run.delivered.set()
                self._ended(run)
                if run.lost:
                    self.orphaned(run)
