"""Attention of many queries that keeps no scores, and says the log-sum-exp of each."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from backend.inference.kernels import flash as kernel
from backend.inference.kernels.place import stored

# Scores that are held at once where no kernel keeps them to itself: 1 GiB in float32.
HELD = 2**28


def flash(
    q: Tensor, k: Tensor, v: Tensor, scale: float, spans: np.ndarray | None, causal: bool, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Softmax-weighted means of values: by our kernel or torch's, materialised where the device has neither.

    q [heads, n, width]; k, v [kv heads, m, width]; spans [n, 2]: first key and end of each row, None: all, or, if
    causal (m = n), the first r + 1 of row r; bias [heads, n, m]. Nothing is kept for gradients.
    Returns the mean [heads, n, width] and its log-sum-exp [heads, n] (−inf where a row sees no key).
    """
    if bias is None and kernel.serves(q.dtype, q.device, q.shape[-1]):
        return _paired(q, k, v, scale, _spans(q.shape[1], k.shape[1], causal) if spans is None else spans)
    kv_heads, m, width = k.shape
    heads, n, _ = q.shape
    shared = (kv_heads, heads // kv_heads)
    k, v = (x.contiguous()[:, None].expand(*shared, m, width) for x in (k, v))
    q = q.reshape(*shared, n, width)
    mask = None if spans is None else within(spans, m, q.device)
    added = None if mask is None else torch.zeros(n, m, dtype=q.dtype, device=q.device).masked_fill_(~mask, -math.inf)
    if bias is not None:
        seen = _lower(n, m, q.device) if causal else mask
        added = bias.to(q.dtype) if seen is None else bias.to(q.dtype).masked_fill(~seen, -math.inf)
        added, causal = added.reshape(*shared, n, m), False
    if q.device.type == "cpu":
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, causal, attn_mask=added, scale=scale
        )
    else:
        out, lse = _dense(q, k, v, scale, _lower(n, m, q.device) if causal else None, added)
    out, lse = out.reshape(heads, n, width), lse.reshape(heads, n)
    if mask is not None:
        lse = lse.masked_fill(~mask.any(-1), -math.inf)
    return out, lse


def merge(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Two softmax-weighted means over disjoint keys as one: (mean [h, n, w], log-sum-exp [h, n], −inf: saw no key)."""
    lse = torch.logaddexp(a[1], b[1])
    left, right = (torch.nan_to_num((x[1] - lse).exp())[..., None] for x in (a, b))
    return a[0] * left + b[0] * right, lse


def within(spans: np.ndarray, keys: int, device: torch.device) -> Tensor:
    """Spans [n, 2] as a mask [n, keys], True where seen."""
    ends, numbers = torch.from_numpy(spans).to(device), torch.arange(keys, device=device)
    return (numbers >= ends[:, :1]) & (numbers < ends[:, 1:])


def _spans(n: int, m: int, causal: bool) -> np.ndarray:
    ends = np.arange(1, n + 1) if causal else np.full(n, m)
    return np.stack([np.zeros_like(ends), ends], 1)


def _paired(q: Tensor, k: Tensor, v: Tensor, scale: float, spans: np.ndarray) -> tuple[Tensor, Tensor]:
    kv_heads, m, width = k.shape
    heads, n, _ = q.shape
    grouped = (kv_heads, heads // kv_heads, n)
    k, v = _filled(k, kernel.KEYS), _filled(v, kernel.KEYS)
    keys = k.view(torch.float32).unflatten(1, (-1, kernel.KEYS)).transpose(2, 3).contiguous()
    values = v.unflatten(1, (-1, 2)).transpose(2, 3).contiguous().flatten(2).view(torch.float32)
    mean, lse = torch.empty(*grouped, width, dtype=q.dtype), torch.empty(grouped, dtype=torch.float32)
    queries = _filled(q.reshape(*grouped, width), kernel.ROWS).contiguous().view(torch.float32)
    within_keys = np.ascontiguousarray(spans.clip(0, m), np.int64)
    kernel.attended(
        torch.get_num_threads(), *map(stored, (queries, keys, values)), within_keys,
        np.float32(scale), stored(mean), stored(lse),
    )  # fmt: skip
    return mean.view(heads, n, width), lse.view(heads, n)


def _filled(x: Tensor, block: int) -> Tensor:
    """x […, n, width] with n made a multiple of `block` by zeros."""
    n = x.shape[-2]
    return F.pad(x, (0, 0, 0, -n % block)) if n % block else x


def _lower(n: int, m: int, device: torch.device) -> Tensor:
    return torch.ones(n, m, dtype=torch.bool, device=device).tril()


def _dense(
    q: Tensor, k: Tensor, v: Tensor, scale: float, seen: Tensor | None, added: Tensor | None
) -> tuple[Tensor, Tensor]:
    """q [kv heads, groups, n, width]; k, v likewise; seen, added […, n, m]; as many rows at once as HELD allows."""
    count = max(1, HELD // (q.shape[0] * q.shape[1] * k.shape[2]))
    parts = [
        _scored(rows, k, v, scale, *(None if x is None else x[..., at : at + count, :] for x in (seen, added)))
        for at, rows in zip(range(0, q.shape[2], count), q.split(count, 2), strict=True)
    ]
    return torch.cat([mean for mean, _ in parts], 2), torch.cat([lse for _, lse in parts], 2)


def _scored(
    q: Tensor, k: Tensor, v: Tensor, scale: float, seen: Tensor | None, added: Tensor | None
) -> tuple[Tensor, Tensor]:
    scores = (q.float() @ k.float().transpose(-1, -2)) * scale
    scores = scores if added is None else scores + added.float()
    scores = scores if seen is None else scores.masked_fill(~seen, -math.inf)
    lse = torch.logsumexp(scores, -1)
    return torch.nan_to_num((scores - lse[..., None]).exp()).to(v.dtype) @ v, lse
