"""Top-p (nucleus) sampling: transformers' own choice of tokens, in less time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor, TopPLogitsWarper

if TYPE_CHECKING:
    from torch import LongTensor


class Nucleus(LogitsProcessor):
    """Keeps the likeliest tokens whose probabilities sum to `top_p`.

    The scores alone are sorted, which numpy does by the processor's widest registers; transformers sorts their places
    with them. Equal scores at the border it tells apart by place, so that these are left to it.
    """

    def __init__(self, top_p: float) -> None:
        self.top_p, self._whole = top_p, TopPLogitsWarper(top_p)

    def __call__(self, ids: LongTensor, scores: Tensor) -> Tensor:
        """ids [1, n] so far, scores [1, vocabulary] on the CPU; returns scores [1, vocabulary]."""
        ascending = torch.from_numpy(np.sort(scores[0].numpy()))
        below = ascending.softmax(-1).cumsum(-1) <= 1 - self.top_p
        removed = min(int(below.sum()), len(ascending) - 1)
        if removed and ascending[removed - 1] == ascending[removed]:
            return self._whole(ids, scores)
        return scores.masked_fill(scores < ascending[removed], -torch.inf)
