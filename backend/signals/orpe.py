"""ORPE: a countdown to the end, on the response alone (000 §3.1)."""
from __future__ import annotations

from torch import Tensor

from backend.signals.sinusoid import sinusoid


def orpe(count: Tensor, width: int) -> Tensor:
    """The sinusoid of a count of tokens still to come, the current one included; nothing where the count is 0.

    count [...]: 1 at the last content token, 0 in the prompt. Returns [..., width] in float64; ValueError for an
    odd width.
    """
    return sinusoid(count, width) * (count > 0).unsqueeze(-1)


def orpe_rows(response: Tensor, target: int | Tensor, width: int) -> Tensor:
    """What ORPE shows at each input position: LDPE's count in the response, nothing in the prompt (000 §3.1).

    response [...]: 1-based response positions, 0 and below in the prompt. Past the target the count stays 1.
    target: in tokens, an int or a tensor that broadcasts with response.
    """
    return orpe((target + 1 - response).clamp_(min=1) * (response > 0), width)
