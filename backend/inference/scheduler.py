"""One loop a loaded model: each run asks for what it wants read, and a step answers all that wait.

A run is a coroutine. It yields a `Read` and is sent its logits, or a list of them, short ones, and is sent theirs (of
none: in the next step); what else it yields goes to those who follow the run. A step reads one chunk of a prompt, or
several short ones, then the tokens that all runs wait for, so that those who write wait for one chunk at most. Every
run keeps its own cache, policy, signal and probe; its logits do not depend on the others'.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

from torch import Tensor

from backend.inference.embedding import SignalContext
from backend.inference.kv_cache import FramedCache
from backend.inference.memory import Memory
from backend.inference.probes import Probe
from backend.refused import Refused
from backend.steps import Prefilling, Waiting

# Runs that write at a time; the others wait in turn. Tokens of prompts that a step reads, but for a longer chunk.
MOST, PROMPTS = 48, 512
# Runs that may begin before one that waits for more memory.
PASSING = 16
# Seconds within which a loop without work sees that the interpreter ends, and for which a step waits for those who
# take an event and come back, so that runs keep step.
LOOK, GRACE = 1.0, 0.005


class Read(NamedTuple):
    """What a run wants read after what its cache holds: ids [n], one token or a chunk of a prompt.

    signal: adds its length signal. whole: the ids are a whole prompt under one frame. every: the logits [n, vocabulary]
    of all ids are wanted, not of the last alone.
    """

    ids: Tensor
    cache: FramedCache
    probe: Probe | None = None
    signal: SignalContext | None = None
    whole: bool = False
    every: bool = False


Asks = Generator[Any, Any, None]
Returned = TypeVar("Returned")


def together(parts: Sequence[Generator[Read, Tensor, Returned]]) -> Generator[list[Read], list[Tensor], list[Returned]]:
    """Parts of a run that read in the same steps; what each returns."""
    found: dict[int, Returned] = {}
    asked: dict[int, Read] = {}
    answers: dict[int, Tensor | None] = dict.fromkeys(range(len(parts)))
    while answers:
        for index, logits in answers.items():
            try:
                asked[index] = parts[index].send(logits)  # type: ignore[arg-type]
            except StopIteration as end:
                found[index] = end.value
                asked.pop(index, None)
        answers = dict(zip(asked, (yield list(asked.values())), strict=True)) if asked else {}
    return [found[index] for index in range(len(parts))]


class Reader(Protocol):
    """What reads for the runs: a `Runner`."""

    def forward(self, reads: Sequence[Read]) -> list[Tensor | Exception]: ...


@dataclass(eq=False)
class _Row:
    """A run under way. changed: notified of its events. reads: what it waits for, several: whether it asked for a list.
    asked: somebody waits for its next event. left: nobody will again. slow: a step did not wait for it. chunks: read
    so far. bytes: of memory that it may need; begun: whether it has them; passed: how many began before it that came
    later. stopped: whether it is to end. tells: whether it is followed while it waits; before: how many waited
    before it, as far as its reader knows."""

    run: Asks
    changed: threading.Condition
    bytes: int = 0
    stopped: Callable[[], bool] = lambda: False
    tells: bool = False
    before: int | None = None
    begun: bool = False
    passed: int = 0
    reads: list[Read] = field(default_factory=list)
    several: bool = False
    events: deque[Any] = field(default_factory=deque)
    error: BaseException | None = None
    asked: bool = False
    left: bool = False
    ended: bool = False
    slow: bool = False
    chunks: int = 0

    @property
    def due(self) -> bool:
        """Whether its next event is asked for."""
        return self.asked and not self.events

    @property
    def prompt(self) -> Read | None:
        """The chunk of a prompt that it waits for."""
        return self.reads[0] if len(self.reads) == 1 and len(self.reads[0].ids) > 1 else None

    def advance(self, answers: Sequence[Tensor | Exception] = ()) -> None:
        """Let the run go on to its next reads or event. answers: of its last reads, or what went wrong with them."""
        wrong = next((answer for answer in answers if isinstance(answer, Exception)), None)
        answer = list(answers) if self.several else next(iter(answers), None)
        self.reads, self.several = [], False
        try:
            found = self.run.throw(wrong) if wrong else self.run.send(answer)
            # Said in passing: what is read next is asked for in the same step.
            while isinstance(found, Prefilling):
                self.events.append(found)
                found = self.run.send(None)
        except StopIteration:
            self.ended = True
        except BaseException as error:
            self.ended, self.error = True, error
        else:
            if isinstance(found, Read):
                self.reads = [found]
            elif isinstance(found, list):
                self.reads, self.several = found, True
            else:
                self.events.append(found)


class Scheduler:
    """Runs on one loaded model, from any number of threads. most: of them that write at a time. memory: of which each
    takes what it may need; without, all begin at once."""

    def __init__(self, reader: Reader, most: int = MOST, memory: Memory | None = None):
        self.reader, self.most, self.memory = reader, most, memory
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._rows: list[_Row] = []
        self._thread: threading.Thread | None = None

    def stream(
        self, run: Asks, bytes: int = 0, stopped: Callable[[], bool] = lambda: False, tells: bool = False
    ) -> Iterator[Any]:
        """The run's events. It goes on to the next one only when that is asked for; what it raises is raised here.

        bytes: of memory that it may need; it begins once they are free. Refused where they never are. stopped: whether
        it is to end, so that it need not wait to begin. tells: whether `Waiting` is among its events. Closing the
        iterator ends the run before its next read.
        """
        if self.memory is not None and bytes > self.memory.total:
            raise Refused(
                f"the prompt and its response may need {bytes / 2**30:.1f} GiB of memory and there are "
                f"{self.memory.total / 2**30:.1f}: choose a shorter prompt, a lower cap on new tokens, a Λ window or "
                "fewer endings to land on"
            )
        row = _Row(run, threading.Condition(self._lock), bytes, stopped, tells)
        self._join(row)
        try:
            while (event := self._next(row)) is not None:
                yield event
        finally:
            with self._changed:
                row.left = True
                self._changed.notify()
        if row.error is not None:
            raise row.error

    def _join(self, row: _Row) -> None:
        with self._changed:
            self._rows.append(row)
            if self._thread is None:
                # No daemon: an interpreter that ended amid a step would abort.
                self._thread = threading.Thread(target=self._loop, name="scheduler")
                self._thread.start()

    def _next(self, row: _Row) -> Any:
        """The run's next event; None when it has ended."""
        with self._changed:
            row.asked = True
            self._changed.notify()
            row.changed.wait_for(lambda: row.events or row.ended)
            row.asked = False
            return row.events.popleft() if row.events else None

    def _loop(self) -> None:
        while (rows := self._due()) is not None:
            self._step(rows)

    def _due(self) -> list[_Row] | None:
        """The runs whose next event is asked for, when there are any; None when no run is left."""
        with self._changed:
            while True:
                for row in [row for row in self._rows if row.left or row.ended]:
                    self._rows.remove(row)
                    row.run.close()
                    if row.begun and self.memory is not None:
                        self.memory.give(row.bytes)
                if not self._rows or not threading.main_thread().is_alive():
                    self._thread = None
                    return None
                if due := self._in_step(self._begun()):
                    return due
                self._changed.wait(LOOK)

    def _begun(self) -> list[_Row]:
        """The runs that write. Of those that wait, the first for which there is room and memory begin now; one that
        many have passed lets nobody pass any more. One that is stopped needs nothing to end."""
        found: list[_Row] = []
        waiting: list[_Row] = []
        for row in self._rows:
            if not row.begun and row.stopped():
                row.begun, row.bytes = True, 0
            if not row.begun and len(found) < self.most and all(other.passed < PASSING for other in waiting):
                row.begun = self.memory is None or self.memory.take(row.bytes)
                for other in waiting if row.begun else ():
                    other.passed += 1
            (found if row.begun else waiting).append(row)
        for before, row in enumerate(waiting):
            self._tell(row, before)
        return found

    @staticmethod
    def _tell(row: _Row, before: int) -> None:
        """Tells a run that waits its place, of which only the newest is worth knowing."""
        if row.tells and row.before != before:
            row.before = before
            row.events.clear()
            row.events.append(Waiting(before))
            row.changed.notify()

    def _in_step(self, rows: Sequence[_Row]) -> list[_Row]:
        """Those of the rows that are due, once all have come back who did so last time, or GRACE is over."""
        self._changed.wait_for(lambda: all(row.due or row.ended or row.left or row.slow for row in rows), GRACE)
        for row in rows:
            row.slow = not row.due
        return [row for row in rows if row.due]

    def _step(self, rows: Sequence[_Row]) -> None:
        for row in rows:
            if not row.reads:
                self._advanced(row)
        left = PROMPTS
        while prompts := self._prompts(rows, left):
            left -= sum(len(chunk.ids) for _, chunk in prompts)
            for (row, _), answer in zip(prompts, self.reader.forward([chunk for _, chunk in prompts]), strict=True):
                row.chunks += 1
                self._advanced(row, [answer])
        writing = [row for row in rows if row.reads and not row.prompt]
        if not writing:
            return
        answers = iter(self.reader.forward([read for row in writing for read in row.reads]))
        for row in writing:
            self._advanced(row, [*islice(answers, len(row.reads))])

    @staticmethod
    def _prompts(rows: Sequence[_Row], left: int) -> list[tuple[_Row, Read]]:
        """The chunks to be read at once, at most `left` tokens, or the first chunk of a step.

        The run that had the fewest chunks is first: a short prompt does not wait for a long one.
        """
        found: list[tuple[_Row, Read]] = []
        waiting = [(row, chunk) for row in rows if (chunk := row.prompt)]
        for row, chunk in sorted(waiting, key=lambda prompt: prompt[0].chunks):
            if len(chunk.ids) > left and (found or left < PROMPTS):
                break
            found.append((row, chunk))
            left -= len(chunk.ids)
        return found

    def _advanced(self, row: _Row, answers: Sequence[Tensor | Exception] = ()) -> None:
        row.advance(answers)
        if row.events or row.ended:
            with row.changed:
                row.changed.notify()
