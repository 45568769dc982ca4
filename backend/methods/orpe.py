"""ORPE: a countdown to the end, on the response alone (000 §3.1)."""
from __future__ import annotations

from typing import TYPE_CHECKING

from backend.methods.signal import SignalMethod
from backend.methods.sinusoid import sinusoid

if TYPE_CHECKING:
    from torch import Tensor


class Orpe(SignalMethod):
    name = "orpe"
    label = "ORPE"
    summary = "A countdown over the response alone, added to the token embeddings."
    paper = "000 §3.1"
    order = 50
    recipe = ("{answers} --method orpe --start {counting}/ldpe {ending} --samples 2000 --out assets/adapters/orpe",)

    def rows(self, response: Tensor, target: int | Tensor, width: int) -> Tensor:
        """LDPE's count in the response, nothing in the prompt (000 §3.1)."""
        return orpe((target + 1 - response).clamp_(min=1) * (response > 0), width)


def orpe(count: Tensor, width: int) -> Tensor:
    """The sinusoid of a count of tokens still to come, the current one included; nothing where the count is 0.

    count [...]: 1 at the last content token, 0 in the prompt. Returns [..., width] in float64; ValueError for an
    odd width.
    """
    return sinusoid(count, width) * (count > 0).unsqueeze(-1)
