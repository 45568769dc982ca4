"""MPT: attention is biased by distance (ALiBi)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from backend.families.base import Attend, ModelFamily
from backend.families.inside import heads, instead

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedConfig, PreTrainedModel


class Mpt(ModelFamily):
    name = "mpt"
    positions = "alibi"
    eager = True

    def attach(self, model: PreTrainedModel, inside: Callable[[], bool], attend: Attend) -> None:
        from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

        def forward(attention: nn.Module, hidden: Tensor) -> tuple[Tensor, None]:
            qkv = attention.Wqkv(hidden)
            qkv = qkv.clamp(-attention.clip_qkv, attention.clip_qkv) if attention.clip_qkv else qkv
            q, k, v = (heads(each, attention.head_dim) for each in qkv.chunk(3, dim=2))
            out, _ = attend(attention, q, k, v, None, scaling=attention.softmax_scale)
            return attention.out_proj(out.flatten(-2)), None

        slopes = -build_mpt_alibi_tensor(model.config.n_heads, 2, device=model.device)[:, 0, 0]
        for block in model.base_model.blocks:
            block.attn.framed_slopes = slopes
            instead(block.attn, inside, forward)

    def unsupported(self, config: PreTrainedConfig) -> dict[str, str]:
        return {
            "pic": "mpt has no position ids to compress: it biases attention by distance (ALiBi).",
            "ntk": "mpt has no RoPE base to change: it biases attention by distance (ALiBi).",
        }
