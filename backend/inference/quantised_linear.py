"""The projections of all layers of a model, joined: as they are, or rounded to 8 or 4 bits."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from backend.inference.blocks import Blocks, multiplied
from backend.inference.kernels import product
from backend.inference.kernels.place import stored
from backend.inference.precision import precision


class Projection(Protocol):
    """The same projections of all layers, joined: for many rows here, for a token each of some in `kernel`."""

    kernel: product.Weights

    def __call__(self, layer: int, x: Tensor, blocks: Blocks = ()) -> Tensor:
        """x [n, in] → [n, out], in blocks of so many rows; at once without."""


class Plain:
    """Weights as they are: weight [layers, out, in], bias [layers, out]."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        self.weight, self.bias = weight, _bias(weight, bias)
        self.kernel = product.Plain(stored(weight), stored(self.bias.float()))

    def __call__(self, layer: int, x: Tensor, blocks: Blocks = ()) -> Tensor:
        return _linear(x, self.weight[layer], self.bias[layer], blocks)


class Int8:
    """int8 weights, one scale a row: half the bytes of bf16."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        scale = torch.stack([layer.abs().amax(1) for layer in weight]).float().clamp_min(1e-12) / 127
        steps = [(layer.float() / by[:, None]).round().to(torch.int8) for layer, by in zip(weight, scale, strict=True)]
        self.weight, self.scale, self.bias = torch.stack(steps), scale, _bias(weight, bias)
        self.kernel = product.Int8(stored(self.weight), stored(scale), stored(self.bias.float()))

    def __call__(self, layer: int, x: Tensor, blocks: Blocks = ()) -> Tensor:
        wide = _linear(x, self.weight[layer].to(x.dtype), None, blocks)
        return wide * self.scale[layer].to(x.dtype) + self.bias[layer]


class Int4:
    """4-bit weights, a scale and an offset for every 32: the grid of the Q4_1 file format."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        self.inputs, self.bias = weight.shape[2], _bias(weight, bias)
        packed, scale, offset = (torch.stack(part) for part in zip(*map(_packed, weight), strict=True))
        self.kernel = product.Int4(stored(packed), stored(scale), stored(offset), stored(self.bias.float()))

    def __call__(self, layer: int, x: Tensor, blocks: Blocks = ()) -> Tensor:
        weight = torch.empty(self.kernel.weight.shape[1], 2 * self.kernel.weight.shape[2], dtype=x.dtype)
        product.restore(torch.get_num_threads(), self.kernel, layer, stored(weight))
        return _linear(x, weight[:, : self.inputs], self.bias[layer], blocks)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None, blocks: Blocks) -> Tensor:
    """Products in float32 where the processor has none of bfloat16: torch's own take eight times as long there."""
    if precision(x.device) == "bf16":
        return multiplied(x, weight, bias, blocks)
    return multiplied(x.float(), weight.float(), None if bias is None else bias.float(), blocks).to(x.dtype)


def _packed(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Steps of weight [out, in] two to a byte, and the bf16 scales and offsets [out, groups] they are counted in."""
    groups = F.pad(weight.float(), (0, -weight.shape[1] % product.GROUP)).unflatten(1, (-1, product.GROUP))
    low, high = groups.aminmax(dim=-1)
    scale, offset = ((high - low) / 15).clamp_min(1e-12).bfloat16(), low.bfloat16()
    steps = ((groups - offset[..., None].float()) / scale[..., None].float()).round().clamp(0, 15).to(torch.uint8)
    first, second = steps.chunk(2, -1)
    return (first | second << 4).flatten(1), scale, offset


def _bias(weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.zeros(weight.shape[:2], dtype=weight.dtype) if bias is None else bias


KINDS: dict[str, tuple[type, type]] = {
    "bf16": (Plain, Plain),
    "fp32": (Plain, Plain),
    "int8": (Int8, Int8),
    "int4": (Int4, Int8),
}
