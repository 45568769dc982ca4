"""The sinusoidal encoding that every length signal is made of."""
from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from backend.refused import Refused

if TYPE_CHECKING:
    import torch
    from torch import Tensor

BASE = 10_000.0


def half(width: int) -> int:
    """Number of (even, odd) pairs in an embedding of `width` dimensions; ValueError where they do not pair up."""
    if width < 2 or width % 2:
        raise Refused(f"a length signal needs an even embedding width of at least 2, and this one is {width}")
    return width // 2


def interleave(even: Tensor, odd: Tensor) -> Tensor:
    """[..., width/2] for dimensions 2k and [..., width/2] for dimensions 2k+1, as [..., width]."""
    import torch

    return torch.stack((even, odd), dim=-1).flatten(-2)


def sinusoid(number: Tensor, width: int) -> Tensor:
    """PE(c, 2k) = sin(c / 10000^(2k/d)), PE(c, 2k+1) = cos(c / 10000^(2k/d)) (000 §3.1, eq. 1–2).

    number [...]: positions or counts. Returns [..., width] in float64.
    """
    phase = number.unsqueeze(-1) * _frequencies(width, number.device)
    return interleave(phase.sin(), phase.cos())


@lru_cache(maxsize=32)
def _frequencies(width: int, device: torch.device) -> Tensor:
    import torch

    pairs = torch.arange(half(width), dtype=torch.float64, device=device)
    return BASE ** (-2 * pairs / width)
