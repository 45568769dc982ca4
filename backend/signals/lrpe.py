"""LRPE: the response position on a scale set by the target (001 eq. 5–6)."""
from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from backend.signals.sinusoid import half, interleave


def lrpe(position: Tensor, target: int | Tensor, width: int) -> Tensor:
    """sin(pos / len^(2k/d)) at 2k and cos(pos / len^(2k/d)) at 2k+1 (001 eq. 5–6); nothing where the position is 0.

    position [...]: 1-based response positions, 0 in the prompt. target: len in tokens, an int or a tensor that
    broadcasts with position. Returns [..., width] in float64; ValueError for an odd width.
    """
    base = torch.as_tensor(target, dtype=torch.float64, device=position.device).unsqueeze(-1)
    phase = position.unsqueeze(-1) * base.pow(_exponents(width, position.device))
    return interleave(phase.sin(), phase.cos()) * (position > 0).unsqueeze(-1)


def lrpe_rows(response: Tensor, target: int | Tensor, width: int) -> Tensor:
    """What LRPE shows at each input position.

    response [...]: 1-based response positions, 0 and below in the prompt, where nothing is shown. Past the target
    the position stays at the target, as the other signals' counts stay at 1.
    """
    return lrpe(torch.minimum(response, torch.as_tensor(target, device=response.device)).clamp_(min=0), target, width)


@lru_cache(maxsize=32)
def _exponents(width: int, device: torch.device) -> Tensor:
    pairs = torch.arange(half(width), dtype=torch.float64, device=device)
    return -2 * pairs / width
