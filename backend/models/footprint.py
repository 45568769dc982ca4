"""How much memory a model's weights take, which its config tells before any of them is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# Bytes of a weight in a quantised matrix, scales included: of bitsandbytes' nf4 in blocks of 64, and of the lab's own.
QUANTISED = {"4bit": 0.5 + 4 / 64, "int8": 1.0, "int4": 0.5 + 4 / 32}


def footprint(kind: Any, config: PreTrainedConfig, precision: str, fused: bool) -> int:
    """Bytes of the weights of a transformers class by its config, about.

    fused: whether the lab's own path runs it on the CPU, which has a copy of all matrices at its precision beside
    transformers' weights; elsewhere bitsandbytes has the quantised ones in their place.
    """
    with torch.device("meta"):
        model = kind(config)
    plain = 4 if precision == "fp32" else 2
    apart = None if fused else model.get_output_embeddings()
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear) and layer is not apart]
    matrices = sum(layer.weight.numel() for layer in linear)
    packed = matrices * QUANTISED.get(precision, plain)
    whole = model.num_parameters() * plain
    if fused:
        return int(whole + packed)
    return int(whole - matrices * plain + packed)
