"""Beginnings that prompts share, as a chat template makes them: read once for each policy and adapter.

A prompt is cut behind its beginning whether that was read before or not, so that its numbers are the same to the last
bit either way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

KEPT = 8
# Of sampled rows of a chunk: positions, entropies, keys seen, first-layer states.
Seen = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class Beginning(NamedTuple):
    """state: of the cache after it. seen: what a probe showed of it, None without one."""

    state: dict[str, Any]
    seen: Seen | None


class Beginnings:
    """The most recently used of one model. For one thread: that of the model's scheduler."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Beginning] = OrderedDict()
        self._being_read: set[Hashable] = set()

    def find(self, key: Hashable) -> Beginning | None:
        """The beginning kept under a key."""
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def being_read(self, key: Hashable) -> bool:
        """Whether a run is reading the beginning of a key."""
        return key in self._being_read

    @contextmanager
    def reading(self, key: Hashable) -> Iterator[None]:
        """Let others wait for the beginning that is read in this context."""
        self._being_read.add(key)
        try:
            yield
        finally:
            self._being_read.discard(key)

    def keep(self, key: Hashable, beginning: Beginning) -> None:
        """Keeps it in the place of the one that was not used for longest."""
        self._kept[key] = beginning
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
