"""Where and of what a figure was measured, and what the machine's memory and its arithmetic can do."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

CALL = ("command", "commit", "date")


def provenance(seed: int, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Command, commit, machine, versions and seed, to be stored beside every result.

    before: a result that this one goes on from; the calls it came of are kept under `went_on_from`.
    """
    calls = [*before.get("went_on_from", []), {key: before.get(key) for key in CALL}] if before else []
    return {
        "command": " ".join(["python", *_command()]),
        "commit": _git("rev-parse", "HEAD") + ("+changes" if _git("status", "--porcelain", "-uno") else ""),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
            "load_before": os.getloadavg()[0],
        },
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        **({"went_on_from": calls} if calls else {}),
    }


def _command() -> list[str]:
    module = sys.modules["__main__"].__spec__
    return ["-m", module.name.removesuffix(".__main__"), *sys.argv[1:]] if module else sys.argv


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
    return done.stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def copy_bandwidth(size: int = 256 * 2**20, times: int = 8) -> float:
    """Bytes read and written per second by the best of some large copies."""
    source, target = torch.ones(size, dtype=torch.uint8), torch.empty(size, dtype=torch.uint8)
    best = float("inf")
    for _ in range(times):
        started = time.perf_counter()
        target.copy_(source)
        best = min(best, time.perf_counter() - started)
    return 2 * size / best


def product_rate(dtype: torch.dtype, size: int = 2048, times: int = 8) -> float:
    """Operations (an addition or a multiplication each) per second by the best of some large matrix products."""
    left, right = torch.rand(2, size, size, generator=torch.Generator().manual_seed(0)).to(dtype)
    best = float("inf")
    for _ in range(times):
        started = time.perf_counter()
        torch.mm(left, right)
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best


class PeakMemory:
    """`with PeakMemory() as peak:` then `peak.bytes`: the highest resident memory while inside, above what was resident
    on entering (Linux; else 0)."""

    bytes = 0

    def __enter__(self) -> PeakMemory:
        if Path("/proc/self/clear_refs").exists():
            _give_back()
            Path("/proc/self/clear_refs").write_text("5")
        self._before = _resident("VmRSS")
        return self

    def __exit__(self, *exception: object) -> None:
        self.bytes = max(0, _resident("VmHWM") - self._before)


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
