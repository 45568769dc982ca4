"""LRPE: the response position on a scale set by the target (001 eq. 5–6)."""
from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from backend.methods.signal import SignalMethod
from backend.methods.sinusoid import half, interleave

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Lrpe(SignalMethod):
    name = "lrpe"
    label = "LRPE"
    summary = "Positions whose wavelengths depend on the target."
    paper = "001 eq. 5–6"
    order = 60
    recipe = (
        "{answers} --method lrpe --start {counting}/ldpe --samples 900 --rate 8e-4 --out assets/adapters/lrpe",
    )

    def rows(self, response: Tensor, target: int | Tensor, width: int) -> Tensor:
        """Nothing in the prompt; past the target the position stays at the target, as other signals' counts at 1."""
        import torch

        end = torch.as_tensor(target, device=response.device)
        return lrpe(torch.minimum(response, end).clamp_(min=0), target, width)


def lrpe(position: Tensor, target: int | Tensor, width: int) -> Tensor:
    """sin(pos / len^(2k/d)) at 2k and cos(pos / len^(2k/d)) at 2k+1 (001 eq. 5–6); nothing where the position is 0.

    position [...]: 1-based response positions, 0 in the prompt. target: len in tokens, an int or a tensor that
    broadcasts with position. Returns [..., width] in float64; ValueError for an odd width.
    """
    import torch

    base = torch.as_tensor(target, dtype=torch.float64, device=position.device).unsqueeze(-1)
    phase = position.unsqueeze(-1) * base.pow(_exponents(width, position.device))
    return interleave(phase.sin(), phase.cos()) * (position > 0).unsqueeze(-1)


@lru_cache(maxsize=32)
def _exponents(width: int, device: torch.device) -> Tensor:
    import torch

    pairs = torch.arange(half(width), dtype=torch.float64, device=device)
    return -2 * pairs / width
