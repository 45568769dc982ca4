"""What the machine has free of its memory, and what is given back to it."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import torch

from backend import cgroup

_MEMINFO = Path("/proc/meminfo")


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
