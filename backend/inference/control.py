"""What a person may do to a run that is under way."""

from __future__ import annotations

import threading

from backend.refused import Refused
from backend.settings import MAX_TARGET, RunSettings, Watch


class Control:
    """A person's hand on a run that is under way; safe to use from any thread."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._goal: int | None = None
        self._watched: tuple[int, int] | None = None

    def stop(self) -> None:
        """End the run before its next token."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def retarget(self, goal: int) -> None:
        """Another target, in the unit of the settings' goal, from the next token on. Raises ValueError out of range."""
        if not 1 <= goal <= MAX_TARGET:
            raise Refused(f"a target goes from 1 to {MAX_TARGET:,}: choose one of these, or stop the run")
        self._goal = int(goal)

    def watch(self, layer: int, head: int) -> None:
        """Another layer and head for the attention logits."""
        self._watched = (max(0, int(layer)), max(0, int(head)))

    def goal(self, settings: RunSettings) -> int:
        """The target in force, in the unit of the settings' goal."""
        return self._goal or settings.goal

    def watched(self, watch: Watch) -> tuple[int, int]:
        """The layer and head in force."""
        return self._watched or (watch.layer, watch.head)
