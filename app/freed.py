"""Memory that runs have freed goes back to the system, of which allocators keep more with each run."""

from __future__ import annotations

import time

from app.runs import Runs
from backend.system_memory import give_back

# Seconds between two times: while memory is given back, who allocates waits for some milliseconds.
EVERY = 10.0


class Freed:
    """runs: of all sessions, after which memory is given back."""

    def __init__(self, runs: Runs) -> None:
        self._runs, self._finished, self._due, self._times = runs, 0, 0.0, 0

    def tidy(self) -> None:
        """Gives memory back if runs have ended since, and once more: what a run has freed is free a moment later."""
        now, finished = time.monotonic(), self._runs.finished
        if finished != self._finished:
            self._finished, self._times = finished, 2
        if self._times and now >= self._due:
            self._due, self._times = now + EVERY, self._times - 1
            give_back()
