"""Landing: near its target a response is tried to its end in several ways, and written the one that ends best.

Not from the papers. A model that reads a count knows when to stop, but a small one does not plan its last sentence to
end just there. Some continuations are written on copies of the cache; of all places where one of them ends a sentence,
or would with a full stop that the model itself might have put there, the likeliest near the target is kept, or the
nearest where none is near. Where the model draws EOS there by itself, the end is its own; else the search ended it.
All continuations are read in the same steps.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle, islice
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from backend.inference.embedding import SignalContext
from backend.inference.kv_cache import FramedCache
from backend.inference.scheduler import Read, together
from backend.settings import Unit
from backend.text.finite import check_finite
from backend.text.sentences import final, stops
from backend.text.units import in_tokens, length, rate

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


REACH = 16
SLACK = 6
# Tokens by which an end may miss before a nearer one is worth words however unlikely; within them each token nearer is
# worth so many nats a token.
NEAR, WORTH = 3, 0.1
# Of the continuations that are sampled, in turn: likely words where these do, others where they do not.
TEMPERATURES = (0.4, 0.6, 0.8, 1.0)
TOP_K = 20
# A stop is put after what the model goes on from only where it has at least this probability.
STOP = 0.05
# Where no continuation ends a sentence, so many tokens are written before others are tried.
PAUSE = 4


class Ending(NamedTuple):
    """Tokens that lead to a sentence's end, how far that is from the goal in tokens, nats of each on the way, and
    whether the model drew EOS there by itself."""

    tokens: list[int]
    miss: float
    nats: float
    own: bool

    @property
    def rank(self) -> tuple[float, bool, float]:
        """The lower, the better."""
        return max(self.miss, NEAR), not self.own, self.nats + WORTH * min(self.miss, NEAR)


@dataclass
class Landing:
    """The last tokens of one run.

    tries: continuations written, the first of them greedy. unit: what the goal counts. cap: most tokens in all.
    stopped: whether the run is to end. planned: whether an end was found and is being written. own: whether the model
    drew EOS there by itself.
    """

    tokenizer: PreTrainedTokenizerBase
    ends: Sequence[int]
    tries: int
    seed: int
    unit: Unit
    cap: int
    stopped: Callable[[], bool]
    planned: bool = False
    own: bool = False
    _goal: int | None = None
    _plan: list[int] = field(default_factory=list)
    _tried: int | None = None
    _known: dict[str, dict[int, str]] = field(default_factory=dict)

    def token(
        self, logits: Tensor, cache: FramedCache, signal: SignalContext | None, written: list[int], goal: int
    ) -> Generator[list[Read], list[Tensor], int | None]:
        """The token to write next, None while the end is far or cannot be found. goal: in `unit`."""
        if goal != self._goal:
            self._goal, self._plan, self._tried, self.planned = goal, [], None, False
        if not self._plan and self._due(goal, written):
            best = yield from self._best(logits, cache, signal, written, goal)
            self._plan = [*best.tokens, self.ends[0]] if best else []
            self._tried, self.planned, self.own = len(written), best is not None, best is not None and best.own
        return self._plan.pop(0) if self._plan else None

    def _due(self, goal: int, written: list[int]) -> bool:
        """Whether the goal is near, and endings were not just tried in vain."""
        left = self._in_tokens(goal, written) - len(written)
        return -SLACK <= left <= REACH and (self._tried is None or len(written) >= self._tried + PAUSE)

    @property
    def done(self) -> bool:
        """Whether nothing but EOS is left to write."""
        return self.planned and len(self._plan) == 1

    def _best(
        self, logits, cache, signal, written: list[int], goal: int
    ) -> Generator[list[Read], list[Tensor], Ending | None]:
        temperatures = islice(chain((0.0,), cycle(TEMPERATURES)), self.tries)
        tries = [
            self._endings(logits, cache, signal, written, goal, torch.Generator().manual_seed(self.seed + place), warm)
            for place, warm in enumerate(temperatures)
        ]
        found = yield from together(tries)
        return min(chain.from_iterable(found), key=lambda ending: ending.rank, default=None)

    def _endings(
        self, logits, cache, signal, written, goal: int, random: torch.Generator, temperature: float
    ) -> Generator[Read, Tensor, list[Ending]]:
        """Every sentence's end on one continuation, and what a full stop after any of its tokens would make one."""
        cache, signal, tokens, nats = copy.deepcopy(cache), copy.copy(signal), list(written), 0.0
        found: list[Ending] = []
        ends = torch.tensor(self.ends)
        most = min(max(self._in_tokens(goal, written), len(written)) + SLACK, self.cap)
        while True:
            # On the CPU the same draws on every device.
            check_finite(logits)
            likely = torch.log_softmax(logits.cpu(), -1)
            text = self.tokenizer.decode(tokens, skip_special_tokens=True)
            token = _chosen(likely, random, temperature)
            if final(text):
                found.append(self._ending(tokens, text, nats, len(written), goal, token in self.ends))
            elif len(tokens) < self.cap:
                for stop, mark in self._stops(text).items():
                    if float(likely[stop]) >= math.log(STOP) and final(text + mark):
                        spent = nats - float(likely[stop])
                        found.append(self._ending([*tokens, stop], text + mark, spent, len(written), goal, False))
            if len(tokens) >= most or self.stopped():
                return found
            # EOS amid a sentence, which the count asks for near the goal, would leave nothing to choose from.
            if token in self.ends:
                token = _chosen(likely.index_fill(0, ends, -torch.inf), random, temperature)
            nats -= float(likely[token])
            tokens.append(token)
            if signal is not None:
                signal.retarget(self._in_tokens(goal, tokens))
            logits = yield Read(torch.tensor([token]), cache, None, signal)

    def _ending(self, tokens: list[int], text: str, nats: float, before: int, goal: int, own: bool) -> Ending:
        done = length(self.unit, text, len(tokens))
        miss = abs(done - goal) * rate(self.unit, done, len(tokens))
        return Ending(tokens[before:], miss, nats / max(1, len(tokens) - before), own)

    def _stops(self, text: str) -> dict[int, str]:
        """Tokens that are nothing but a mark which ends a sentence in the text's script, and that mark."""
        marks = stops(text)
        if marks not in self._known:
            # After a letter: alone, some tokenizers would put a space before the mark.
            last = {mark: self.tokenizer.encode(f"a{mark}", add_special_tokens=False)[-1] for mark in marks}
            self._known[marks] = {token: mark for mark, token in last.items() if self.tokenizer.decode([token]) == mark}
        return self._known[marks]

    def _in_tokens(self, goal: int, tokens: list[int]) -> int:
        text = "" if self.unit == "tokens" else self.tokenizer.decode(tokens)
        return in_tokens(goal, self.unit, text, len(tokens))


def _chosen(logits: Tensor, random: torch.Generator, temperature: float) -> int:
    """A token by its likelihood; the likeliest at temperature 0."""
    if temperature == 0:
        return int(logits.argmax())
    best, tokens = logits.topk(TOP_K)
    return int(tokens[torch.multinomial(torch.softmax(best / temperature, -1), 1, generator=random)])
