"""Sequences of one layer whose steps are read by the engine, each alone, and by a plan, over buffers that all share."""
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from backend.inference.attention import attend
from backend.inference.kv_cache import SLACK, FramedCache, Shape
from backend.inference.varlen_attention import Buffers, attended
from backend.inference.varlen_plan import Member, VarlenStep, planned
from backend.positions import policy_of
from backend.positions.rope import Rope
from backend.settings import RunSettings

CPU = torch.device("cpu")
HEADS, KV_HEADS, WIDTH, ROOM = 4, 2, 16, 400
SCALE = WIDTH**-0.5
THETA = 10_000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)


def rope_of(asked: RunSettings) -> Rope:
    """Slower under policies that change the frequencies, so that rows of one step turn at different speeds."""
    return Rope(THETA / (asked.ratio if asked.pic in ("ntk", "yarn") else 1), trained=64)


class Several:
    """alone: a cache a sequence, read by the engine; shared: the same, each in the buffers from slot `first` on."""

    def __init__(self, asked: Sequence[RunSettings], dtype: torch.dtype = torch.float64, device: torch.device = CPU):
        shape = Shape(1, KV_HEADS, WIDTH, dtype, device)
        policies = [policy_of(each) for each in asked]
        ropes = [rope_of(each) for each in asked]
        self.alone, self.shared = (
            [FramedCache(shape, policy, rope, ROOM) for policy, rope in zip(policies, ropes, strict=True)] for _ in "ab"
        )
        sizes = [max(cache.slots, ROOM + SLACK) for cache in self.shared]
        buffers = [torch.zeros(1, KV_HEADS, sum(sizes), WIDTH, dtype=dtype, device=device) for _ in range(3)]
        self.buffers = Buffers(*(buffer[0] for buffer in buffers))
        self.first = [sum(sizes[:number]) for number in range(len(sizes))]
        for cache, first, size in zip(self.shared, self.first, sizes, strict=True):
            cache.slots = size
            cache._keys, cache._values = (buffer[:, :, first : first + size] for buffer in buffers[:2])
            cache._raw = buffers[2][:, :, first : first + cache._raw.shape[2]]
        self.random = [torch.Generator().manual_seed(number) for number in range(len(asked))]

    def _drawn(self, heads: int, counts: dict[int, int]) -> Tensor:
        shape = self.alone[0].shape
        drawn = [
            torch.randn(heads, count, WIDTH, generator=self.random[number], dtype=torch.float64)
            for number, count in counts.items()
        ]
        return torch.cat(drawn, 1).to(shape.device, shape.dtype)

    def step(self, counts: dict[int, int]) -> tuple[VarlenStep, Tensor, Tensor]:
        """So many rows of some sequences: their plan, its result [heads, n, width] and the engine's."""
        q, k, v = (self._drawn(heads, counts) for heads in (HEADS, KV_HEADS, KV_HEADS))
        parts = [[*counts], *(x.split([*counts.values()], 1) for x in (q, k, v))]
        expected = [self._alone(*part) for part in zip(*parts, strict=True)]
        for number, count in counts.items():
            self.shared[number].begin(count)
        plan = planned([Member.of(self.shared[number], self.first[number]) for number in counts])
        assert self.alone[0].rope is not None
        found = attended(plan.to(q.device), self.buffers, self.alone[0].rope, q, k, v, SCALE)
        for number in counts:
            self.shared[number].end()
        return plan, found, torch.cat(expected, 1)

    def _alone(self, number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        cache = self.alone[number]
        cache.begin(q.shape[1])
        out = attend(cache, 0, q, k, v, SCALE)
        cache.end()
        return out
