"""What can be seen inside while the model reads and writes (002 §3, fig. 1).

Only the decoded query and a few sampled prompt rows are looked at, so memory is linear in length. A probe reads
scores that attention has computed anyway; it changes nothing, so tokens are the same with and without one.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from backend.inference.kv_cache import FramedCache
from backend.inference.prefill_attention import within
from backend.settings import Watch
from backend.steps import SINKS, Logits

EDGES = np.unique(np.concatenate([np.arange(-0.5, 8), np.geomspace(8.5, 200_000, 56)]))
SAMPLED_ROWS = 8


def entropy(scores: Tensor) -> Tensor:
    """H = lse − Σ p·s in nats over the last dimension, of pre-softmax scores (−inf: unseen), in float32 or better."""
    scores = scores if scores.dtype == torch.float64 else scores.float()
    top = scores.amax(-1, keepdim=True)
    shifted = (scores - top).clamp_min_(-1e4)
    weights = shifted.exp()
    total = weights.sum(-1)
    return (total.log() - weights.mul_(shifted).sum(-1) / total).clamp_min(0)


def positions(cache: FramedCache) -> np.ndarray:
    """Positions in the text of the last row's keys, in the order in which attention joins its scores."""
    chunk = cache.chunk
    assert chunk is not None
    if chunk.unframed:
        return np.arange(len(chunk.rows))
    found = [piece for group in cache.policy.groups for piece in chunk.pieces.get(group, ())]
    return np.concatenate([np.arange(piece.first, piece.first + piece.hi - piece.lo) for piece in found])


def distances(cache: FramedCache) -> np.ndarray:
    """Perceived distances of the last row's keys, in the order in which attention joins its scores."""
    chunk, out = cache.chunk, []
    assert chunk is not None
    frames = cache.policy.prompt_frame(chunk.rows, len(chunk.rows)) if chunk.unframed else None
    if frames is not None:
        return frames[-1] - frames
    for group in cache.policy.groups:
        query = cache.policy.query_frame(chunk.rows[-1:], group)
        for piece in chunk.pieces.get(group, ()):
            keys = np.arange(piece.first, piece.first + piece.hi - piece.lo)
            out.append(query - cache.policy.key_frame(keys, group))
    return np.concatenate(out)


def by_distance(scores: np.ndarray, distance: np.ndarray, layer: int, head: int) -> Logits:
    """Bin a layer's pre-softmax logits [heads, keys] by perceived distance [keys], one head's in detail.

    Keys with −inf, the same for all heads, are left out.
    """
    order = np.argsort(distance, kind="stable")
    order = order[np.isfinite(scores[head, order])]
    scores, distance = scores[:, order], distance[order]
    bins = np.digitize(distance, EDGES)
    starts = np.flatnonzero(np.diff(bins, prepend=-1))
    counts = np.diff(starts, append=len(bins))
    means = np.add.reduceat(scores, starts, axis=1) / counts
    return Logits(
        layer,
        head,
        np.add.reduceat(distance, starts) / counts,
        means[head],
        np.minimum.reduceat(scores[head], starts),
        np.maximum.reduceat(scores[head], starts),
        means,
    )


class Probe:
    """Collects one forward call at a time. layers, heads: the model's; watch: what to record."""

    def __init__(self, layers: int, heads: int, watch: Watch):
        self.layers, self.heads, self.watch = layers, heads, watch
        self._one: dict[int, Tensor] = {}
        self._rows: dict[int, Tensor] = {}
        self._state: Tensor | None = None
        self._entropy: Tensor | None = None
        self._lse: Tensor | None = None
        self._queries: Tensor | None = None
        self._attended = torch.zeros(1, dtype=torch.int64)

    def one(self, layer: int, scores: Tensor) -> None:
        """Take the decoded query's scores [heads, keys] of one layer."""
        self._one[layer] = scores
        self._attended = torch.tensor([scores.shape[-1]])
        self._rows.pop(layer, None)

    def token(self, entropy: Tensor, lse: Tensor, queries: Tensor, state: Tensor, attended: int) -> None:
        """Take a query decoded by the kernels, which keep no scores: entropy and log-sum-exp [layers, heads]; queries
        [layers, groups, heads, width] as they met the keys of each group; the first layer's output [1, width]; number
        of keys seen."""
        self.chunk(entropy[None], lse, queries, torch.tensor([attended]))
        self._state = state

    def chunk(self, entropy: Tensor, lse: Tensor, queries: Tensor, attended: Tensor) -> None:
        """Likewise a short chunk's sampled rows: entropy [rows, layers, heads], attended [rows]; the last one's
        log-sum-exp and queries."""
        self._entropy, self._lse, self._queries, self._attended = entropy, lse, queries, attended
        self._one.clear()
        self._rows.clear()

    def sampled(self, n: int) -> list[int]:
        """Which rows of a chunk of n are looked at: a few, evenly spread, the last one included."""
        return sorted({round(x) for x in np.linspace(0, n - 1, min(n, SAMPLED_ROWS))})

    def rows(self, layer: int, scores: Tensor) -> None:
        """Take the sampled rows' scores [heads, rows, keys] of one layer of a prefill chunk, −inf where unseen."""
        self._rows[layer] = entropy(scores).T
        self._attended = (scores[0] > -torch.inf).sum(-1)
        self._one[layer] = scores[:, -1]

    def state(self, hidden: Tensor) -> None:
        """Take the first layer's output [n, width]."""
        self._state = hidden

    def decoded(self) -> np.ndarray:
        """Attention entropy [layers, heads] of the query just decoded, in nats."""
        if not self._one:
            assert self._entropy is not None
            return self._entropy[-1].numpy()
        return entropy(torch.stack([self._one[i] for i in range(self.layers)])).cpu().numpy()

    def prefilled(self) -> tuple[np.ndarray, np.ndarray]:
        """Entropies [rows, layers, heads] of a chunk's sampled rows, and the number of keys [rows] each one saw."""
        if not self._rows:
            assert self._entropy is not None
            return self._entropy.numpy(), self._attended.numpy()
        stacked = torch.stack([self._rows[i] for i in range(self.layers)], 1)
        return stacked.cpu().numpy(), self._attended.cpu().numpy()

    def logits(self, cache: FramedCache, layer: int, head: int) -> Logits:
        """The logits of one layer and head for the last row read; both are clipped to what the model has."""
        layer, head = min(layer, self.layers - 1), min(head, self.heads - 1)
        scores = self._one[layer] if self._one else self._scores(cache, layer)
        return by_distance(scores.float().cpu().numpy(), distances(cache), layer, head)

    def sink_share(self, cache: FramedCache) -> np.ndarray:
        """Share of the last row's attention on the text's first SINKS tokens [layers], mean over heads."""
        if not self._one:
            return self._kept_sink_share(cache).mean(-1).numpy()
        scores = torch.stack([self._one[i] for i in range(self.layers)]).float()
        first = torch.from_numpy(np.flatnonzero(positions(cache) < SINKS)).to(scores.device)
        shares = (scores[..., first] - scores.logsumexp(-1, keepdim=True)).exp().sum(-1)
        return shares.mean(-1).cpu().numpy()

    def _kept_sink_share(self, cache: FramedCache) -> Tensor:
        """That share [layers, heads] of a query decoded by the kernels, from the first keys as they still stand."""
        chunk, kv_heads = cache.chunk, cache.shape.heads
        assert chunk is not None and self._queries is not None and self._lse is not None
        found = torch.zeros(self.layers, kv_heads, self.heads // kv_heads, dtype=torch.float32)
        lse = self._lse.view(found.shape)[..., None]
        for index, group in enumerate(chunk.groups):
            queries = self._queries[:, index].reshape(*found.shape, -1)
            for piece in chunk.pieces.get(group, ()):
                hi = min(piece.hi, piece.lo + SINKS - piece.first)
                if hi > piece.lo:
                    keys = cache.buffers[0][:, :, piece.lo : hi].float()
                    scores = queries @ keys.transpose(-1, -2) * cache.shape.width**-0.5
                    if piece.spans is not None:
                        seen = within(piece.spans[-1:], piece.hi - piece.lo, scores.device)[0, : hi - piece.lo]
                        scores[..., ~seen] = -math.inf
                    found += (scores - lse).exp().sum(-1)
        return found.flatten(1)

    def _scores(self, cache: FramedCache, layer: int) -> Tensor:
        """A layer's scores [heads, keys] of a query decoded by the kernels, from the keys as they still stand."""
        chunk, shape = cache.chunk, cache.shape
        assert chunk is not None and self._queries is not None
        found = []
        for group, queries in zip(chunk.groups, self._queries[layer], strict=True):
            queries = queries.view(shape.heads, -1, shape.width)
            for piece in chunk.pieces.get(group, ()):
                keys = cache.keys(layer, piece.lo, piece.hi).float()
                scores = (queries @ keys.transpose(-1, -2)).flatten(0, 1)
                if piece.spans is not None:
                    scores[:, ~within(piece.spans[-1:], piece.hi - piece.lo, scores.device)[0]] = -math.inf
                found.append(scores)
        return torch.cat(found, -1) * shape.width**-0.5

    def states(self, rows: list[int] | None = None) -> np.ndarray:
        """First-layer outputs [rows, width] as float16."""
        assert self._state is not None
        return (self._state if rows is None else self._state[rows]).to(torch.float16).cpu().numpy()
