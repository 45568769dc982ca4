"""T5: no absolute positions, but a bias of attention by distance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.families.base import EncoderDecoder

if TYPE_CHECKING:
    from torch import nn


class T5(EncoderDecoder):
    name = "t5"

    def to_source(self, decoder: nn.Module) -> nn.Module:
        return decoder.block[-1].layer[1].EncDecAttention
