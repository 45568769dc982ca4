"""LC: the length, times a learned vector, as a factor of each input embedding (Liu et al. 2018, as in 001)."""
from __future__ import annotations

from typing import TYPE_CHECKING

from backend.methods.signal import SignalMethod

if TYPE_CHECKING:
    from torch import Tensor


class LengthConstraint(SignalMethod):
    name = "lc"
    label = "LC"
    summary = "The length as a learned factor of the first input embedding."
    paper = "001 §4.1"
    order = 77
    causal = False
    learned = "factor"

    def rows(self, response: Tensor, target: int | Tensor, width: int) -> Tensor:
        """The target everywhere; to be multiplied by the learned vector."""
        return ((response >= 0) * target).double().unsqueeze(-1)
