"""Choosing the next token: transformers' logits processors, then the largest or a sampled one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from backend.methods import methods
from backend.methods.base import Aimed
from backend.settings import RunSettings, SamplingSettings
from backend.text.finite import check_finite

if TYPE_CHECKING:
    from transformers import LogitsProcessorList

COLDEST = 1e-3


class Choice(NamedTuple):
    """A chosen token, its probability and that of ending instead.

    p, p_end: drawn with, after repetition penalty, decay, temperature, top-k and top-p. A greedy choice has no
    temperature: they are those of the distribution after repetition penalty and decay whose likeliest token it takes.
    p_model, p_end_model, spread: the model's own, before all of these; spread is its entropy in nats. likeliest: of the
    model's own likeliest tokens each with p and p_model, as many as were asked for.
    """

    token: int
    p: float
    p_end: float
    spread: float
    p_model: float
    p_end_model: float
    likeliest: tuple[tuple[int, float, float], ...] = ()


class Chooser:
    """Picks tokens for one run. prompt: tokens of the prompt; ends: ids that end a response.

    Temperatures below 0.001 are greedy: dividing by them would leave float32.
    """

    def __init__(self, settings: RunSettings, prompt: int, ends: list[int]):
        self.prompt, self.ends = prompt, ends
        self.random = torch.Generator().manual_seed(settings.seed)
        self.greedy = settings.temperature < COLDEST
        method = methods[settings.method]
        self._aimed = method.processor(prompt, ends) if ends or not method.writes_end else None
        self._shaping = _shaping(settings, self._aimed, self.greedy)

    @property
    def aims(self) -> bool:
        """Whether a goal changes what is chosen."""
        return self._aimed is not None

    def choose(
        self, logits: Tensor, read: list[int], goal: int | None, planned: int | None = None, others: int = 0
    ) -> Choice:
        """logits [vocabulary] in float32, token ids read so far, goal in tokens (which the method's processor aims at).

        planned: the token that was chosen otherwise, to be described alone; what is drawn after it is the same.
        others: how many of the likeliest tokens are described beside it. FloatingPointError where the logits are not
        finite.
        """
        scores = logits.cpu()
        check_finite(scores)
        own = torch.log_softmax(scores, -1)
        p_own = own.exp()
        spread = -torch.dot(p_own, own.clamp_min(-1e4))
        shaped = self._shaped(scores, read, goal)
        p = torch.softmax(shaped, -1)
        drawn = self._next(shaped, p)
        token = drawn if planned is None else planned
        ending, ending_own = float(p[self.ends].sum()), float(p_own[self.ends].sum())
        best = p_own.topk(min(others, len(p_own))).indices
        likeliest = tuple(zip(best.tolist(), p[best].tolist(), p_own[best].tolist(), strict=True))
        return Choice(token, float(p[token]), ending, float(spread), float(p_own[token]), ending_own, likeliest)

    def skip(self, vocabulary: int) -> None:
        """Draws, of so many tokens, as for one that was chosen before."""
        if not self.greedy:
            torch.multinomial(torch.ones(vocabulary), 1, generator=self.random)

    def _next(self, scores: Tensor, p: Tensor) -> int:
        return int(scores.argmax()) if self.greedy else int(torch.multinomial(p, 1, generator=self.random))

    def _shaped(self, scores: Tensor, read: list[int], goal: int | None) -> Tensor:
        if not self._shaping:
            return scores
        if self._aimed is not None:
            self._aimed.aim(goal)
        return self._shaping(torch.tensor([read]), scores[None])[0]


def _shaping(settings: SamplingSettings, aimed: Aimed | None, greedy: bool) -> LogitsProcessorList:
    """In generate's order: repetition, the method's own, then, when sampling, temperature, top-k and top-p."""
    from transformers import (
        LogitsProcessorList,
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
    )

    from backend.text.nucleus import Nucleus

    shaping = LogitsProcessorList()
    if settings.repetition_penalty != 1:
        shaping.append(RepetitionPenaltyLogitsProcessor(settings.repetition_penalty))
    if aimed is not None:
        shaping.append(aimed)
    if greedy:
        return shaping
    shaping.append(TemperatureLogitsWarper(settings.temperature))
    if settings.top_k:
        shaping.append(TopKLogitsWarper(settings.top_k))
    if settings.top_p < 1:
        shaping.append(Nucleus(settings.top_p))
    return shaping
