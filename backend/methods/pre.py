"""PRE: an impatience signal whose frequency grows with the progress made (003 §3.2)."""
from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from backend.methods.signal import SignalMethod
from backend.methods.sinusoid import half, interleave

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Pre(SignalMethod):
    name = "pre"
    label = "PRE"
    summary = "The share of the target written so far, as an impulse in the embeddings."
    paper = "003 §3.2"
    order = 70
    recipe = (
        "{answers} --method pre --start {counting}/ldpe --samples 1200 --rate 8e-4 --out {counting}/pre",
        "{answers} --method pre --start {counting}/pre {ending} --samples 1400 --out assets/adapters/pre",
    )

    def rows(self, response: Tensor, target: int | Tensor, width: int) -> Tensor:
        """Progress response / target: 0 in the prompt, 1 past the target."""
        return pre(progress(response, target), width)

    def training_rows(self, response: Tensor, target: int | Tensor, width: int) -> Tensor:
        """With 003's noise on the progress."""
        return pre(noisy(progress(response, target), width), width)


def pre(ratio: Tensor, width: int) -> Tensor:
    """cos(ω·x_k) at 2k and sin(ω·x_k) at 2k+1 with ω = r·d/2 and x_k = 2k/d, so the phases are k·r (003 §3.2).

    ratio [...]: progress from 0 to 1. Returns [..., width] in float64; ratio 0 gives (1, 0, 1, 0, …). ValueError
    for an odd width.
    """
    phase = ratio.unsqueeze(-1) * _pairs(width, ratio.device)
    return interleave(phase.cos(), phase.sin())


def progress(response: Tensor, target: int | Tensor) -> Tensor:
    """The share of the target written at 1-based response positions, from 0 to 1, in float64."""
    return (response.double() / target).clamp_(0, 1)


def noisy(ratio: Tensor, width: int, generator: torch.Generator | None = None) -> Tensor:
    """Training noise: N(0, (2/d)²) added to ratios above 0, then clamped to [0, 1] (003 eq. 4)."""
    import torch

    noise = torch.randn(ratio.shape, dtype=torch.float64, device=ratio.device, generator=generator) * (2 / width)
    return torch.where(ratio > 0, (ratio + noise).clamp(0, 1), ratio)


@lru_cache(maxsize=32)
def _pairs(width: int, device: torch.device) -> Tensor:
    import torch

    return torch.arange(half(width), dtype=torch.float64, device=device)
