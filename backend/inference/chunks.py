"""In which pieces a prompt is read: those who write wait for one at most."""

from __future__ import annotations

import torch

# Tokens of a chunk; a prompt of so many in all is read at once.
CHUNK, FIRST_CHUNK = 512, 2048
# Keys that each of a chunk's tokens may see before chunks become smaller, and the least that they become.
SEEN, LEAST = 16_384, 64


def chunk_on(device: torch.device) -> int:
    """Tokens of a chunk on a device. A GPU takes as long to be given a short one as a long one."""
    return FIRST_CHUNK if device.type == "cuda" else CHUNK


def sizes(first: int, count: int, window: int | None = None, chunk: int = CHUNK) -> list[int]:
    """Of the chunks of `count` tokens that follow `first` others: of alike work, where each token sees all before it,
    or a window. chunk: tokens of the largest."""
    if count <= FIRST_CHUNK:
        return [count]
    found = []
    while count:
        keys = first if window is None else min(first, window)
        size = chunk if keys <= SEEN else max(LEAST, chunk * SEEN // keys // LEAST * LEAST)
        found.append(min(size, count))
        first, count = first + found[-1], count - found[-1]
    return found
