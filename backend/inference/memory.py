"""Memory for KV caches: a run begins once what it may need is free, so that none is ended for want of it."""

from __future__ import annotations

import threading
from functools import cache

import torch

from backend.system_memory import free

# Of what is free when the first model is there. The rest is for other models and for what a step computes.
SHARE = 0.5
# Where a system does not say what is free.
UNKNOWN = 4 * 2**30


class Memory:
    """Bytes that the caches of a device may take together; safe to share between threads."""

    def __init__(self, total: int):
        self.total = total
        self._taken = 0
        self._lock = threading.Lock()

    def take(self, count: int) -> bool:
        """Takes so many bytes if they are free."""
        with self._lock:
            if fits := self._taken + count <= self.total:
                self._taken += count
            return fits

    def give(self, count: int) -> None:
        """Gives back what was taken."""
        with self._lock:
            self._taken -= count


@cache
def memory(device: torch.device) -> Memory:
    """What all models on a device share."""
    there = free(device)
    return Memory(int(SHARE * (UNKNOWN if there is None else there)))
