"""GPT-J: each layer rotates by itself, pairs of neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from backend.families.base import Attend, ModelFamily, Rotation, head_dim
from backend.families.inside import heads, instead

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedConfig, PreTrainedModel

BASE = 10_000.0


class GptJ(ModelFamily):
    name = "gptj"
    positions = "rope"
    eager = True

    def attach(self, model: PreTrainedModel, inside: Callable[[], bool], attend: Attend) -> None:
        def forward(attention: nn.Module, hidden: Tensor) -> tuple[Tensor, None]:
            project = attention.q_proj, attention.k_proj, attention.v_proj
            q, k, v = (heads(each(hidden), attention.head_dim) for each in project)
            out, _ = attend(attention, q, k, v, None, scaling=attention.head_dim**-0.5)
            return attention.out_proj(out.flatten(-2)), None

        for block in model.base_model.h:
            instead(block.attn, inside, forward)

    def rotation(self, config: PreTrainedConfig) -> Rotation:
        return Rotation("default", BASE, config.rotary_dim or config.n_embd, config.n_positions, interleaved=True)

    def rotatable(self, config: PreTrainedConfig) -> bool:
        return self.rotation(config).width in range(2, head_dim(config) + 1, 2)
