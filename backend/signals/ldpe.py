"""LDPE: a countdown to the end, on prompt and response (000 §3.1)."""
from __future__ import annotations

from torch import Tensor

from backend.signals.sinusoid import sinusoid


def ldpe(count: Tensor, width: int) -> Tensor:
    """The sinusoid of a count of tokens still to come, the current one included.

    count [...]: 1 at the last content token. Returns [..., width] in float64; ValueError for an odd width.
    """
    return sinusoid(count, width)


def ldpe_rows(response: Tensor, target: int | Tensor, width: int) -> Tensor:
    """What LDPE shows at each input position (000 §3.1: i_LDPE = L + 1 − i).

    response [...]: 1-based response positions, 0 and below in the prompt (0 is its last token). With n prompt
    tokens and L = n + target, position i = n + response has the count target + 1 − response; past the target
    the count stays 1. target: in tokens, an int or a tensor that broadcasts with response.
    """
    return ldpe((target + 1 - response).clamp_(min=1), width)
