"""Dynamic PIC as 004's Algorithm 1 does it, to be measured beside this engine: keys are cached unrotated, and all of
them are rotated anew for every token, because compression moves the position ids of everything before it."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from backend.positions.dynamic_pic import DynamicPic


class Algorithm1:
    """A Llama-shaped model under dynamic PIC. Call it with ids [n]: the logits [vocabulary] after the last of them."""

    def __init__(self, model: PreTrainedModel, policy: DynamicPic, room: int):
        self.model, self.policy, self.length = model, policy, 0
        config = model.config
        shape = (config.num_hidden_layers, config.num_key_value_heads, room, config.head_dim)
        self.keys, self.values = (torch.zeros(shape, dtype=model.dtype, device=model.device) for _ in range(2))

    @torch.inference_mode()
    def __call__(self, ids: Tensor) -> Tensor:
        x = self.model.get_input_embeddings()(ids.to(self.model.device))
        self.length += len(ids)
        place = self.policy.prompt_frame(np.arange(self.length), self.length)
        frames = torch.from_numpy(place).to(x.device, torch.float32)[None]
        cos, sin = (part[0] for part in self.model.base_model.rotary_emb(x[None], frames))
        for index, layer in enumerate(self.model.base_model.layers):
            x = self._layer(index, layer, x, cos, sin)
        return self.model.get_output_embeddings()(self.model.base_model.norm(x[-1])).float()

    def _layer(self, index: int, layer: nn.Module, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        attention, h, n = layer.self_attn, layer.input_layernorm(x), len(x)
        q, k, v = (
            project(h).view(n, -1, self.keys.shape[-1]).transpose(0, 1)
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        first = self.length - n
        self.keys[index, :, first : self.length], self.values[index, :, first : self.length] = k, v
        keys = _rotated(self.keys[index, :, : self.length], cos, sin)
        mixed = F.scaled_dot_product_attention(
            _rotated(q, cos[first:], sin[first:])[None], keys[None], self.values[None, index, :, : self.length],
            is_causal=n > 1, enable_gqa=True,
        )[0]  # fmt: skip
        x = x + attention.o_proj(mixed.transpose(0, 1).reshape(n, -1))
        return x + layer.mlp(layer.post_attention_layernorm(x))


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    near, far = x.chunk(2, -1)
    return x * cos + torch.cat((-far, near), -1) * sin
