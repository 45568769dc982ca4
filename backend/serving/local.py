"""The engine in this process, counted and watched."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from backend.engine import Lab
from backend.inference.control import Control
from backend.models.capabilities import Capabilities
from backend.serving.backend import Status
from backend.settings import RunSettings
from backend.steps import Finish, Progress, Resumed, Step

# Seconds within which some run that has begun must come forward.
STANDSTILL = 60.0


@dataclass(eq=False)
class _Run:
    """begun: whether its model is loaded; writing: whether it has a token; asked: since when its next event is waited
    for, None while nobody waits."""

    begun: bool = False
    writing: bool = False
    asked: float | None = None


class LocalBackend:
    """An `EngineBackend` around a lab. name: in its status."""

    def __init__(self, lab: Lab, name: str = "local") -> None:
        self.lab, self.name, self.models = lab, name, lab.models
        self._runs: list[_Run] = []
        self._tokens = 0
        self._moved = time.monotonic()
        self._lock = threading.Lock()

    def stream(
        self,
        settings: RunSettings,
        control: Control | None = None,
        progress: bool = False,
        resumed: Resumed | None = None,
    ) -> Iterator[Progress | Step | Finish]:
        """As `Lab.stream`."""
        run = _Run()
        events = self.lab.stream(settings, control, True, resumed)
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

    def capabilities(self, model: str = "embedded", precision: str = "bf16") -> Capabilities:
        """As `Lab.capabilities`."""
        return self.lab.capabilities(model, precision)

    def status(self) -> Sequence[Status]:
        """Its own."""
        with self._lock:
            writing, runs, tokens = sum(run.writing for run in self._runs), len(self._runs), self._tokens
        return [
            Status(self.name, os.getpid(), writing, runs - writing, tokens, _memory(), time.process_time())
        ]

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
