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
    """Bytes that the weights of a transformers class take by its config at a precision.

    fused: whether the lab's own path runs it on the CPU, which has quantised matrices beside transformers' weights;
    elsewhere bitsandbytes has them in their place.
    """
    with torch.device("meta"):
        model = kind(config)
    plain = 4 if precision == "fp32" else 2
    whole = model.num_parameters() * plain
    if precision not in QUANTISED:
        return int(whole)
    apart = None if fused else model.get_output_embeddings()
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear) and layer is not apart]
    matrices = sum(layer.weight.numel() for layer in linear)
    return int(whole + matrices * (QUANTISED[precision] - (0 if fused else plain)))
