"""Marian: the Transformer of 001, with sinusoids as positions; embeddings that it is given are scaled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.families.bart import Bart

if TYPE_CHECKING:
    from torch import nn


class Marian(Bart):
    name = "marian"

    def scale(self, decoder: nn.Module) -> float:
        return decoder.embed_scale
