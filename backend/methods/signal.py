"""Length signals: methods that add a vector to each input embedding, and the settings stored with their adapters.

One convention for training, inference and metrics: the response's last content token is shown the count 1 (PRE:
progress 1) and the model's next output is EOS. Past the target the count stays 1.
"""
from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from backend.methods import methods
from backend.methods.base import LengthMethod
from backend.methods.shifts import MntSettings
from backend.refused import Refused

if TYPE_CHECKING:
    from torch import Tensor

Scale = Literal["table", "sequence"]

CONVENTION = 1


class SignalMethod(LengthMethod, ABC):
    """A length method that shows the model, at each input position, how far its response has to go."""

    adapter = True
    retargets = True
    encoder_decoder = True
    # A trained vector that its rows, of width 1, are multiplied with: what is added to the embeddings, or their factor.
    learned: ClassVar[Literal["added", "factor"] | None] = None
    # Whether it is shown for the longest length within the target's tolerance.
    slack: ClassVar[bool] = False
    # Whether it scales attention to the source (see laam.py).
    scales_attention: ClassVar[bool] = False

    @property
    def kind(self) -> str:
        """The signal it shows, as adapters store it: its own name, unless it shows another method's."""
        return self.name

    @abstractmethod
    def rows(self, response: Tensor, target: int | Tensor, width: int) -> Tensor:
        """What is shown at each input position, before it is scaled.

        response [...]: 1-based response positions, 0 and below in the prompt (0 is its last token). target: in tokens,
        EOS not counted, an int or a tensor that broadcasts with response. width: of the embeddings. Returns
        [..., width] in float64, a sine and a cosine of one phase in each pair; ValueError for an odd width.
        """

    def training_rows(self, response: Tensor, target: int | Tensor, width: int) -> Tensor:
        """The same as training shows it; random numbers are torch's own."""
        return self.rows(response, target, width)


def signal_methods() -> list[SignalMethod]:
    """The methods that show a causal model a signal, in their order."""
    return [method for method in _shown() if method.causal]


def _shown() -> list[SignalMethod]:
    return [method for method in methods if isinstance(method, SignalMethod)]


@dataclass(frozen=True, slots=True)
class SignalSettings:
    """How one length signal was trained and is to be shown; stored with its adapter.

    gain: strength beside the token embeddings; 1 is as long as a token, on average. constant: the number the rows are
    multiplied with, gain included. scale: what a token's length is taken from, the whole table or each sequence, as in
    000 eq. 5 (see backend/inference/signal.py). lengths: shortest and longest response in training, in tokens. mnt: how
    countdowns were lengthened for Max New Tokens++, or None. slack: whether the text decides where within
    the tolerance it ends; the signal is then shown for the longest length that is accepted. convention: version of the
    rule above. ValueError with a sentence for anything else.
    """

    kind: str
    gain: float
    constant: float
    lengths: tuple[int, int]
    mnt: MntSettings | None = None
    convention: int = CONVENTION
    scale: Scale = "table"
    slack: bool = False
    beside: bool = False
    learned: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        kinds = dict.fromkeys(method.kind for method in _shown())
        if self.kind not in kinds:
            raise Refused(f"unknown kind of length signal {self.kind!r}: use one of {', '.join(kinds)}")
        if self.scale not in get_args(Scale):
            raise Refused(f"unknown scale {self.scale!r} of a signal: use one of {', '.join(get_args(Scale))}")
        if not (math.isfinite(self.gain) and math.isfinite(self.constant)):
            raise Refused("a signal's gain and constant must be finite numbers")
        if not 1 <= self.lengths[0] <= self.lengths[1]:
            raise Refused("a signal's training lengths must be a shortest and a longest length, from 1 up")
        if not self._served_by():
            limited = [method.kind for method in _shown() if method.bound == "limit"]
            raise Refused(f"Max New Tokens++ works with {' and '.join(limited)}, not with {self.kind}")
        if self.convention != CONVENTION:
            raise Refused(
                f"the signal follows convention {self.convention} and this version reads {CONVENTION}: train it again"
            )

    @property
    def method(self) -> str:
        """The length method that shows it."""
        return self._served_by()[0]

    def _served_by(self) -> list[str]:
        bound = "target" if self.mnt is None else "limit"
        shows = self.kind, bound, self.slack
        return [method.name for method in _shown() if (method.kind, method.bound, method.slack) == shows]
