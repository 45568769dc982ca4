"""How strong a length signal is beside the token embeddings (000 eq. 5)."""
from __future__ import annotations

import math

import torch
from torch import Tensor

from backend.signals.sinusoid import half


def constant(embeddings: Tensor, gain: float) -> float:
    """c = gain · (RMS row norm of the token embeddings) / (row norm of the signal).

    000 eq. 5 scales by the Frobenius norms of each sequence; one constant for the whole table makes the signal
    independent of the text it is added to. Every pair of a signal is a sine and a cosine of one phase, so the norm
    of each row is √(d/2) whatever the signal. gain 1 is the paper's; a learned gain tanh(g) is passed as a number.

    embeddings [vocabulary, width]: the model's token embeddings, of any floating type.
    """
    norms = torch.linalg.vector_norm(embeddings.detach(), dim=-1, dtype=torch.float32).double()
    return gain * float(norms.square().mean().sqrt()) / math.sqrt(half(embeddings.shape[-1]))
