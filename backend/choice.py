"""Choosing the next token: transformers' logits processors, then the largest or a sampled one."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from transformers import (
    ExponentialDecayLengthPenalty,
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from backend.settings import RunSettings

DECAY = 1.05
COLDEST = 1e-3


class Choice(NamedTuple):
    """A chosen token, its probability, that of ending instead, and the entropy (nats) of the model's distribution."""

    token: int
    p: float
    p_end: float
    spread: float


class Chooser:
    """Picks tokens for one run. prompt: tokens of the prompt; ends: ids that end a response.

    Temperatures below 0.001 are greedy: dividing by them would leave float32.
    """

    def __init__(self, settings: RunSettings, prompt: int, ends: list[int]):
        self.settings, self.prompt, self.ends = settings, prompt, ends
        self.random = torch.Generator().manual_seed(settings.seed)
        self.greedy = settings.temperature < COLDEST
        self.shape = _shape(settings, self.greedy)

    def choose(self, logits: Tensor, read: list[int], goal: int | None) -> Choice:
        """logits [vocabulary] in float32, token ids read so far, goal in tokens (for the decaying penalty)."""
        scores = logits.cpu()
        log_p = torch.log_softmax(scores, -1)
        shaping = LogitsProcessorList([*self.shape, *self._decaying(goal)])
        shaped = shaping(torch.tensor([read]), scores[None])[0] if shaping else scores
        token = int(shaped.argmax()) if self.greedy else self._sampled(shaped)
        p = log_p.exp()
        spread = -torch.dot(p, log_p.clamp_min(-1e4))
        return Choice(token, float(p[token]), float(p[self.ends].sum()), float(spread))

    def _sampled(self, scores: Tensor) -> int:
        return int(torch.multinomial(torch.softmax(scores, -1), 1, generator=self.random))

    def _decaying(self, goal: int | None) -> list[ExponentialDecayLengthPenalty]:
        """From the goal on, the end mark gains score exponentially with every token."""
        if self.settings.method != "exp_decay" or goal is None:
            return []
        return [ExponentialDecayLengthPenalty((goal, DECAY), self.ends, self.prompt)]


def _shape(settings: RunSettings, greedy: bool) -> LogitsProcessorList:
    """In generate's order: repetition penalty, then, when sampling, temperature, top-k and top-p."""
    shape = LogitsProcessorList()
    if settings.repetition_penalty != 1:
        shape.append(RepetitionPenaltyLogitsProcessor(settings.repetition_penalty))
    if not greedy:
        shape.append(TemperatureLogitsWarper(settings.temperature))
        if settings.top_k:
            shape.append(TopKLogitsWarper(settings.top_k))
        if settings.top_p < 1:
            shape.append(TopPLogitsWarper(settings.top_p))
    return shape
