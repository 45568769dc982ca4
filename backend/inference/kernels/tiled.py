"""Products of bfloat16 weights and some vectors by the matrix unit: 32 rows of weights against 16 or 32 vectors.

A vector is two of bfloat16, its nearest and what that leaves over, so that it loses nothing to speak of. Vectors do
not depend on each other, and all of a call cost the one reading of the weights.
"""

from __future__ import annotations

import numpy as np

from backend.inference.kernels import tiles
from backend.inference.kernels.compiled import compiled
from backend.inference.kernels.lanes import prefetch
from backend.inference.kernels.number import stored, wide
from backend.inference.kernels.tiles import TILE

# Rows of weights at a time; pairs of bfloat16 to a row of a tile, which is a cache line.
ROWS, LINE = 2 * TILE, TILE


@compiled
def serves(weight):
    """Whether the weights [out, in], as stored, fill whole tiles."""
    return weight.shape[0] >= ROWS and weight.shape[1] % (2 * LINE) == 0


@compiled
def sums(weight, lo, hi, x, out):
    """Rows lo ≤ row < hi of weights [out, in] of bfloat16 times each of x [n, in] into out [n, out]."""
    weights, (most, rest) = weight.view(np.float32), _halves(x)
    found, shapes = np.empty((ROWS, 2 * TILE), np.float32), np.empty(64, np.uint8)
    tiles.shape(shapes)
    for row in range(lo, hi, ROWS):
        # The last rows may begin before `lo`: of the sums only the wanted ones are kept.
        first, last = min(row, len(weights) - ROWS), min(row + ROWS, hi)
        for tile in range(0, len(most), 2):
            if tile + 1 < len(most):
                _wide(weights, first, most, rest, tile, found)
            else:
                _narrow(weights, first, most, rest, tile, found)
            for index in range(tile * TILE, min((tile + 2) * TILE, len(out))):
                column, target = index - tile * TILE, out[index]
                for i in range(row, last):
                    target[i] = found[i - first, column]
    tiles.restore(shapes)


@compiled
def _halves(x):
    """x [n, in] as tiles [tiles, in / 2, 16] of pairs of bfloat16, and likewise what is left over."""
    n, inputs = x.shape
    most = np.zeros((-(-n // TILE), inputs // 2, TILE), np.float32)
    rest = np.zeros_like(most)
    upper, lower = most.view(np.uint16), rest.view(np.uint16)
    for i in range(inputs):
        for index in range(n):
            half, column = stored(x[index, i], upper), index % TILE * 2 + i % 2
            upper[index // TILE, i // 2, column] = half
            lower[index // TILE, i // 2, column] = stored(x[index, i] - wide(half), upper)
    return most, rest


@compiled
def _ask(weights, first, i):
    """Ask for a part of the next rows, as they lie one after another."""
    each = weights.shape[1] // LINE
    for index in range(2 * i, 2 * i + ROWS):
        prefetch(weights, first + ROWS + index // each, index % each * LINE)


@compiled
def _narrow(weights, first, most, rest, tile, found):
    """Sums of 16 vectors."""
    tiles.zero(0)
    tiles.zero(1)
    for i in range(0, weights.shape[1], LINE):
        tiles.load(4, weights, first, i)
        tiles.load(5, weights, first + TILE, i)
        _ask(weights, first, i)
        tiles.load(6, most[tile], i, 0)
        tiles.dot(0, 4, 6)
        tiles.dot(1, 5, 6)
        tiles.load(7, rest[tile], i, 0)
        tiles.dot(0, 4, 7)
        tiles.dot(1, 5, 7)
    tiles.save(0, found, 0, 0)
    tiles.save(1, found, TILE, 0)


@compiled
def _wide(weights, first, most, rest, tile, found):
    """Sums of 32 vectors."""
    tiles.zero(0)
    tiles.zero(1)
    tiles.zero(2)
    tiles.zero(3)
    for i in range(0, weights.shape[1], LINE):
        tiles.load(4, weights, first, i)
        tiles.load(5, weights, first + TILE, i)
        _ask(weights, first, i)
        _both(most, tile, i)
        _both(rest, tile, i)
    tiles.save(0, found, 0, 0)
    tiles.save(1, found, TILE, 0)
    tiles.save(2, found, 0, TILE)
    tiles.save(3, found, TILE, TILE)


@compiled
def _both(columns, tile, i):
    """Add products of two tiles of weights and two of vectors."""
    tiles.load(6, columns[tile], i, 0)
    tiles.dot(0, 4, 6)
    tiles.dot(1, 5, 6)
    tiles.load(7, columns[tile + 1], i, 0)
    tiles.dot(2, 4, 7)
    tiles.dot(3, 5, 7)
