"""What the lab writes to the terminal, bounded: a visitor who provokes a message again and again fills no disk."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

MINUTE = 60.0
LOGGERS = ("asyncio", "uvicorn.error", "length_lab")


class Bounded:
    """A text stream that passes on at most so many characters a minute and says how many it left out."""

    def __init__(self, stream: TextIO, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._began = clock()
        self._written = self._left_out = 0

    def write(self, text: str) -> int:
        """Writes the text, or as much of it as still fits."""
        with self._lock:
            if self._clock() - self._began >= MINUTE:
                self._began, self._written = self._clock(), 0
                if self._left_out:
                    self._stream.write(f"\n[{self._left_out:,} characters left out]\n")
                self._left_out = 0
            shown = text[: self._most - self._written]
            self._stream.write(shown)
            self._written += len(shown)
            self._left_out += len(text) - len(shown)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Repeats(logging.Filter):
    """Lets a message of one kind through so many times a minute; numbers and names in it make no other kind."""

    def __init__(self, most: int = 3, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._most = most
        self._clock = clock
        self._seen: dict[tuple[str, str], list[float]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a message is written."""
        kind = (record.name, str(record.msg).partition("\n")[0])
        now = self._clock()
        recent = [then for then in self._seen.get(kind, ()) if now - then < MINUTE]
        if fresh := len(recent) < self._most:
            recent.append(now)
        self._seen[kind] = recent
        return fresh


def bound(most: int) -> None:
    """Bounds both streams of this process, and the repeats of what its server logs."""
    sys.stdout, sys.stderr = Bounded(sys.stdout, most), Bounded(sys.stderr, most)
    repeats = Repeats()
    for name in LOGGERS:
        logging.getLogger(name).addFilter(repeats)
