"""What adapters add to the products of a Llama-shaped stack, to each row its own sequence's.

Projections of the same input are joined, and so are their LoRAs: each is a part with its own down-projection.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from numba import carray
from torch import Tensor, nn

from backend.inference.kernels.compiled import compiled, entry
from backend.inference.kernels.lanes import LANES, filled, fma, load, save
from backend.inference.kernels.number import stored, wide
from backend.inference.kernels.place import pointer
from backend.inference.kernels.product import one_sum
from backend.inference.kernels.team import in_team, member_number, team_size
from backend.models.lora import Lora

BYTES = 4


class Joined(NamedTuple):
    """A LoRA's part in the same joined projection of all layers, in float32.

    down [layers, parts·rank, in]; up [layers, rank, out]; ends: of each part's outputs.
    """

    down: Tensor
    up: Tensor
    ends: tuple[int, ...]


class Adapted(NamedTuple):
    """What an adapter may add to: the names of the joined projections, layer by layer, how many outputs each has, and
    their inputs."""

    names: list[list[str]]
    outs: list[int]
    inputs: int

    @classmethod
    def of(cls, model: nn.Module, layers: Sequence[Sequence[nn.Linear]]) -> Adapted:
        """Projections of a model, by layer."""
        names = {module: name for name, module in model.named_modules()}
        first = layers[0]
        return cls(
            [[names[linear] for linear in linears] for linears in layers],
            [linear.out_features for linear in first],
            first[0].in_features,
        )


def joined(lora: Lora, adapted: Adapted) -> Joined:
    """What an adapter adds to these projections."""
    modules, outs, inputs = adapted
    ranks = [len(lora.stored[name][0]) for names in modules for name in names if name in lora.stored]
    rank, ends = max(ranks, default=0), tuple(accumulate(outs))
    # The type is always named: while another thread loads a model, the default is that model's.
    down = torch.zeros(len(modules), len(outs) * rank, inputs, dtype=torch.float32)
    up = torch.zeros(len(modules), rank, sum(outs), dtype=torch.float32)
    for layer, names in enumerate(modules):
        for part, name in enumerate(names):
            if name in lora.stored:
                lower, upper = lora.part(name)
                own = len(lower)
                down[layer, part * rank : part * rank + own] = lower
                up[layer, :own, ends[part] - outs[part] : ends[part]] = upper.T
    return Joined(down, up, ends)


class Loras(NamedTuple):
    """The adapters of n rows, and the products they add to.

    address [n, products, 2]: of down and up; rank [n, products]: 0 where nothing is added. ends [products, parts]: of
    each part's outputs, as many times the last as there are fewer parts.
    """

    address: np.ndarray
    rank: np.ndarray
    ends: np.ndarray


def ends(adapted: Sequence[Adapted]) -> np.ndarray:
    """Of `Loras`: the same for all adapters of a model."""
    most = max(len(product.outs) for product in adapted)
    return np.array([[*accumulate(outs), *[sum(outs)] * (most - len(outs))] for _, outs, _ in adapted])


def loras(each: Sequence[Sequence[Joined] | None], ends: np.ndarray) -> Loras:
    """each: what a row's adapter adds to every product, None without one."""
    shape = len(each), len(ends)
    address, rank = np.zeros((*shape, 2), np.int64), np.zeros(shape, np.int64)
    for row, added in enumerate(each):
        for product, found in enumerate(added or ()):
            address[row, product] = found.down.data_ptr(), found.up.data_ptr()
            rank[row, product] = found.up.shape[1]
    return Loras(address, rank, ends)


@entry
def add_rows(members, loras, product, layer, x, out):
    """Add to a product of x [n, in] in out [n, out], both as stored, what each row's adapter adds; rounded once."""
    in_team(members, _add_rows, (loras, product, layer, x, out))


@compiled
def _add_rows(loras, product, layer, x, out):
    inputs, outputs = x.shape[1], out.shape[1]
    own, added = np.empty((1, inputs), np.float32), np.empty((1, outputs), np.float32)
    for row in range(member_number(), len(x), team_size()):
        if loras.rank[row, product]:
            source, target = x[row], out[row]
            for i in range(inputs):
                own[0, i] = wide(source[i])
            for i in range(outputs):
                added[0, i] = 0
            _add(loras, row, product, layer, 0, outputs, own, added, 0)
            for i in range(outputs):
                target[i] = stored(wide(target[i]) + added[0, i], out)


@compiled
def add(loras, product, layer, lo, hi, x, out):
    """Add to outputs lo ≤ i < hi of a product of x [n, in] in out [n, out] what each sequence's adapter adds."""
    for row in range(len(x)):
        if loras.rank[row, product]:
            _add(loras, row, product, layer, lo, hi, x, out, row)


@compiled
def _add(loras, row, product, layer, lo, hi, x, out, place):
    """The adapter of `row`, by x [place] to out [place]."""
    ends, inputs, outputs, rank = loras.ends[product], x.shape[1], out.shape[1], loras.rank[row, product]
    parts = 1
    while ends[parts - 1] < outputs:
        parts += 1
    below, above = loras.address[row, product]
    rows = parts * rank
    down = carray(pointer(below + layer * BYTES * rows * inputs), (rows, inputs), np.float32)
    up = carray(pointer(above + layer * BYTES * rank * outputs), (rank, outputs), np.float32)
    low, start = np.empty(rank, np.float32), 0
    for part in range(parts):
        first, last = max(lo, start), min(hi, ends[part])
        if first < last:
            for index in range(rank):
                low[index] = one_sum(down, part * rank + index, x, place)
            _raised(up, low, first, last, out, place)
        start = ends[part]


@compiled
def _raised(up, low, first, last, out, place):
    """Add low [rank] · up [rank, out] to outputs first … last of a row."""
    whole = last - (last - first) % LANES
    for i in range(first, whole, LANES):
        found = load(out, place, i)
        for index in range(len(low)):
            found = fma(filled(low[index]), load(up, index, i), found)
        save(out, place, i, found)
    for i in range(whole, last):
        for index in range(len(low)):
            out[place, i] = fma(low[index], up[index, i], out[place, i])
