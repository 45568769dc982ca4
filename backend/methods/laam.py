"""LAAM: attention to the source grows with what is still to be written (Liu et al. 2022; 003 appendix E)."""
from __future__ import annotations

from typing import TYPE_CHECKING

from backend.methods.signal import SignalMethod

if TYPE_CHECKING:
    from torch import Tensor


class Laam(SignalMethod):
    name = "laam"
    label = "LAAM"
    summary = "The last layer's attention to the source, scaled by what is still to be written."
    paper = "003 appendix E"
    order = 78
    causal = False
    scales_attention = True

    def rows(self, response: Tensor, target: int | Tensor, width: int) -> Tensor:
        """Nothing: the embeddings stay as they are."""
        return (response * 0.0).unsqueeze(-1).expand(*response.shape, width)


def scaled(weights: Tensor, remaining: Tensor, ends: Tensor) -> Tensor:
    """Attention weights, the strongest `remaining` of them multiplied by as much, the source's end left out, and all
    made to sum to 1 again: the fewer symbols are to come, the more is left for the end.

    weights [b, heads, n, keys]. remaining [b, n]: symbols still to come, at least 1. ends [b, keys]: which key is the
    end of its source.
    """
    left = remaining[:, None, :, None]
    ranks = weights.argsort(-1, descending=True).argsort(-1)
    raised = weights * left.where((ranks < left) & ~ends[:, None, None], 1)
    return raised / raised.sum(-1, keepdim=True)
