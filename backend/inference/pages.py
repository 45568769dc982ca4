"""Memory that the system lends by pages: none before it is written, and all of it back as soon as nobody holds it.

The C library's allocator keeps part of what it is given back for itself, and rows of many lengths leave gaps in it.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence

import torch
from torch import Tensor


def zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """As `torch.zeros`. On a GPU, whose allocator lends by size, and where the system has no private pages, it is
    that."""
    count = math.prod(shape) * dtype.itemsize
    if device.type != "cpu" or not count or not hasattr(mmap, "MAP_ANONYMOUS"):
        return torch.zeros(*shape, dtype=dtype, device=device)
    pages = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=dtype).view(*shape)
