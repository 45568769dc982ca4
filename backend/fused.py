"""Llama-shaped models on the CPU, with projections packed for it and joined where they read the same input.

The mathematics is transformers' own, layer by layer; what differs is the order of roundings in bf16 and the kernels.
A single token's cost is the reading of the weights, so each is read once, in the layout its kernel wants: oneDNN's
packed format reads about 1.6 times faster than the plain one at batch 1 (`make bench` reports the bandwidth reached).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from backend.attention import attend
from backend.cache import FramedCache
from backend.capabilities import LLAMA_SHAPED
from backend.probes import Probe

LARGEST = 2_000_000_000


class Projection(Protocol):
    """x [n, in] → [n, out], added to `residual` [n, out] where given."""

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor: ...


class Packed:
    """A projection in oneDNN's packed layout."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 1)
        self.bias = bias

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if residual is None:
            return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return torch.ops.mkldnn._linear_pointwise.binary(x, residual, self.weight, self.bias, "add")


class Int8:
    """A projection with int8 weights, one scale a row: half the bytes of bf16; many rows go through bf16."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        scale = weight.float().abs().amax(1).clamp_min(1e-12) / 127
        self.weight = (weight.float() / scale[:, None]).round().to(torch.int8)
        self.scale = scale.to(weight.dtype)
        self.bias = bias

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if x.shape[0] == 1:
            out = torch._weight_int8pack_mm(x, self.weight, self.scale)
        else:
            out = F.linear(x, self.weight.to(x.dtype)) * self.scale
        return _completed(out, self.bias, residual)


class Int4:
    """A projection with 4-bit weights, a scale and an offset for every 32: the grid of the Q4_1 file format."""

    GROUP = 32

    def __init__(self, weight: Tensor, bias: Tensor | None):
        groups = weight.float().unflatten(1, (-1, self.GROUP))
        low, high = groups.aminmax(dim=-1)
        scale = ((high - low) / 15).clamp_min(1e-12)
        steps = ((groups - low[..., None]) / scale[..., None]).round().clamp(0, 15).to(torch.int32).flatten(1)
        self.weight = torch.ops.aten._convert_weight_to_int4pack_for_cpu(steps, 1)
        self.grid = torch.stack((scale, low + 8 * scale), -1).transpose(0, 1).contiguous().to(torch.bfloat16)
        self.bias = bias

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        out = torch.ops.aten._weight_int4pack_mm_for_cpu(x.contiguous(), self.weight, self.GROUP, self.grid)
        return _completed(out, self.bias, residual)


def _completed(out: Tensor, bias: Tensor | None, residual: Tensor | None) -> Tensor:
    """What a packed projection does within its kernel, after one that cannot."""
    out = out if bias is None else out + bias
    return out if residual is None else out + residual


KINDS: dict[str, tuple[type, type]] = {
    "bf16": (Packed, Packed),
    "fp32": (Packed, Packed),
    "int8": (Int8, Int8),
    "int4": (Int4, Int8),
}


@dataclass(frozen=True)
class Layer:
    """One decoder layer's parameters; norms are (weight, epsilon)."""

    qkv: Projection
    out: Projection
    gate_up: Projection
    down: Projection
    before: tuple[Tensor, float]
    after: tuple[Tensor, float]
    q_norm: tuple[Tensor, float] | None
    k_norm: tuple[Tensor, float] | None


class Fused:
    """A Llama-shaped causal LM for one sequence at a time.

    precision: bf16 or fp32 keep the weights as they are; int8 and int4 round them (the head of int4 to int8).
    """

    def __init__(self, model: PreTrainedModel, precision: str):
        config = model.config
        body, head = KINDS[precision]
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.embedding = model.get_input_embeddings().weight
        self.layers = [_layer(block, body) for block in model.base_model.layers]
        self.norm = _norm(model.base_model.norm)
        self.head = head(model.get_output_embeddings().weight, None)

    @torch.inference_mode()
    def hidden(self, embeds: Tensor, cache: FramedCache, probe: Probe | None = None) -> Tensor:
        """Hidden states [n, width] of the chunk that `cache.begin(n)` opened, from input embeddings [n, width]."""
        x = embeds
        for index, layer in enumerate(self.layers):
            x = self._layer(layer, index, x, cache, probe)
            if index == 0 and probe is not None:
                probe.state(x)
        return _rms(x, self.norm)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits [n, vocabulary] in the model's type."""
        return self.head(hidden)

    def _layer(self, layer: Layer, index: int, x: Tensor, cache: FramedCache, probe: Probe | None) -> Tensor:
        n = x.shape[0]
        qkv = layer.qkv(_rms(x, layer.before)).view(n, -1, self.width).transpose(0, 1)
        q, k, v = qkv[: self.heads], qkv[self.heads : -self.kv_heads], qkv[-self.kv_heads :]
        q = _rms(q, layer.q_norm) if layer.q_norm else q
        k = _rms(k, layer.k_norm) if layer.k_norm else k
        mixed = attend(cache, index, q, k, v, self.width**-0.5, probe)
        x = layer.out(mixed.transpose(0, 1).reshape(n, -1), x)
        h = _rms(x, layer.after)
        gate, up = layer.gate_up(h).chunk(2, -1)
        return layer.down(F.silu(gate) * up, x)


def fits(model: PreTrainedModel) -> bool:
    """Whether a loaded model can run fused here: Llama-shaped, unquantised, on the CPU, not too large to keep twice."""
    return (
        model.config.model_type in LLAMA_SHAPED
        and model.device.type == "cpu"
        and model.dtype in (torch.bfloat16, torch.float32)
        and model.config.hidden_act == "silu"
        and not getattr(model, "is_quantized", False)
        and model.num_parameters() <= LARGEST
        and torch.backends.mkldnn.is_available()
        and (model.dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


def _rms(x: Tensor, norm: tuple[Tensor, float]) -> Tensor:
    """RMS norm as Llama rounds it: normalised in float32, cast, then weighted."""
    weight, epsilon = norm
    if x.numel() == x.shape[-1]:
        square = torch.linalg.vector_norm(x, dtype=torch.float32).item() ** 2
        return x * (square / x.shape[-1] + epsilon) ** -0.5 * weight
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)).to(x.dtype)


def _norm(module: nn.Module) -> tuple[Tensor, float]:
    return module.weight, module.variance_epsilon


def _layer(block: nn.Module, kind: type) -> Layer:
    attention, mlp = block.self_attn, block.mlp
    return Layer(
        qkv=_joined((attention.q_proj, attention.k_proj, attention.v_proj), kind),
        out=_joined((attention.o_proj,), kind),
        gate_up=_joined((mlp.gate_proj, mlp.up_proj), kind),
        down=_joined((mlp.down_proj,), kind),
        before=_norm(block.input_layernorm),
        after=_norm(block.post_attention_layernorm),
        q_norm=_norm(attention.q_norm) if hasattr(attention, "q_norm") else None,
        k_norm=_norm(attention.k_norm) if hasattr(attention, "k_norm") else None,
    )


def _joined(linears: tuple[nn.Linear, ...], kind: type) -> Projection:
    """Projections of the same input as one."""
    biased = linears[0].bias is not None
    return kind(torch.cat([x.weight for x in linears]), torch.cat([x.bias for x in linears]) if biased else None)
