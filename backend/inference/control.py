"""What a person may do to a run that is under way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from backend.refused import Refused
from backend.settings import MAX_TARGET, RunSettings, Watch

Event = TypeVar("Event")


class Asked(NamedTuple):
    """What was asked of a run that is under way. goal: a moved target, in the settings' unit. watched: a
    layer and a head. paused: whether it rests until it is let go on."""

    stopped: bool = False
    goal: int | None = None
    watched: tuple[int, int] | None = None
    paused: bool = False


class Control:
    """A person's hand on a run that is under way; safe to use from any thread. A pickled one is a copy of what was
    asked until then."""

    def __init__(self, asked: Asked | None = None) -> None:
        self._changed = threading.Condition()
        self._asked = asked or Asked()
        self._passed_on: list[Callable[[Asked], None]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return Control, (self.asked,)

    @property
    def asked(self) -> Asked:
        """What was asked so far."""
        return self._asked

    def passes_on(self, to: Callable[[Asked], None]) -> None:
        """Lets another hand, which reaches another process, do the same from now on. It is called from any thread, and
        must not wait."""
        with self._changed:
            self._passed_on.append(to)
            to(self._asked)

    def ask(self, **changes: Any) -> None:
        """Asks for more than was asked so far: fields of `Asked`."""
        with self._changed:
            self._asked = self._asked._replace(**changes)
            self._changed.notify_all()
            for to in self._passed_on:
                to(self._asked)

    def stop(self) -> None:
        """End the run before its next token."""
        self.ask(stopped=True)

    @property
    def stopped(self) -> bool:
        return self.asked.stopped

    def pause(self) -> None:
        """Rest after the next event, and keep what the run holds."""
        self.ask(paused=True)

    def go_on(self) -> None:
        """Go on from where the run rests."""
        self.ask(paused=False)

    def paced(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events of the run, none of which is asked for while it rests; one that is stopped rests no longer."""
        for event in events:
            yield event
            with self._changed:
                self._changed.wait_for(lambda: self.stopped or not self.asked.paused)

    def retarget(self, goal: int) -> None:
        """Another target, in the settings' unit, from the next token on. Raises ValueError out of range."""
        if not 1 <= goal <= MAX_TARGET:
            raise Refused(f"a target goes from 1 to {MAX_TARGET:,}: choose one of these, or stop the run")
        self.ask(goal=int(goal))

    def watch(self, layer: int, head: int) -> None:
        """Another layer and head for the attention logits."""
        self.ask(watched=(max(0, int(layer)), max(0, int(head))))

    def goal(self, settings: RunSettings) -> int:
        """The target in force, in the settings' unit."""
        return self.asked.goal or settings.goal

    def watched(self, watch: Watch) -> tuple[int, int]:
        """The layer and head in force."""
        return self.asked.watched or (watch.layer, watch.head)
