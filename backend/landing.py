"""Landing: near its target a response is tried to its end in several ways, and written the one that ends best.

Not from the papers. A model that reads a count knows when to stop, but a small one does not plan its last sentence to
end just there. Some continuations are written on copies of the cache; of all places where one of them ends a sentence
the nearest to the target is kept, the likeliest of equals.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from backend.cache import FramedCache
from backend.runner import Runner
from backend.sentences import final
from backend.settings import Unit
from backend.signals import SignalContext
from backend.signals.units import EXPECTED, in_tokens, length

REACH = 16
SLACK = 6
RETRY = 4
TEMPERATURE = 0.9
TOP_K = 20


class Ending(NamedTuple):
    """Tokens that lead to a sentence's end, how far that is from the goal, and nats lost on the way."""

    tokens: list[int]
    miss: int
    nats: float


@dataclass
class Landing:
    """The last tokens of one run.

    tries: continuations written, the first of them greedy. unit: what the goal counts.
    """

    runner: Runner
    tokenizer: PreTrainedTokenizerBase
    ends: Sequence[int]
    tries: int
    seed: int
    unit: Unit
    _goal: int | None = None
    _plan: list[int] = field(default_factory=list)
    _next: int = 0

    def token(
        self, logits: Tensor, cache: FramedCache, signal: SignalContext | None, written: list[int], goal: int
    ) -> int | None:
        """The token to write next, None while the end is far or no continuation ends. goal: in `unit`."""
        left = self._in_tokens(goal, written) - len(written)
        if goal != self._goal:
            self._goal, self._plan, self._next = goal, [], 0
        if not self._plan and left <= REACH and len(written) >= self._next:
            best = self._best(logits, cache, signal, written, goal)
            near = best is not None and (left <= 0 or best.miss * self._rate <= self._allowed(left))
            self._plan = [*best.tokens, self.ends[0]] if best is not None and near else []
            self._next = len(written) + RETRY
        return self._plan.pop(0) if self._plan else None

    @property
    def _rate(self) -> float:
        """Tokens expected of a unit."""
        return 1.0 if self.unit == "tokens" else EXPECTED[self.unit].tokens

    def _allowed(self, left: int) -> float:
        """Tokens an end may miss the goal by: the sooner there will be another look, the fewer."""
        return 1 + (REACH - left) / RETRY

    def _best(self, logits, cache, signal, written: list[int], goal: int) -> Ending | None:
        random, best = torch.Generator().manual_seed(self.seed), None
        for attempt in range(self.tries):
            for ending in self._endings(logits, cache, signal, written, goal, random if attempt else None):
                if best is None or (ending.miss, ending.nats) < (best.miss, best.nats):
                    best = ending
            if best is not None and best.miss == 0:
                break
        return best

    def _endings(self, logits, cache, signal, written, goal: int, random) -> Iterator[Ending]:
        """Every sentence's end on one continuation."""
        cache, signal, tokens, nats = copy.deepcopy(cache), copy.copy(signal), list(written), 0.0
        most = self._in_tokens(goal, written) + SLACK
        while True:
            text = self.tokenizer.decode(tokens)
            if final(text):
                # Ends that the model does not want cost what it would have to be persuaded.
                end = -float(torch.log_softmax(logits, -1)[list(self.ends)].logsumexp(-1))
                miss = abs(length(self.unit, text, len(tokens)) - goal)
                yield Ending(tokens[len(written) :], miss, (nats + end) / (len(tokens) - len(written) + 1))
            if len(tokens) >= most:
                return
            token = self._chosen(logits, random)
            if token in self.ends:
                return
            nats -= float(torch.log_softmax(logits, -1)[token])
            tokens.append(token)
            if signal is not None:
                signal.retarget(self._in_tokens(goal, tokens))
            logits = self.runner.read(torch.tensor([token]), cache, None, signal)

    def _in_tokens(self, goal: int, tokens: list[int]) -> int:
        text = "" if self.unit == "tokens" else self.tokenizer.decode(tokens)
        return in_tokens(goal, self.unit, text, len(tokens))

    def _chosen(self, logits: Tensor, random: torch.Generator | None) -> int:
        if random is None:
            return int(logits.argmax())
        best, tokens = logits.topk(TOP_K)
        return int(tokens[torch.multinomial(torch.softmax(best / TEMPERATURE, -1), 1, generator=random)])
