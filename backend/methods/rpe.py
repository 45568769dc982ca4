"""RPE: a countdown that training shows with noise (003 §4.1)."""
from __future__ import annotations

from typing import TYPE_CHECKING

from backend.methods.ldpe import Ldpe
from backend.methods.signal import SignalMethod

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
        """LDPE's countdown, 1 at the last symbol and past the target."""
        return Ldpe().rows(response, target, width)

    def training_rows(self, response: Tensor, target: int | Tensor, width: int) -> Tensor:
        """With N(0, 1) added to each count, rounded."""
        import torch

        noise = torch.randn(response.shape, dtype=torch.float64, device=response.device)
        return self.rows(response - noise.round(), target, width)
