"""LDPE: a countdown to the end, on prompt and response (000 §3.1)."""
from __future__ import annotations

from typing import TYPE_CHECKING

from backend.methods.signal import SignalMethod
from backend.methods.sinusoid import sinusoid

if TYPE_CHECKING:
    from torch import Tensor


class Ldpe(SignalMethod):
    name = "ldpe"
    label = "LDPE"
    summary = "A countdown over prompt and response, added to the token embeddings."
    paper = "000 §3.1"
    order = 40
    recipe = (
        "{answers} --method ldpe --samples 5000 --out {counting}/ldpe",
        "{answers} --method ldpe --start {counting}/ldpe {ending} --samples 2000 --out {stages}/match/ldpe",
        "{whole} --method ldpe --start {stages}/match/ldpe --samples 1800 --out assets/adapters/ldpe",
    )

    def rows(self, response: Tensor, target: int | Tensor, width: int) -> Tensor:
        """The sinusoid of i_LDPE = L + 1 − i (000 §3.1): tokens still to come, the current one included.

        With n prompt tokens and L = n + target, position i = n + response has the count target + 1 − response.
        """
        return sinusoid((target + 1 - response).clamp_(min=1), width)
