"""The common shape of a length signal: its stored settings, and the rows it adds to the input embeddings.

One convention for training, inference and metrics: the response's last content token is shown the count 1 (PRE:
progress 1) and the model's next output is EOS. Past the target the count stays 1.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from backend.refused import Refused
from backend.signals.ldpe import ldpe_rows
from backend.signals.lrpe import lrpe_rows
from backend.signals.mnt import MntSettings
from backend.signals.orpe import orpe_rows
from backend.signals.pre import pre_rows
from backend.signals.scale import Scale

Kind = Literal["ldpe", "orpe", "lrpe", "pre"]

CONVENTION = 1

ROWS: dict[Kind, Callable[[Tensor, int | Tensor, int], Tensor]] = {
    "ldpe": ldpe_rows,
    "orpe": orpe_rows,
    "lrpe": lrpe_rows,
    "pre": pre_rows,
}


@dataclass(frozen=True, slots=True)
class SignalSettings:
    """How one length signal was trained and is to be shown; stored with its adapter.

    gain: strength beside the token embeddings; 1 is as long as a token, on average. constant: the number the rows are
    multiplied with, gain included. scale: what a token's length is taken from, the whole table or each sequence, as in
    000 eq. 5 (see scale.py). lengths: shortest and longest response in training, in tokens. mnt: how countdowns were
    lengthened for Max New Tokens++, or None. convention: version of the rule above. ValueError with a sentence for
    anything else.
    """

    kind: Kind
    gain: float
    constant: float
    lengths: tuple[int, int]
    mnt: MntSettings | None = None
    convention: int = CONVENTION
    scale: Scale = "table"

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise Refused(f"unknown length signal {self.kind!r}: use one of {', '.join(get_args(Kind))}")
        if self.scale not in get_args(Scale):
            raise Refused(f"unknown scale {self.scale!r} of a signal: use one of {', '.join(get_args(Scale))}")
        if not (math.isfinite(self.gain) and math.isfinite(self.constant)):
            raise Refused("a signal's gain and constant must be finite numbers")
        if not 1 <= self.lengths[0] <= self.lengths[1]:
            raise Refused("a signal's training lengths must be a shortest and a longest length, from 1 up")
        if self.mnt is not None and self.kind not in ("ldpe", "orpe"):
            raise Refused(f"Max New Tokens++ works with ldpe and orpe, not with {self.kind}")
        if self.convention != CONVENTION:
            raise Refused(
                f"the signal follows convention {self.convention} and this version reads {CONVENTION}: train it again"
            )


def signal_rows(
    settings: SignalSettings,
    positions: Tensor,
    prompt: int | Tensor,
    target: int | Tensor,
    width: int,
    norms: Tensor | None = None,
) -> Tensor:
    """The vectors to add to the embeddings of some input positions.

    positions [n]: 0-based positions in prompt + response, so the response starts at `prompt`. prompt: tokens of
    the prompt. target: wanted response tokens, EOS not counted (the limit, for Max New Tokens++). width:
    of the embeddings; ValueError where it is odd. norms: of the prompts, where the scale is the sequence's. For a batch
    give positions [b, n] with prompt, target and norms [b, 1].

    Returns [n, width] (or [b, n, width]) in float32, from float64 phases.
    """
    return ROWS[settings.kind](positions + (1 - prompt), target, width).mul_(strength(settings, norms)).float()


def strength(settings: SignalSettings, norms: Tensor | None = None) -> float | Tensor:
    """What rows [b, n, width] are multiplied with, a number or [b, 1, 1]. norms [b, 1]: of the prompts (see scale.py);
    ValueError without them where the scale is the sequence's."""
    if settings.scale == "table":
        return settings.constant
    if norms is None:
        raise Refused("a signal scaled by its sequence needs the norms of the prompts: give prompt_norms")
    return settings.constant * norms.unsqueeze(-1)
