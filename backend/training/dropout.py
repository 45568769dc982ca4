"""Dropout whose chances are bytes: one number that is drawn decides eight times. On a CPU torch's own takes a third of
a step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

STEPS = 256


def drop(outputs: Tensor, share: float) -> Tensor:
    """Outputs of which that share, to the nearest 256th, is 0, and the others are as much greater."""
    below = round(share * STEPS)
    drawn = torch.randint(-(2**63), 2**63 - 1, (-(-outputs.numel() // 8),), device=outputs.device)
    kept = drawn.view(torch.uint8)[: outputs.numel()].view(outputs.shape) >= below
    return outputs * (kept.to(outputs.dtype) * (STEPS / (STEPS - below)))


def drop_within(model: nn.Module, share: float) -> None:
    """Lets a Transformer drop that share of what each of its blocks adds, while it is trained (Vaswani et al. 2017,
    §5.4). Blocks end in modules named `out_proj` and `fc2`, as transformers' Marian and BART name them."""

    def dropped(module: nn.Module, _: Any, outputs: Tensor) -> Tensor:
        return drop(outputs, share) if module.training and share else outputs

    for name, module in model.named_modules():
        if name.rpartition(".")[2] in ("out_proj", "fc2"):
            module.register_forward_hook(dropped)
