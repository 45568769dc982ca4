"""Where and of what a figure was measured, and what the machine's memory and its arithmetic can do."""

from __future__ import annotations

import ctypes
import gc
import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

CALL = ("command", "commit", "date")


def provenance(seed: int, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Command, commit, machine, versions and seed, to be stored beside every result.

    before: a result that this one goes on from; the calls it came of are kept under `resumed_from`.
    """
    transformers = importlib.metadata.version("transformers")
    calls = [*before.get("resumed_from", []), {key: before.get(key) for key in CALL}] if before else []
    return {
        "command": " ".join(["python", *_command()]),
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "memory_bytes": memory(CPU),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
            "load_before": os.getloadavg()[0],
        },
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "transformers": transformers},
        **({"resumed_from": calls} if calls else {}),
    }


def _command() -> list[str]:
    module = sys.modules["__main__"].__spec__
    return ["-m", module.name.removesuffix(".__main__"), *sys.argv[1:]] if module else sys.argv


def _commit() -> str:
    """Of a copy of the files without their history, or on a machine without git: what COMMIT says, or nothing."""
    try:
        return _git("rev-parse", "HEAD") + ("+changes" if _git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("COMMIT", "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=Path(__file__).parent, check=True)
    return done.stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


CPU = torch.device("cpu")
# Sizes of a copy in bytes and of a matrix that keep a GPU busy, and of those that do for a CPU.
COPIED = {"cuda": 2**31, "cpu": 2**28}
MULTIPLIED = {"cuda": 8192, "cpu": 2048}
REPEATS = 8


def memory(device: torch.device) -> int:
    """Bytes of a GPU, or of the machine."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def clock(device: torch.device = CPU) -> float:
    """Seconds, once the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def copy_bandwidth(device: torch.device = CPU) -> float:
    """Bytes read and written per second by the best of some large copies."""
    size = COPIED[device.type]
    source, target = (torch.ones(size, dtype=torch.uint8, device=device) for _ in range(2))
    return 2 * size / _shortest(lambda: target.copy_(source), device)


def product_rate(dtype: torch.dtype, device: torch.device = CPU) -> float:
    """Operations (an addition or a multiplication each) per second by the best of some large matrix products."""
    size = MULTIPLIED[device.type]
    left, right = torch.rand(2, size, size, generator=torch.Generator().manual_seed(0)).to(device, dtype)
    return 2 * size**3 / _shortest(lambda: torch.mm(left, right), device)


def _shortest(work: Callable[[], object], device: torch.device) -> float:
    best = float("inf")
    for _ in range(REPEATS):
        started = clock(device)
        work()
        best = min(best, clock(device) - started)
    return best


class PeakMemory:
    """`with PeakMemory() as peak:` then `peak.bytes`: the most memory held while inside, above what was held on
    entering: of a GPU what PyTorch took of it, else what was resident (Linux; elsewhere 0)."""

    bytes = 0

    def __init__(self, device: torch.device = CPU):
        self._gpu = device if device.type == "cuda" else None

    def __enter__(self) -> PeakMemory:
        if self._gpu:
            torch.cuda.reset_peak_memory_stats(self._gpu)
        elif Path("/proc/self/clear_refs").exists():
            _give_back()
            Path("/proc/self/clear_refs").write_text("5")
        self._before = torch.cuda.memory_allocated(self._gpu) if self._gpu else _resident("VmRSS")
        return self

    def __exit__(self, *exception: object) -> None:
        most = torch.cuda.max_memory_allocated(self._gpu) if self._gpu else _resident("VmHWM")
        self.bytes = max(0, most - self._before)


def _give_back() -> None:
    """Freed memory goes back to the system: what is taken from it again would not be seen as taken."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _resident(name: str) -> int:
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)
