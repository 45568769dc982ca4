"""Attention to the source that a method scales, in the last layer of a decoder."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

NAME = "length_aware"
Scaling = Callable[[Tensor, Tensor], Tensor]


def scale_attention(attention: nn.Module, scaling: Scaling) -> None:
    """Lets a module's attention be scaled for good. scaling: of weights [b, heads, n, keys] and which key [b, keys] is
    the last of its source."""
    attention.config = copy(attention.config)
    attention.config._attn_implementation = NAME
    attention.length_aware = scaling


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    seen = torch.ones(key.shape[0], key.shape[2], dtype=torch.bool, device=key.device)
    if attention_mask is not None:
        scores = scores + attention_mask
        seen = attention_mask[:, 0, -1] > torch.finfo(scores.dtype).min / 2
    places = torch.arange(key.shape[2], device=key.device)
    ends = places == (seen * places).amax(-1, keepdim=True)
    weights = module.length_aware(scores.softmax(-1, dtype=torch.float32).to(query.dtype), ends)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights


AttentionInterface.register(NAME, _attend)
