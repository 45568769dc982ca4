"""Runs that an engine writes, counted and watched."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from backend.serving.backend import Status
from backend.steps import Finish, Progress, Step

# Seconds within which some run that has begun must come forward.
STANDSTILL = 60.0


@dataclass(eq=False)
class _Run:
    """begun: whether its model is loaded; writing: whether it has a token; asked: since when its next event is waited
    for, None while nobody waits."""

    begun: bool = False
    writing: bool = False
    asked: float | None = None


class Watched:
    """The runs of one engine. name: of it, in its status."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._runs: list[_Run] = []
        self._tokens = 0
        self._moved = time.monotonic()
        self._lock = threading.Lock()

    def over(
        self, events: Iterator[Progress | Step | Finish], progress: bool
    ) -> Generator[Progress | Step | Finish, None, None]:
        """The events of a run; closing them closes it. progress: whether those of `Progress` are among them."""
        run = _Run()
        with self._lock:
            self._runs.append(run)
        try:
            while True:
                run.asked = time.monotonic()
                event = next(events, None)
                self._came(run, event)
                if event is None:
                    return
                if progress or not isinstance(event, Progress):
                    yield event
        finally:
            events.close()  # type: ignore[attr-defined]
            with self._lock:
                self._runs.remove(run)

    def _came(self, run: _Run, event: Progress | Step | Finish | None) -> None:
        with self._lock:
            run.asked, run.begun, self._moved = None, True, time.monotonic()
            if isinstance(event, Step):
                run.writing = True
                self._tokens += 1

    def status(self) -> Status:
        """What it does now, in this process."""
        with self._lock:
            writing, runs, tokens = sum(run.writing for run in self._runs), len(self._runs), self._tokens
        return Status(self.name, os.getpid(), writing, runs - writing, tokens, _memory(), time.process_time())

    def stands_still(self) -> bool:
        """Whether runs wait that have begun, and none of them came forward for `STANDSTILL` seconds."""
        now = time.monotonic()
        with self._lock:
            waiting = [run.asked for run in self._runs if run.begun and run.asked is not None]
            return bool(waiting) and now - max(self._moved, min(waiting)) > STANDSTILL


def _memory() -> int:
    """Bytes of this process that lie in memory; the most it ever had, where the system tells no more."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
