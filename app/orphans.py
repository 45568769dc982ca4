"""What runs wrote whose pages were lost and did not come back in time: kept for those that come back later.

A run itself is gone by then, with its cache; its last frame and its trace are all that is kept of it, packed.
"""

from __future__ import annotations

import gzip
import threading
import time
from typing import NamedTuple

from app import kept
from app.runs import Run
from app.view import View

# Of all visitors together, each of at most `kept.MAX_BYTES` for its trace; the oldest gives way.
MOST = 32


class Orphan(NamedTuple):
    """place: where on the page the run was begun. frame: its last, packed. run: what was written, as `kept.packed` has
    it. left: when its page was given up, in seconds of `time.monotonic`."""

    place: str
    frame: bytes
    run: str
    left: float

    @property
    def last(self) -> str:
        """The last frame as the page takes it."""
        return gzip.decompress(self.frame).decode()

    @property
    def made(self) -> None:
        """Of a comparison nothing is kept but its last frame."""

    @property
    def view(self) -> View | None:
        """What was written; None where that has no trace, or one too large to keep."""
        trace, past, tree = kept.unpacked(self.run)
        if trace is None:
            return None
        view = View.of(trace, past)
        view.tree = tree
        return view


class Orphans:
    """Those of one page, by the names of their streams, which cannot be guessed. seconds: how long each is kept."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._kept: dict[str, Orphan] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            return len(self._kept)

    def keep(self, run: Run) -> None:
        """Keeps what a run wrote that was lost."""
        if not run.last:
            return
        view = run.view
        packed = kept.packed(view.trace, view.series.past, view.tree) if view else kept.packed(None, [], {})
        orphan = Orphan(run.place, gzip.compress(run.last.encode(), 6), packed, time.monotonic())
        with self._lock:
            self._kept[run.stream.name] = orphan
            if len(self._kept) > MOST:
                del self._kept[next(iter(self._kept))]

    def take(self, name: str) -> Orphan | None:
        """Hands over what is kept under a name, once."""
        with self._lock:
            return self._kept.pop(name, None)

    def tidy(self) -> None:
        """Lets go of those whose time is over."""
        now = time.monotonic()
        with self._lock:
            for name in [name for name, orphan in self._kept.items() if now - orphan.left > self.seconds]:
                del self._kept[name]
