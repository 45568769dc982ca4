"""What is multiplied: bfloat16 where the device has products of it, float32 elsewhere, several times faster there."""

from __future__ import annotations

from functools import cache
from typing import Literal

import torch


@cache
def precision(device: torch.device | None = None) -> Literal["bf16", "fp32"]:
    """Of weights and products on `device`; without one, on that which models are loaded to."""
    cuda = torch.cuda.is_available() if device is None else device.type == "cuda"
    return "bf16" if cuda or torch.ops.mkldnn._is_mkldnn_bf16_supported() else "fp32"
