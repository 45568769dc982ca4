"""Attention of a planned step: every run of rows by a call of variable-length attention, then merged.

On a GPU the call is torch's, on request. An H200 ran it by the operator below torch 2.11's call, which lacks some of
these arguments; 2.13's own call has not run. On a CPU, and for what torch's kernels do not take, it is `dense`, which
holds all scores and says what the call means. Of torch 2.13,

    varlen_attn(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, return_aux=None, scale=None,
                window_size=(-1, -1), enable_gqa=False, seqused_k=None, block_table=None, num_splits=None)

it needs `return_aux` (the log-sum-exps), `enable_gqa`, `seqused_k`, and `num_splits=1`, by which no row's numbers are
to depend on the others'. It takes no bias, so that ALiBi goes without it. It returns no scores, so that probes multiply
theirs anew. Its log-sum-exp of a query without keys depends on the kernel: a plan has no such query.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from backend.inference.prefill_attention import merge
from backend.inference.varlen_plan import Call, VarlenStep, Window
from backend.positions.rope import Rope


class Buffers(NamedTuple):
    """Keys in their frames, values and unrotated keys of one layer, each [kv heads, slots, width]."""

    keys: Tensor
    values: Tensor
    raw: Tensor


def attended(
    step: VarlenStep,
    buffers: Buffers,
    rope: Rope,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    look: Callable[[int], None] | None = None,
) -> Tensor:
    """Attention of the step's rows: q [heads, n, width], k and v [kv heads, n, width], all unrotated, of which k and v
    are stored.

    rope: rotates by any phases of the model. look: called with the number of each stage, when its keys stand in their
    frames. Returns [heads, n, width].
    """
    keys, values, raw = buffers
    keys[:, step.write] = rope.rotate(k, step.born)
    values[:, step.write] = v
    raw[:, step.write[step.kept]] = k[:, step.kept]
    found = []
    for number, stage in enumerate(step.stages):
        if len(stage.moved):
            keys[:, stage.moved] = rope.rotate(raw[:, stage.moved], stage.phases)
        if look is not None:
            look(number)
        found += [_called(call, keys, values, rope, q, scale) for call in stage.calls]
    found.append((q.new_zeros(len(q), 1, q.shape[-1]), q.new_full((len(q), 1), -math.inf)))
    means, sums = (torch.cat(side, 1) for side in zip(*found, strict=True))
    merged = means[:, step.parts[0]], sums[:, step.parts[0]]
    for part in step.parts[1:]:
        merged = merge(merged, (means[:, part], sums[:, part]))
    return merged[0].to(q.dtype)


def _called(call: Call, keys: Tensor, values: Tensor, rope: Rope, q: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Means [heads, rows of the call, width] and their log-sum-exps [heads, rows of the call]."""
    turned = rope.rotate(q[:, call.rows], call.phases)
    turned = turned if call.factors is None else turned * call.factors
    among = slice(call.lo, call.hi)
    attend = kernel() if serves(q) else dense
    mean, lse = attend(
        turned.transpose(0, 1).contiguous(), keys[:, among].transpose(0, 1), values[:, among].transpose(0, 1),
        call.cu_seq_q, call.cu_seq_k, call.max_q, call.max_k, scale=scale, window_size=call.window, enable_gqa=True,
        seqused_k=call.seqused_k,
    )  # fmt: skip
    return mean.transpose(0, 1).to(lse.dtype), lse


def kernel() -> Callable[..., tuple[Tensor, Tensor]]:
    """Torch's call; it is imported when a GPU wants it."""
    from torch.nn.attention.varlen import AuxRequest, varlen_attn

    # One split of the keys: else a row's sum would depend on the longest row beside it.
    return partial(varlen_attn, num_splits=1, return_aux=AuxRequest(lse=True))


def serves(q: Tensor) -> bool:
    """Whether torch's kernels take such queries: on Ampere or later, in 16 bits, of a width of 8, 16, … 256."""
    wide = q.shape[-1] % 8 == 0 and q.shape[-1] <= 256
    half = q.dtype in (torch.bfloat16, torch.float16)
    return q.is_cuda and half and wide and torch.cuda.get_device_capability(q.device) >= (8, 0)


def dense(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float,
    window_size: Window,
    enable_gqa: bool,
    seqused_k: Tensor,
) -> tuple[Tensor, Tensor]:
    """What `varlen_attn` computes, by its definition, in the type of the queries, and in float32 at least.

    query [n, heads, width]; key, value [m, kv heads, width]. Of each sequence the query i of c sees those of its u keys
    j with i + u − c − left ≤ j ≤ i + u − c + right; −1: no bound. Returns the means [n, heads, width] and their
    log-sum-exps [heads, n], as torch 2.13 does; its docstring has the latter's dimensions the other way round.
    """
    left, right = window_size
    exact = torch.promote_types(query.dtype, torch.float32)
    means, sums = [], []
    runs = zip(pairwise(cu_seq_q.tolist()), cu_seq_k[:-1].tolist(), seqused_k.tolist(), strict=True)
    for (first, last), start, used in runs:
        q, k, v = (x.transpose(0, 1).to(exact) for x in (query[first:last], key[start:][:used], value[start:][:used]))
        k, v = (x.repeat_interleave(len(q) // len(x), 0) for x in (k, v))
        own = torch.arange(used - q.shape[1], used, device=q.device)[:, None]
        ahead = torch.arange(used, device=q.device) - own
        unseen = (ahead < -left) & (left >= 0) | (ahead > right) & (right >= 0)
        score = (q @ k.transpose(1, 2) * scale).masked_fill(unseen, -math.inf)
        sums.append(score.logsumexp(-1))
        means.append((F.softmax(score, -1) @ v).transpose(0, 1))
    return torch.cat(means), torch.cat(sums, 1)
