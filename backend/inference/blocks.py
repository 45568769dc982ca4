"""Products of rows of several sequences, in which each row is what it is alone, to the last bit.

A product of a matrix library takes another path for another number of rows, and another path sums in another order.
For one number it sums each row in the same order, wherever the row stands and whatever the others hold. So rows are
multiplied in blocks of fixed sizes, filled up with zeros. Which sizes sum alike is tried once, on the model's own
weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import lcm

import torch
import torch.nn.functional as F
from torch import Tensor

# Sizes of blocks that sum alike, the smallest first; none: at once, and not together with rows of other sequences.
Blocks = tuple[int, ...]

# To choose from: for very few rows, and for a few.
SIZES: tuple[Blocks, ...] = ((32,), (64, 128, 192, 256))
# Rows of a sequence beyond which others beside them save nothing.
MOST = 128


def filled(x: Tensor, blocks: Blocks) -> Tensor:
    """x [n, d] with rows of zeros behind, to whole blocks."""
    return F.pad(x, (0, 0, 0, -len(x) % blocks[0])) if blocks else x


def multiplied(x: Tensor, weight: Tensor, bias: Tensor | None, blocks: Blocks) -> Tensor:
    """x [n, in] · weightᵀ [in, out] + bias, in blocks; n is filled up."""
    if not blocks or len(x) in blocks:
        return F.linear(x, weight, bias)
    return torch.cat([F.linear(part, weight, bias) for part in x.split([*_sizes(len(x), blocks)])])


def _sizes(rows: int, blocks: Blocks) -> Iterator[int]:
    """The largest blocks first."""
    while rows:
        size = max(size for size in blocks if size <= rows)
        yield size
        rows -= size


Product = Callable[[Tensor, Blocks], Tensor]


@torch.inference_mode()
def agreeing(products: Sequence[tuple[Product, int]], sizes: Blocks, dtype: torch.dtype) -> Blocks:
    """Those of `sizes` that sum as the first does in all products; () where a row depends on where it stands.

    products: each with its number of inputs.
    """
    draw, first = torch.Generator().manual_seed(0), sizes[:1]
    for product, inputs in products:
        x = torch.randn(lcm(*sizes), inputs, generator=draw).to(dtype)
        order, found = torch.randperm(len(x), generator=draw), product(x, first)
        if not torch.equal(product(x[order], first), found[order]):
            return ()
        sizes = tuple(size for size in sizes if torch.equal(product(x, (size,)), found))
    return sizes
