"""Choosing the next token: transformers' logits processors, then the largest or a sampled one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from backend.finite import check_finite
from backend.settings import RunSettings

if TYPE_CHECKING:
    from transformers import LogitsProcessorList

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

    def choose(self, logits: Tensor, read: list[int], goal: int | None, planned: int | None = None) -> Choice:
        """logits [vocabulary] in float32, token ids read so far, goal in tokens (for the decaying penalty).

        planned: the token that was chosen before, to be described alone. FloatingPointError where the logits are not
        finite.
        """
        scores = logits.cpu()
        check_finite(scores)
        log_p = torch.log_softmax(scores, -1)
        token = self._next(scores, read, goal) if planned is None else planned
        p = log_p.exp()
        spread = -torch.dot(p, log_p.clamp_min(-1e4))
        return Choice(token, float(p[token]), float(p[self.ends].sum()), float(spread))

    def _next(self, scores: Tensor, read: list[int], goal: int | None) -> int:
        shaping = self._shaping(goal)
        shaped = shaping(torch.tensor([read]), scores[None])[0] if shaping else scores
        return int(shaped.argmax()) if self.greedy else self._sampled(shaped)

    def _sampled(self, scores: Tensor) -> int:
        return int(torch.multinomial(torch.softmax(scores, -1), 1, generator=self.random))

    def _shaping(self, goal: int | None) -> LogitsProcessorList:
        """In generate's order: repetition, decay, then, when sampling, temperature, top-k and top-p."""
        from transformers import (
            ExponentialDecayLengthPenalty,
            LogitsProcessorList,
            RepetitionPenaltyLogitsProcessor,
            TemperatureLogitsWarper,
            TopKLogitsWarper,
            TopPLogitsWarper,
        )

        settings, shaping = self.settings, LogitsProcessorList()
        if settings.repetition_penalty != 1:
            shaping.append(RepetitionPenaltyLogitsProcessor(settings.repetition_penalty))
        if settings.method == "exp_decay" and goal is not None:
            shaping.append(ExponentialDecayLengthPenalty((goal, DECAY), self.ends, self.prompt))
        if self.greedy:
            return shaping
        shaping.append(TemperatureLogitsWarper(settings.temperature))
        if settings.top_k:
            shaping.append(TopKLogitsWarper(settings.top_k))
        if settings.top_p < 1:
            shaping.append(TopPLogitsWarper(settings.top_p))
        return shaping
