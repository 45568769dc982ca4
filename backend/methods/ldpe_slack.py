"""LDPE with slack: a countdown to the longest length that meets the target, so that the text decides where it ends."""
from __future__ import annotations

from typing import TYPE_CHECKING

from backend.methods.ldpe import Ldpe
from backend.methods.signal import SignalMethod

if TYPE_CHECKING:
    from torch import Tensor


class LdpeSlack(SignalMethod):
    name = "ldpe_slack"
    label = "LDPE with slack"
    summary = "A countdown to the longest length within the tolerance; it ends where a sentence does."
    order = 45
    encoder_decoder = False
    slack = True
    recipe = (
        "{whole} --method ldpe_slack --start assets/adapters/ldpe --samples 1800 --out {stages}/slack/ldpe_slack",
        "{sentences} --method ldpe_slack --start {stages}/slack/ldpe_slack --samples 2600 "
        "--out assets/adapters/ldpe_slack",
    )

    @property
    def kind(self) -> str:
        return "ldpe"

    def rows(self, response: Tensor, target: int | Tensor, width: int) -> Tensor:
        """LDPE's countdown."""
        return Ldpe().rows(response, target, width)
