"""LDPE with slack: a countdown to the longest length that meets the target, so that the text decides where it ends."""
from __future__ import annotations

from backend.methods.ldpe import Ldpe


class LdpeSlack(Ldpe):
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
