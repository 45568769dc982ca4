"""Families that rotate in one module of the whole model: Llama and those of its shape, and GPT-NeoX."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from backend.families.base import Attend, ModelFamily, Rotation, head_dim

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


class FramedRotary(nn.Module):
    """The identity rotation while `inside` is true, the model's own else."""

    def __init__(self, own: nn.Module, inside: Callable[[], bool]):
        super().__init__()
        self.own, self.inside = own, inside

    def forward(self, x: Tensor, position_ids: Tensor, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.inside():
            return self.own(x, position_ids, **kwargs)
        width = 2 * self.own.inv_freq.shape[0]
        one = torch.ones(1, 1, width, dtype=x.dtype, device=x.device)
        return one, torch.zeros_like(one)


class Rotary(ModelFamily):
    """What they share. Attention itself is transformers' attention function, which the engine's is one of."""

    positions = "rope"

    def attach(self, model: PreTrainedModel, inside: Callable[[], bool], attend: Attend) -> None:
        model.base_model.rotary_emb = FramedRotary(model.base_model.rotary_emb, inside)

    def rotation(self, config: PreTrainedConfig) -> Rotation | None:
        rope = getattr(config, "rope_parameters", None)
        if not isinstance(rope, dict) or "rope_theta" not in rope:
            return None
        kind = rope.get("rope_type", "default")
        width = int(head_dim(config) * self._share(rope, kind))
        return Rotation(kind, float(rope["rope_theta"]), width, config.max_position_embeddings)

    def rotatable(self, config: PreTrainedConfig) -> bool:
        rotation = self.rotation(config)
        return rotation is None or rotation.width == head_dim(config)

    def _share(self, rope: dict[str, Any], kind: str) -> float:
        """The share of a head that has frequencies: heeded, and then refused by their attention, where the rope type
        is not the plain one."""
        return 1.0 if kind == "default" else rope.get("partial_rotary_factor", 1.0)


class Llama(Rotary):
    name = "llama"
    fused = True


class Mistral(Llama):
    name = "mistral"


class Qwen2(Llama):
    name = "qwen2"


class Qwen3(Llama):
    name = "qwen3"


class GptNeox(Rotary):
    """GPT-NeoX and Pythia, whose attention leaves part of a head unrotated where their config says so."""

    name = "gpt_neox"

    def _share(self, rope: dict[str, Any], kind: str) -> float:
        return rope.get("partial_rotary_factor", 1.0)

    def rotatable(self, config: PreTrainedConfig) -> bool:
        rotation = self.rotation(config)
        # An odd width is taken as the next.
        return rotation is None or 0 < rotation.width + rotation.width % 2 <= head_dim(config)
