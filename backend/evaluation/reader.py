"""A model that reads a long text under one policy, and goes on with it greedily."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backend.engine import Lab
from backend.evaluation.texts import WINDOW
from backend.inference.chunks import CHUNK
from backend.inference.kv_cache import FramedCache
from backend.inference.model_runner import Runner
from backend.positions import policy_of
from backend.settings import RunSettings


@dataclass(frozen=True)
class Reader:
    """truncated: whether it reads only as many of the last tokens as Λ can see, at the same cost."""

    lab: Lab
    settings: RunSettings
    truncated: bool = False

    @classmethod
    def of(cls, lab: Lab, model: str, policy: Mapping[str, Any], truncated: bool = False) -> Reader:
        """policy: its settings."""
        return cls(lab, RunSettings(prompt="-", model=model, **policy), truncated)

    @property
    def runner(self) -> Runner:
        return self.lab.runner(self.settings)

    def after(self, ids: Tensor, lengths: Sequence[int], written: int) -> Iterator[list[int]]:
        """What it writes after each of `lengths` tokens of ids [n], ascending; the text is read once."""
        cache, done = self._cache(max(lengths, default=0) + written), 0
        for length in lengths:
            if self.truncated:
                cache, done = self._cache(WINDOW + written), max(0, length - WINDOW)
            logits = self._read(ids[done:length], cache)
            done = length
            yield list(go_on(self.runner, logits, copy.deepcopy(cache), written))

    def _cache(self, room: int) -> FramedCache:
        return self.runner.cache(policy_of(self.settings), room)

    def _read(self, ids: Tensor, cache: FramedCache) -> Tensor:
        for chunk in ids.split(CHUNK):
            logits = self.runner.read(chunk, cache)
        return logits


def go_on(runner: Runner, logits: Tensor, cache: FramedCache, count: int) -> Iterator[int]:
    """The likeliest next tokens, `count` of them, after those of a cache; logits [1, vocabulary] are the last one's."""
    for number in range(count):
        token = int(logits.argmax())
        yield token
        if number < count - 1:
            logits = runner.read(torch.tensor([token]), cache)
