"""What a container grants its processes: processor time and memory, as Linux's cgroup v2 tells; without one, all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
UNLIMITED = 2**62


def cores() -> int:
    """Processors that this process may keep busy: those that it may run on, and whole ones of its quota; at least 1."""
    return max(1, min(usable(), _least(_quota)))


def usable() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int:
    """Bytes that the container may still take, those of files that the system would let go included."""
    return _least(_left)


def _least(limit: Callable[[Path], int]) -> int:
    """The smallest limit of the process's own group and those around it; one that cannot be read does not bind."""
    least = UNLIMITED
    for folder in _groups():
        try:
            least = min(least, limit(folder))
        except (OSError, ValueError, KeyError):
            continue
    return least


def _groups() -> Iterator[Path]:
    """Folders of the process's group and of all around it; a container sees its own as the root."""
    yield ROOT
    try:
        lines = OWN.read_text().splitlines()
    except OSError:
        return
    path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    parts = Path(path).parts
    yield from (ROOT.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1))


def _quota(folder: Path) -> int:
    most, period = (folder / "cpu.max").read_text().split()
    return int(most) // int(period)


def _left(folder: Path) -> int:
    most, used = (int((folder / f"memory.{name}").read_text()) for name in ("max", "current"))
    stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    return max(0, most - used + int(stat["inactive_file"]))
