"""How the kernels are compiled: for this processor, without the interpreter's lock, kept on disk."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llvmlite.binding import Linkage
from numba import config, njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

from backend.inference.kernels.tiles import TILED
from backend.models import embedded

# What lets sums be split over vector lanes; infinities and NaN keep their meaning.
OPTIONS = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz", "arcp"}}


class Whole(JITCodeLibrary):
    """Machine code that calls its own copies of the functions that it is made of.

    Else LLVM would call those that this process compiled each for itself, where there are any: their sums run in
    another order than in what is kept on disk, and the first process would write other answers than all later ones.
    Private and not just internal: of those, whose arguments LLVM passes as it likes, the others would find the names.
    """

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if function.linkage == Linkage.linkonce_odr:
                function.linkage = Linkage.private
        super()._optimize_final_module()


class _Compiler(Compiler):
    def compile_extra(self, function: Callable[..., Any]) -> Any:
        self.state.library = Whole(self.state.targetctx.codegen(), function.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(function)


def compiled(function: Callable[..., Any]) -> Any:
    """A function that compiled code may call."""
    return njit(**OPTIONS)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """A short one that is put where it is called: for the innermost loops."""
    return njit(**OPTIONS, forceinline=True)(function)


def whole(function: Callable[..., Any]) -> Any:
    """A function that Python calls, with code of its own for all that it is made of."""
    return njit(**OPTIONS, pipeline_class=_Compiler)(function)


def entry(function: Callable[..., Any]) -> Any:
    """A whole function whose machine code is kept where there is a place for it."""
    made = whole(function)
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
