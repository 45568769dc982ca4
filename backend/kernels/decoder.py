"""One token through a stack of Llama-shaped layers, and its logits: one parallel region each.

The residual stream is rounded to the stored type after each addition, as transformers does; between, all is float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from backend.kernels.attention import Partial, Past, Place, attend, merged, rotated, spread, write
from backend.kernels.compiled import compiled, entry
from backend.kernels.number import exp, stored, wide
from backend.kernels.product import multiply, share
from backend.kernels.team import barrier, in_team, member_number, team_size


class Layers(NamedTuple):
    """Parameters of all layers: products (see `product`), and RMS norms' weights as float32.

    before, after [layers, d]; q_norm, k_norm [layers, width], or [layers, 0] where there are none; last [d].
    epsilon: of all norms.
    """

    qkv: Any
    out: Any
    gate_up: Any
    down: Any
    before: np.ndarray
    after: np.ndarray
    q_norm: np.ndarray
    k_norm: np.ndarray
    last: np.ndarray
    epsilon: float


class Work(NamedTuple):
    """What the members of a team pass to one another, in float32.

    x [d]: the embedding at first, at last the last hidden state, normed. first [d]: the first layer's output.
    heads [heads + 2·kv heads, width]; added [d]; gated [2·intermediate]; queries [layers, groups, heads, width],
    rotated; entropy [layers, heads].
    """

    x: np.ndarray
    first: np.ndarray
    heads: np.ndarray
    added: np.ndarray
    gated: np.ndarray
    queries: np.ndarray
    entropy: np.ndarray
    partial: Partial


def work(layers: Layers, past: Past, place: Place, embed: np.ndarray, members: int) -> Work:
    """Room for one token with this embedding."""
    count, kv_heads, _, width = past.keys.shape
    inputs, rows = len(embed), layers.qkv.weight.shape[1] // width
    heads = rows - 2 * kv_heads
    shapes = (inputs, (rows, width), inputs, layers.gate_up.weight.shape[1])
    seen = ((count, len(place.turned), heads, width), (count, heads))
    found = ((members, heads), (members, heads), (members, heads), (members, heads, width))
    partial = Partial(*(np.empty(shape, np.float32) for shape in found))
    return Work._make([embed.copy(), *(np.empty(shape, np.float32) for shape in (*shapes, *seen)), partial])


@entry
def decode(members, layers, past, place, work):
    """Take one token through all layers; its key and value join the cache."""
    in_team(members, _decode, (layers, past, place, work))


@entry
def logits(members, head, x, out):
    """Product of the head [1, vocabulary, d] and x [d] into out [vocabulary]."""
    in_team(members, _logits, (head, x, out))


@compiled
def _logits(head, x, out):
    lo, hi = share(len(out), member_number(), team_size())
    multiply(head, 0, lo, hi, x, out)


@compiled
def _decode(layers, past, place, work):
    member, members = member_number(), team_size()
    flat = work.heads.reshape(-1)
    lo, hi = share(len(flat), member, members)
    for layer in range(len(work.queries)):
        normed = _normed(work.x, layers.before[layer], layers.epsilon)
        multiply(layers.qkv, layer, lo, hi, normed, flat)
        barrier()
        if member == 0:
            _place(layers, layer, past, place, work)
        barrier()
        keys, values = past.keys[layer], past.values[layer]
        attend(member, members, work.queries[layer], keys, values, place.pieces, work.partial)
        barrier()
        _mix(member, members, layers, layer, past, work)
        barrier()
        _gate(member, members, layers, layer, work)
        barrier()
        _add(member, members, layers.down, layer, work.gated[: len(work.gated) // 2], past, work)
        barrier()
        if member == 0 and layer == 0:
            _copy(work.x, work.first)
    if member == 0:
        _copy(_normed(work.x, layers.last, layers.epsilon), work.x)


@compiled
def _copy(x, out):
    for i in range(len(x)):
        out[i] = x[i]


@compiled
def _normed(x, weight, epsilon):
    """RMS norm."""
    square = np.float32(0)
    for i in range(len(x)):
        square += x[i] * x[i]
    factor = np.float32(1) / np.sqrt(square / np.float32(len(x)) + epsilon)
    out = np.empty(len(x), np.float32)
    for i in range(len(x)):
        out[i] = x[i] * factor * weight[i]
    return out


@compiled
def _place(layers, layer, past, place, work):
    """Norm and rotate the queries for each group, and put the key and value into the cache."""
    groups, heads = work.queries.shape[1:3]
    kv_heads = past.keys.shape[1]
    for row in range(heads + kv_heads):
        norm = layers.q_norm[layer] if row < heads else layers.k_norm[layer]
        if len(norm):
            _copy(_normed(work.heads[row], norm, layers.epsilon), work.heads[row])
    for group in range(groups):
        for head in range(heads):
            rotated(work.heads[head], place.turned[group], work.queries[layer, group, head])
    write(layer, work.heads[heads : heads + kv_heads], work.heads[heads + kv_heads :], past, place)


@compiled
def _mix(member, members, layers, layer, past, work):
    """Attention's output product, added to the residual stream."""
    heads, width = work.queries.shape[2:]
    mixed = np.empty((heads, width), np.float32)
    merged(work.partial, members, mixed)
    if member == 0:
        spread(work.partial, members, work.entropy[layer])
    _add(member, members, layers.out, layer, mixed.reshape(-1), past, work)


@compiled
def _gate(member, members, layers, layer, work):
    """SiLU of the gate's product times the other one, in the first half of what is gated."""
    x = _normed(work.x, layers.after[layer], layers.epsilon)
    count = len(work.gated) // 2
    lo, hi = share(count, member, members)
    multiply(layers.gate_up, layer, lo, hi, x, work.gated)
    multiply(layers.gate_up, layer, count + lo, count + hi, x, work.gated)
    for row in range(lo, hi):
        gate = work.gated[row]
        work.gated[row] = gate / (np.float32(1) + exp(-gate)) * work.gated[count + row]


@compiled
def _add(member, members, w, layer, x, past, work):
    """Add a product to the residual stream, rounded as the cache's elements are."""
    lo, hi = share(len(work.x), member, members)
    multiply(w, layer, lo, hi, x, work.added)
    for row in range(lo, hi):
        work.x[row] = wide(stored(work.x[row] + work.added[row], past.keys))
