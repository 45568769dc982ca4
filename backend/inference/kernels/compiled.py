"""How the kernels are compiled: for this processor, without the interpreter's lock, kept on disk."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import config, njit

from backend.inference.kernels.tiles import TILED
from backend.models import embedded

# What lets sums be split over vector lanes; infinities and NaN keep their meaning.
OPTIONS = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz", "arcp"}}


def compiled(function: Callable[..., Any]) -> Any:
    """A function that compiled code may call."""
    return njit(**OPTIONS)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """A short one that is put where it is called: for the innermost loops."""
    return njit(**OPTIONS, forceinline=True)(function)


def entry(function: Callable[..., Any]) -> Any:
    """A compiled function that Python calls; its machine code is kept where there is a place for it."""
    made = compiled(function)
    with contextlib.suppress(RuntimeError):
        made.enable_caching()
    return made


def _sources() -> str:
    """A digest of all kernels: numba's cache alone would miss a change in a file that an entry's file imports."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


# Apart by what the system grants, which numba, that tells processors apart, does not know.
_GRANTED = "tiles" if TILED else "lanes"
config.CACHE_DIR = config.CACHE_DIR or str(embedded.cache() / "kernels" / _sources() / _GRANTED)
