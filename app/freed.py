"""Memory that runs have freed goes back to the system: allocators keep more of it after each class."""

from __future__ import annotations

import time

from app.runs import Runs
from backend.inference.memory import give_back

# Seconds between two times: while memory is given back, who allocates waits for some milliseconds.
EVERY = 10.0


class Freed:
    """runs: of all sessions, after which memory is given back."""

    def __init__(self, runs: Runs) -> None:
        self._runs, self._finished, self._due = runs, 0, 0.0

    def tidy(self) -> None:
        """Gives memory back if runs have ended since the last time."""
        now, finished = time.monotonic(), self._runs.finished
        if finished != self._finished and now >= self._due:
            self._finished, self._due = finished, now + EVERY
            give_back()
