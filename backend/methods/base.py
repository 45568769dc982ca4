"""What a length method is: a name, a few words about it, and where it takes hold of a run.

Settings read every method's file, so that none of them imports torch or transformers before a run needs them.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Aimed(Protocol):
    """A logits processor whose target moves: the response may be given another one while it is written."""

    def aim(self, target: int | None) -> None:
        """target: tokens of the whole response; None while there is none."""

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """ids [b, n] so far, scores [b, vocabulary]; returns scores [b, vocabulary]."""


class LengthMethod:
    """A way to steer how long a response is. This one does nothing; a method overrides what it changes.

    name: in settings, commands, saved runs, and of its adapters' folder. label, summary: on the page; summary is one
    sentence. paper: number of its paper in the README, and the place there. order: among the methods; ties go by name.
    bound: the setting that it aims at, if any; 'limit' is an upper bound. cap: tokens that a run may have
    where nothing is aimed at. adapter: whether it needs a trained one. retargets: whether its aim may change while it
    writes. writes_end: whether it raises the token that ends a response, so that the model must have one.
    causal, encoder_decoder: which models it works with; at least one.
    compression: kind of the position ids that its adapter was trained under, for adapters that write long texts
    without an aim. recipe: the commands that make its adapter, as `backend.training.recipes` completes them.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str] = ""
    order: ClassVar[int] = 100
    bound: ClassVar[Literal["target", "limit"] | None] = "target"
    cap: ClassVar[int] = 256
    adapter: ClassVar[bool] = False
    causal: ClassVar[bool] = True
    encoder_decoder: ClassVar[bool] = False
    retargets: ClassVar[bool] = False
    writes_end: ClassVar[bool] = False
    compression: ClassVar[Literal["none", "ntk", "dynamic"] | None] = None
    recipe: ClassVar[tuple[str, ...]] = ()

    def works_with(self, encoder: bool) -> bool:
        """Whether it works with models that have an encoder, or else with those without."""
        return self.encoder_decoder if encoder else self.causal

    def prompt(self, text: str, wanted: str) -> str:
        """What the model is asked in the place of `text`. wanted: the target with its unit, '20 words'."""
        return text

    @property
    def asks(self) -> bool:
        """Whether its prompt says the wanted length."""
        return self.prompt("", "1 token") != ""

    def processor(self, prompt: int, ends: Sequence[int]) -> Aimed | None:
        """What changes the scores of the next token. prompt: tokens of it. ends: ids that end a response."""
        return None
