"""Attention over a framed cache: each group of keys meets the query rotated to that group's frame.

`attend` serves all models. Llama-shaped ones on the CPU call it from `fused`; the others run transformers' own
modules, whose rotary embedding is replaced by the identity and whose attention function is `framed_attention`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, eager_mask, sdpa_mask

from backend.families import families
from backend.inference.chunk_plan import Chunk, Piece
from backend.inference.kv_cache import FramedCache, Stopped
from backend.inference.prefill_attention import flash, merge, within
from backend.inference.probes import Probe
from backend.inference.varlen_attention import Buffers, attended
from backend.inference.varlen_plan import VarlenStep

NAME = "framed"


@dataclass
class Frame:
    """What one forward call needs beyond its tensors: per row its cache, left padding and probe.

    step: the one cache's chunk as calls of variable-length attention, where it is to be read by these.
    """

    caches: Sequence[FramedCache]
    padding: Sequence[int]
    probe: Probe | None = None
    exact: bool = False
    step: VarlenStep | None = None


class Attention(Protocol):
    """Attention without a cache, in the place of ours."""

    probe: None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """q [b, heads, n, width], k and v [b, kv heads, n, width], all unrotated → [b, n, heads, width]."""


_frame: ContextVar[Frame | Attention] = ContextVar("frame")


@contextmanager
def framed(frame: Frame | Attention) -> Iterator[None]:
    """Let the model's attention in this context use these caches, or this attention; other threads keep their own."""
    token = _frame.set(frame)
    try:
        yield
    finally:
        _frame.reset(token)


def current_frame() -> Frame | Attention | None:
    """The frame of the forward call under way in this context, if it is one of ours."""
    return _frame.get(None)


def framed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The function registered with transformers: query, key, value [batch, heads, n, width], unrotated.

    Rows may differ in policy and left padding: each attends over its own cache. Outside `framed` the model is
    transformers' own, and so is its attention.
    """
    frame = _frame.get(None)
    if frame is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    if not isinstance(frame, Frame):
        return frame.attend(query, key, value, scale), None
    slopes = getattr(module, "framed_slopes", None)
    layer = module.layer_idx
    if frame.step is not None:
        out = _attend_planned(frame.caches[0], frame.step, layer, query[0], key[0], value[0], scale, frame.probe)
        return out.transpose(0, 1)[None].contiguous(), None
    if len(frame.caches) == 1 and not frame.padding[0]:
        out = attend(frame.caches[0], layer, query[0], key[0], value[0], scale, frame.probe, frame.exact, slopes)
        return out.transpose(0, 1)[None].contiguous(), None
    out = torch.zeros_like(query)
    for row, (cache, pad) in enumerate(zip(frame.caches, frame.padding, strict=True)):
        real = (row, slice(None), slice(pad, None))
        if query[real].shape[1]:
            out[real] = attend(cache, layer, query[real], key[real], value[real], scale, None, frame.exact, slopes)
    return out.transpose(1, 2).contiguous(), None


def framed_mask(*args: Any, config: Any = None, **kwargs: Any) -> Tensor | None:
    """Visibility is the policy's, so no mask; outside `framed`, transformers' own for the family."""
    eager = config is not None and families[config.model_type].eager
    if _frame.get(None) is None:
        return (eager_mask if eager else sdpa_mask)(*args, config=config, **kwargs)
    return torch.zeros(1, dtype=torch.bool) if eager else None


AttentionInterface.register(NAME, framed_attention)
AttentionMaskInterface.register(NAME, framed_mask)


def attend(
    cache: FramedCache,
    layer: int,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    probe: Probe | None = None,
    exact: bool = False,
    slopes: Tensor | None = None,
) -> Tensor:
    """Attention of the chunk's rows: q [heads, n, width], k and v [kv heads, n, width], all unrotated.

    exact: where all keys are of one group, sum with transformers' own kernel. slopes: ALiBi's, by head.
    Returns [heads, n, width]. Raises Stopped for a chunk that is to be given up.
    """
    if q.shape[1] > 1 and cache.stopped():
        raise Stopped
    cache.write(layer, k, v)
    chunk = cache.chunk
    assert chunk is not None
    if exact and slopes is None and _one_group(chunk):
        out = _transformers_kernel(cache, layer, q, scale)
        if probe is not None:
            _look(cache, layer, q, scale, probe)
        return out
    if q.shape[1] == 1:
        return _attend_one(cache, layer, q, scale, probe, slopes)
    return _attend_many(cache, layer, q, scale, probe, slopes)


def _one_group(chunk: Chunk) -> bool:
    found = chunk.pieces.get(chunk.groups[0], [])
    return len(chunk.pieces) == 1 and len(found) == 1 and found[0].spans is None


def _rotated(cache: FramedCache, q: Tensor, group: str) -> Tensor:
    chunk = cache.chunk
    assert chunk is not None
    turned = cache.rope.rotate(q, chunk.turned[group]) if cache.rope is not None else q
    return turned if chunk.scale is None else turned * chunk.scale


def _transformers_kernel(cache: FramedCache, layer: int, q: Tensor, scale: float) -> Tensor:
    chunk = cache.chunk
    assert chunk is not None
    for group in cache.policy.groups:
        cache.move(layer, group)
    own = chunk.groups[0]
    piece = chunk.pieces[own][0]
    keys, values = cache.keys(layer, piece.lo, piece.hi), cache.values(layer, piece.lo, piece.hi)
    module = torch.nn.Module()
    module.num_key_value_groups = q.shape[0] // cache.shape.heads
    module.is_causal = True
    out, _ = sdpa_attention_forward(
        module, _rotated(cache, q, own)[None], keys[None], values[None], None, scaling=scale
    )
    return out[0].transpose(0, 1)


def _bias(cache: FramedCache, piece: Piece, group: str, slopes: Tensor, rows: list[int] | None = None) -> Tensor:
    """ALiBi's −slope · perceived distance, [heads, rows, keys] in float32 (002 §4.2 caps the distance)."""
    chunk = cache.chunk
    assert chunk is not None
    keys = np.arange(piece.first, piece.first + piece.hi - piece.lo)
    distance = cache.policy.query_frame(chunk.rows if rows is None else chunk.rows[rows], group)[
        :, None
    ] - cache.policy.key_frame(keys, group)
    return -slopes[:, None, None].float() * torch.from_numpy(distance).to(slopes.device, torch.float32)


def _grouped(cache: FramedCache, layer: int, q: Tensor) -> Iterator[tuple[str, Piece, Tensor]]:
    """Each piece of the chunk with the queries rotated for it, while its keys stand in its group's frame."""
    chunk = cache.chunk
    assert chunk is not None
    for group in cache.policy.groups:
        cache.move(layer, group)
        if group in chunk.pieces:
            turned = _rotated(cache, q, group)
            for piece in chunk.pieces[group]:
                yield group, piece, turned


def _scores(
    cache: FramedCache,
    layer: int,
    turned: Tensor,
    piece: Piece,
    group: str,
    scale: float,
    slopes: Tensor | None,
    rows: list[int],
) -> Tensor:
    """Pre-softmax scores [heads, rows, keys] of some of the chunk's rows, −inf where unseen."""
    grouped = turned[:, rows].reshape(cache.shape.heads, -1, turned.shape[-1])
    score = _product(grouped, cache.keys(layer, piece.lo, piece.hi)).mul_(scale).view(len(turned), len(rows), -1)
    if slopes is not None:
        score = score + _bias(cache, piece, group, slopes, rows)
    if piece.causal:
        score = score.masked_fill(_upper(rows, score), -math.inf)
    elif piece.spans is not None:
        score = score.masked_fill(~within(piece.spans[rows], score.shape[-1], score.device), -math.inf)
    return score


def _product(q: Tensor, keys: Tensor) -> Tensor:
    """q [kv heads, n, width] · keysᵀ [kv heads, width, m], by the order of factors whose kernel reads keys fastest."""
    if q.dtype == torch.bfloat16 and q.device.type == "cpu":
        return torch.bmm(keys, q.transpose(1, 2)).transpose(1, 2).contiguous()
    return torch.bmm(q, keys.transpose(1, 2))


def _upper(rows: list[int], score: Tensor) -> Tensor:
    return (torch.arange(score.shape[-1]) > torch.tensor(rows)[:, None]).to(score.device)


def _look(cache: FramedCache, layer: int, q: Tensor, scale: float, probe: Probe) -> None:
    """Show a probe the scores that transformers' kernel keeps to itself."""
    rows = _sampled(q, probe)
    found = [_scores(cache, layer, t, piece, g, scale, None, rows) for g, piece, t in _grouped(cache, layer, q)]
    _show(layer, q, probe, found)


def _sampled(q: Tensor, probe: Probe) -> list[int]:
    """The rows whose scores a probe looks at."""
    return [0] if q.shape[1] == 1 else probe.sampled(q.shape[1])


def _show(layer: int, q: Tensor, probe: Probe, found: Sequence[Tensor]) -> None:
    """Show a probe the scores of its rows, piece by piece."""
    scores = torch.cat([*found], -1)
    probe.one(layer, scores[:, 0]) if q.shape[1] == 1 else probe.rows(layer, scores)


def _attend_planned(
    cache: FramedCache,
    step: VarlenStep,
    layer: int,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    probe: Probe | None,
) -> Tensor:
    """The same as `attend`, by the calls of a plan."""
    if q.shape[1] > 1 and cache.stopped():
        raise Stopped
    chunk, groups, found = cache.chunk, cache.policy.groups, list[Tensor]()
    assert chunk is not None and cache.rope is not None

    def look(stage: int) -> None:
        assert probe is not None
        for group in groups if q.shape[1] == 1 else groups[stage : stage + 1]:
            for piece in chunk.pieces.get(group, ()):
                turned = _rotated(cache, q, group)
                found.append(_scores(cache, layer, turned, piece, group, scale, None, _sampled(q, probe)))

    buffers = Buffers(*(buffer[layer] for buffer in cache.buffers))
    out = attended(step, buffers, cache.rope, q, k, v, scale, None if probe is None else look)
    if probe is not None:
        _show(layer, q, probe, found)
    return out


def _attend_one(
    cache: FramedCache, layer: int, q: Tensor, scale: float, probe: Probe | None, slopes: Tensor | None
) -> Tensor:
    """One query: scores against each piece, one softmax, one weighted sum."""
    kv_heads, found = cache.shape.heads, []
    for group, piece, turned in _grouped(cache, layer, q):
        grouped = turned.view(kv_heads, -1, turned.shape[-1])
        score = _product(grouped, cache.keys(layer, piece.lo, piece.reach)).mul_(scale)
        if slopes is not None:
            bias = _bias(cache, piece, group, slopes).view(kv_heads, -1, piece.hi - piece.lo)
            score[..., : piece.hi - piece.lo] += bias
        if piece.reach > piece.hi:
            score[..., piece.hi - piece.lo :] = -math.inf
        found.append((piece, score))
    scores = found[0][1] if len(found) == 1 else torch.cat([score for _, score in found], -1)
    if probe is not None:
        seen = [score[..., : piece.hi - piece.lo] for piece, score in found]
        probe.one(layer, (seen[0] if len(seen) == 1 else torch.cat(seen, -1)).flatten(0, 1))
    weights = torch.softmax(scores, -1)
    out, start = None, 0
    for piece, score in found:
        part = torch.bmm(weights[..., start : start + score.shape[-1]], cache.values(layer, piece.lo, piece.reach))
        out, start = part if out is None else out + part, start + score.shape[-1]
    assert out is not None
    return out.view(q.shape)


def _attend_many(
    cache: FramedCache, layer: int, q: Tensor, scale: float, probe: Probe | None, slopes: Tensor | None
) -> Tensor:
    """Many rows: each piece by a flash kernel that also returns its log-sum-exp, then merged."""
    merged: tuple[Tensor, Tensor] | None = None
    seen = []
    for group, piece, turned in _grouped(cache, layer, q):
        bias = None if slopes is None else _bias(cache, piece, group, slopes)
        keys, values = cache.keys(layer, piece.lo, piece.hi), cache.values(layer, piece.lo, piece.hi)
        part = flash(turned, keys, values, scale, piece.spans, piece.causal, bias)
        merged = part if merged is None else merge(merged, part)
        if probe is not None:
            seen.append(_scores(cache, layer, turned, piece, group, scale, slopes, probe.sampled(q.shape[1])))
    if probe is not None:
        probe.rows(layer, torch.cat(seen, -1))
    assert merged is not None
    return merged[0].to(q.dtype)
