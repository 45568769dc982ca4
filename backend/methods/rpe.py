"""RPE: a countdown that training shows with noise (003 §4.1)."""
from __future__ import annotations

from typing import TYPE_CHECKING

from backend.methods.signal import SignalMethod
from backend.methods.sinusoid import sinusoid

if TYPE_CHECKING:
    from torch import Tensor


class Rpe(SignalMethod):
    name = "rpe"
    label = "RPE"
    summary = "A countdown that training blurs by a token or so, so that it is not learnt by heart."
    paper = "003 §4.1"
    order = 75
    causal = False

    def rows(self, response: Tensor, target: int | Tensor, width: int) -> Tensor:
        """The sinusoid of the symbols still to come, 1 at the last one and past the target."""
        return sinusoid((target + 1 - response).clamp(min=1), width)

    def training_rows(self, response: Tensor, target: int | Tensor, width: int) -> Tensor:
        """With N(0, 1) added to each count, rounded."""
        import torch

        count = target + 1 - response
        noise = torch.randn(count.shape, dtype=torch.float64, device=count.device)
        return sinusoid((count + noise).round().clamp(min=1), width)
