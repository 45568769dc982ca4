"""Memory for KV caches: a run begins once what it may need is free, so that none is ended for want of it."""

from __future__ import annotations

import ctypes
import sys
import threading
from functools import cache
from pathlib import Path

import torch

from backend.inference import cgroup

# Of what is free when the first model is there. The rest is for other models and for what a step computes.
SHARE = 0.5
# Where a system does not say what is free.
UNKNOWN = 4 * 2**30
_MEMINFO = Path("/proc/meminfo")


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


def free(device: torch.device) -> int | None:
    """Bytes that nobody uses now: of a GPU, or of the machine and of the container's share in it; None where the system
    does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    there = _available()
    return None if there is None else min(there, cgroup.memory())


def give_back() -> None:
    """Gives memory that was freed back to the system, of which allocators keep much."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)


def _available() -> int | None:
    try:
        lines = dict(line.split(":") for line in _MEMINFO.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
