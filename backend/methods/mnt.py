"""Max New Tokens++: a countdown whose end is an upper bound, by shifts in training (000 §3.4; see shifts.py)."""
from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from backend.methods.ldpe import Ldpe
from backend.methods.orpe import Orpe
from backend.methods.signal import SignalMethod

if TYPE_CHECKING:
    from torch import Tensor

RECIPE = (
    "{limits} --method mnt_{kind} --start {start} --match 1 --samples 700 --curriculum limits "
    "--mnt-sigma 512 --mnt-most 1024 --rate 5e-4 --out assets/adapters/mnt_{kind}"
)


class MaxNewTokens(SignalMethod):
    """The countdown of another signal, with the limit in the target's place."""

    bound = "limit"
    encoder_decoder = False
    paper = "000 §3.4"
    counts: ClassVar[type[SignalMethod]]

    @property
    def kind(self) -> str:
        return self.counts.name

    def rows(self, response: Tensor, target: int | Tensor, width: int) -> Tensor:
        return self.counts().rows(response, target, width)


class MntLdpe(MaxNewTokens):
    name = "mnt_ldpe"
    label = "MNT++ LDPE"
    summary = "Stays under a limit, by a countdown over prompt and answer."
    order = 80
    counts = Ldpe
    recipe = (RECIPE.replace("{kind}", "ldpe").replace("{start}", "{stages}/match/ldpe"),)


class MntOrpe(MaxNewTokens):
    name = "mnt_orpe"
    label = "MNT++ ORPE"
    summary = "Stays under a limit, by a countdown over the answer alone."
    order = 81
    counts = Orpe
    recipe = (RECIPE.replace("{kind}", "orpe").replace("{start}", "assets/adapters/orpe"),)
