"""A run as those see it who follow it from another process: what it wrote, and where it goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from backend.inference.control import Control
from backend.settings import RunSettings
from backend.steps import Finish, Reason, Resumed, Step, Written
from backend.text.units import characters, length, words


class FollowedRun:
    """A run across the processes that write it. place: what one of them is called; moves: after which tokens it went on
    at another."""

    def __init__(self, settings: RunSettings, control: Control, resumed: Resumed, place: str) -> None:
        self.settings, self.control, self.place = settings, control, place
        self.written, self.seconds = [*resumed.written], resumed.seconds
        self._begun = resumed
        self.moves: list[int] = []
        self._text, self._thought = "", 0
        self._since = time.monotonic() - resumed.seconds

    def takes(self, event: Any) -> Any:
        """The event as it is shown."""
        if isinstance(event, Step):
            if not self.written:
                self._since = time.monotonic() - event.seconds
            self.written.append(Written(event.token, event.wanted))
            self.seconds = event.seconds
            self._text += "" if event.thinking else event.text
            self._thought += event.thinking
        if isinstance(event, Finish) and self.moves:
            return replace(event, notes=(*event.notes, *self._notes()))
        return event

    def moved(self) -> None:
        """Its place is gone, and it goes on at another."""
        self.moves.append(len(self.written))

    def goes_on(self) -> Resumed:
        """What it goes on from now: the pause counts. A token that was chosen to follow is due until it is written."""
        if len(self.written) == len(self._begun.written):
            return replace(self._begun, seconds=time.monotonic() - self._since if self.written else 0.0)
        return Resumed(tuple(self.written), time.monotonic() - self._since)

    def stopped(self) -> Finish:
        """Its end where it was stopped before it could be heard of."""
        return self._finish("stopped", "")

    def failed(self, message: str) -> Finish:
        """Its end where it can go on nowhere."""
        return self._finish("error", message)

    def _finish(self, reason: Reason, message: str) -> Finish:
        settings, text = self.settings, self._text
        both, seconds = len(self.written), self.seconds
        tokens = both - self._thought
        wanted = self.control.goal(settings) if settings.steered else None
        return Finish(
            reason=reason,
            text=text,
            tokens=tokens,
            words=words(text),
            characters=characters(text),
            error=None if wanted is None else length(settings.unit, text, tokens) - wanted,
            decode_seconds=seconds,
            tokens_per_second=both / seconds if seconds > 0 else 0.0,
            message=message,
            notes=tuple(self._notes()),
            thinking_tokens=self._thought,
        )

    def _notes(self) -> Iterator[str]:
        for tokens in self.moves:
            yield f"the run went on at another {self.place} after {tokens:,} token{'s' * (tokens != 1)}"
