"""BART: positions are learned vectors, added inside each stack; its embeddings are scaled as they are looked up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.families.base import EncoderDecoder

if TYPE_CHECKING:
    from torch import nn


class Bart(EncoderDecoder):
    name = "bart"

    def to_source(self, decoder: nn.Module) -> nn.Module:
        return decoder.layers[-1].encoder_attn

    def positions(self, decoder: nn.Module) -> nn.Module | None:
        return decoder.embed_positions
