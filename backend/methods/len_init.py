"""LenInit: the length, times a learned vector, at the decoder's first input (001 eq. 7)."""
from __future__ import annotations

from typing import TYPE_CHECKING

from backend.methods.signal import SignalMethod

if TYPE_CHECKING:
    from torch import Tensor


class LenInit(SignalMethod):
    name = "len_init"
    label = "LenInit"
    summary = "The length, once, as a learned vector at the first position."
    paper = "001 eq. 7"
    order = 76
    causal = False
    learned = "added"

    def rows(self, response: Tensor, target: int | Tensor, width: int) -> Tensor:
        """The target at the position before the first symbol, 0 elsewhere; to be multiplied by the learned vector."""
        return ((response == 0) * target).double().unsqueeze(-1)
