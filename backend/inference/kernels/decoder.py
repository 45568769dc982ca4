"""A token of each of some sequences through a stack of Llama-shaped layers, and their logits: one parallel region each.

The residual stream is rounded to the stored type after each addition, as transformers does; between, all is float32.
Weights are read once for all sequences, and a sequence's numbers do not depend on the others'.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from backend.inference.kernels.attention import Partial, attend, merged, rotated, spread, write
from backend.inference.kernels.compiled import compiled, entry
from backend.inference.kernels.lora import add
from backend.inference.kernels.number import exp, stored, wide
from backend.inference.kernels.place import Pasts, Places, one_past, one_place
from backend.inference.kernels.product import multiply, share
from backend.inference.kernels.rows import rms
from backend.inference.kernels.team import barrier, in_team, member_number, team_size

# So few sequences each member norms for itself, which costs less than to wait for the others.
FEW = 2
# The products, as adapters number them.
QKV, OUT, GATE_UP, DOWN = range(4)


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
    """What the members of a team pass to one another of n sequences, in float32.

    x [n, d]: the embeddings at first, at last the last hidden states, normed. first [n, d]: the first layer's output.
    normed [members, n, d]; heads [n, heads + 2·kv heads, width]; added [n, d]; gated [n, 2·intermediate] and
    weighed [n, intermediate]; mixed [members, n, heads·width]; queries [n, layers, groups, heads, width], rotated, of
    as many groups as each has; entropy and lse, log-sum-exp of the scores, [n, layers, heads]; partial: of each
    [n, members, heads, …].
    """

    x: np.ndarray
    first: np.ndarray
    normed: np.ndarray
    heads: np.ndarray
    added: np.ndarray
    gated: np.ndarray
    weighed: np.ndarray
    mixed: np.ndarray
    queries: np.ndarray
    entropy: np.ndarray
    lse: np.ndarray
    partial: Partial


def work(layers: Layers, pasts: Pasts, places: Places, embeds: np.ndarray, members: int) -> Work:
    """Room for a token of each sequence with these embeddings [n, d]."""
    n, inputs = embeds.shape
    count, kv_heads, width = pasts.shape
    rows, inner = layers.qkv.weight.shape[1] // width, layers.gate_up.weight.shape[1]
    heads, groups = rows - 2 * kv_heads, int(np.diff(places.turned_from).max())
    shapes = [(n, inputs), (members, n, inputs), (n, rows, width), (n, inputs), (n, inner), (n, inner // 2)]
    shapes += [(members, n, heads * width), (n, count, groups, heads, width)]
    shapes += [(n, count, heads), (n, count, heads)]
    found = ((n, members, heads), (n, members, heads), (n, members, heads), (n, members, heads, width))
    partial = Partial(*(np.empty(shape, np.float32) for shape in found))
    return Work._make([embeds.copy(), *(np.empty(shape, np.float32) for shape in shapes), partial])


@entry
def decode(members, layers, loras, pasts, places, work):
    """Take a token of each sequence through all layers; its key and value join the sequence's cache."""
    in_team(members, _decode, (layers, loras, pasts, places, work))


@entry
def logits(members, head, x, out):
    """Products of the head [1, vocabulary, d] and x [n, d] into out [n, vocabulary]."""
    in_team(members, _logits, (head, x, out))


@compiled
def _logits(head, x, out):
    lo, hi = share(out.shape[1], member_number(), team_size())
    multiply(head, 0, lo, hi, x, out)


@compiled
def _decode(layers, loras, pasts, places, work):
    member, members = member_number(), team_size()
    n, count = work.entropy.shape[:2]
    lo, hi = share(n, member, members)
    heads = work.heads.reshape(n, -1)
    for layer in range(count):
        normed = _all_normed(member, members, work, layers.before[layer], layers.epsilon)
        first, last = share(heads.shape[1], member, members)
        multiply(layers.qkv, layer, first, last, normed, heads)
        add(loras, QKV, layer, first, last, normed, heads)
        barrier()
        for row in range(lo, hi):
            _place(layers, layer, row, pasts, places, work)
        barrier()
        for row in range(n):
            _attend(member, members, layer, row, pasts, places, work)
        barrier()
        mixed = _mixed(member, members, layer, work)
        _add(member, members, layers.out, loras, OUT, layer, mixed, pasts, work)
        barrier()
        _gate(member, members, layers, loras, layer, work)
        barrier()
        _add(member, members, layers.down, loras, DOWN, layer, work.weighed, pasts, work)
        barrier()
        if layer == 0:
            for row in range(lo, hi):
                _copy(work.x[row], work.first[row])
    for row in range(lo, hi):
        rms(work.x[row], layers.last, layers.epsilon, work.normed[member, row])
        _copy(work.normed[member, row], work.x[row])


@compiled
def _copy(x, out):
    for i in range(len(x)):
        out[i] = x[i]


@compiled
def _all_normed(member, members, work, weight, epsilon):
    """The normed residual stream [n, d]."""
    n = len(work.x)
    together = n > FEW
    lo, hi = share(n, member, members) if together else (0, n)
    out = work.normed[0 if together else member]
    for row in range(lo, hi):
        rms(work.x[row], weight, epsilon, out[row])
    if together:
        barrier()
    return out


@compiled
def _place(layers, layer, row, pasts, places, work):
    """Norm and rotate a sequence's queries for each group, and put the key and value into its cache."""
    place, found = one_place(places, row), work.heads[row]
    heads, kv_heads = work.entropy.shape[2], pasts.shape[1]
    for head in range(heads + kv_heads):
        norm = layers.q_norm[layer] if head < heads else layers.k_norm[layer]
        if len(norm):
            rms(found[head], norm, layers.epsilon, found[head])
    for group in range(len(place.turned)):
        for head in range(heads):
            rotated(found[head], place.turned[group], work.queries[row, layer, group, head])
    write(layer, found[heads : heads + kv_heads], found[heads + kv_heads :], one_past(pasts, row), place)


@compiled
def _attend(member, members, layer, row, pasts, places, work):
    past, place = one_past(pasts, row), one_place(places, row)
    queries = work.queries[row, layer, : len(place.turned)]
    attend(member, members, queries, past.keys[layer], past.values[layer], place.pieces, _partial(work, row))


@compiled
def _partial(work, row):
    found = work.partial
    return Partial(found.top[row], found.total[row], found.heat[row], found.mean[row])


@compiled
def _mixed(member, members, layer, work):
    """What attention found [n, heads·width], its entropy and its log-sum-exp."""
    n, together = len(work.x), len(work.x) > FEW
    lo, hi = share(n, member, members) if together else (0, n)
    out = work.mixed[0 if together else member]
    heads, width = work.queries.shape[3:]
    for row in range(lo, hi):
        merged(_partial(work, row), members, out[row].reshape(heads, width))
        if together or member == 0:
            spread(_partial(work, row), members, work.entropy[row, layer], work.lse[row, layer])
    if together:
        barrier()
    return out


@compiled
def _gate(member, members, layers, loras, layer, work):
    """SiLU of the gate's product times the other one."""
    x = _all_normed(member, members, work, layers.after[layer], layers.epsilon)
    count = work.weighed.shape[1]
    lo, hi = share(count, member, members)
    multiply(layers.gate_up, layer, lo, hi, x, work.gated)
    multiply(layers.gate_up, layer, count + lo, count + hi, x, work.gated)
    add(loras, GATE_UP, layer, lo, hi, x, work.gated)
    add(loras, GATE_UP, layer, count + lo, count + hi, x, work.gated)
    for row in range(len(x)):
        gated, weighed = work.gated[row], work.weighed[row]
        for i in range(lo, hi):
            weighed[i] = gated[i] / (np.float32(1) + exp(-gated[i])) * gated[count + i]


@compiled
def _add(member, members, w, loras, product, layer, x, pasts, work):
    """Add a product to the residual stream, rounded as the caches' elements are."""
    lo, hi = share(work.x.shape[1], member, members)
    multiply(w, layer, lo, hi, x, work.added)
    add(loras, product, layer, lo, hi, x, work.added)
    for row in range(len(x)):
        for i in range(lo, hi):
            work.x[row, i] = wide(stored(work.x[row, i] + work.added[row, i], pasts.like))
