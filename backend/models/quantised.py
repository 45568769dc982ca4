"""Weights that bitsandbytes quantises, in 4 or 8 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from backend.models.capabilities import fusable, stored_precision

if TYPE_CHECKING:
    from transformers import BitsAndBytesConfig, PreTrainedConfig, PreTrainedModel

PACKED_ROWS = 32


def quantisation(precision: str, device: torch.device, config: PreTrainedConfig) -> BitsAndBytesConfig | None:
    """How bitsandbytes quantises the weights as they are loaded; None where it does not."""
    from transformers import BitsAndBytesConfig

    if stored_precision(config):
        return None
    if precision == "4bit":
        return BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
        )
    # On the CPU the engine packs int8 weights itself where it can: bitsandbytes' product is slower there than bf16.
    if precision == "int8" and (device.type == "cuda" or not fusable(config)):
        return BitsAndBytesConfig(load_in_8bit=True)
    return None


def pack_by_shape(model: PreTrainedModel) -> None:
    """Keeps 4-bit weights of other widths from the layout that bitsandbytes has for CPUs with AVX512-BF16.

    It packs rows by PACKED_ROWS and needs whole blocks along a row, and fails at the first token where there are none.
    """
    if model.device.type != "cpu" or not getattr(model, "is_loaded_in_4bit", False):
        return
    from bitsandbytes.nn import Linear4bit

    for layer in model.modules():
        if isinstance(layer, Linear4bit):
            whole = layer.in_features % layer.weight.blocksize == 0 and layer.out_features % PACKED_ROWS == 0
            layer.support_avx512bf16_for_cpu = layer.support_avx512bf16_for_cpu and whole
