"""Landing: near its target a response is tried to its end in several ways, and written the one that ends best.

Not from the papers. A model that reads a count knows when to stop, but a small one does not plan its last sentence to
end just there. So its last one or two sentences are tried in several ways on copies of the cache. Where one of them
ends a sentence within the tolerance of the target, the count is set to that place, and the try is an ending if the
model then draws EOS. Of the endings the one that the base model finds likeliest is written, which knows of no count and
would have ended the sentence there as well. Where it would not end the whole answer after any of them, more are tried:
readers take most texts for complete after which it expects EOS, and few others. Tries are read in the same steps.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, cycle, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from backend.inference.base_model import PROBABLE, BaseModel, End
from backend.inference.embedding import SignalContext
from backend.inference.kv_cache import FramedCache
from backend.inference.scheduler import Read, together
from backend.measures.overlap import repeated
from backend.settings import MAX_LANDING, Unit
from backend.steps import TriedEnding
from backend.text.finite import check_finite
from backend.text.lists import whole_list
from backend.text.sentences import final
from backend.text.units import in_tokens, length, rate, tolerance

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


# Tokens before the target at which endings are tried: where a sentence begins, and at the latest.
REACH, LATEST = 48, 32
# Tokens after which more endings are tried, where none fitted; nearer to the target than that are the last.
PAUSE = 12
# Beyond the tolerance a last try may go on for so many tokens, and within it for so many that add no word or character,
# as marks and empty lines do.
SLACK, STILL = 8, 24
TEMPERATURES = (0.5, 0.7, 0.9, 1.1)
TOP_K = 20
# Of endings that fit: what EOS weighs beside a token, and nats that a repeated 4-gram costs.
EOS_WEIGHT, REPEATED, LEAST = 3.0, 4.0, 1e-9
# Endings that the base model judges, the most hopeful first, and those that a run tells of.
JUDGED = 16
SHOWN = 16


class Ending(NamedTuple):
    """A way to end.

    tokens: what leads there. aims: the target in tokens under which each of them is read. text: of the whole answer.
    miss: how far it is from the target, in tokens; near: within the tolerance. own: the model drew EOS there.
    repeats: how many of its 4-grams the answer has had before. end: what the base model says of it, None where it was
    not asked; nats: of the tokens under the base model.
    """

    tokens: list[int]
    aims: list[int]
    text: str
    miss: float
    near: bool
    repeats: int
    own: bool = False
    end: End | None = None
    nats: float = 0.0

    @property
    def fits(self) -> bool:
        """Whether a reader would take it for an end, of the length asked for."""
        probable = self.end is not None and self.end.probable >= PROBABLE
        return self.near and self.own and probable and whole_list(self.text)

    @property
    def complete(self) -> bool:
        """Whether it fits, and the base model would end the whole answer there too."""
        return self.fits and self.p_eos >= PROBABLE

    @property
    def p_eos(self) -> float:
        """The base model's probability that the answer ends there, 0 where it was not asked."""
        return self.end.p_eos if self.end is not None else 0.0

    @property
    def rank(self) -> tuple[bool, bool, float, bool, float]:
        """The lower, the better. Under the base model EOS counts more than any other token, and what repeats the answer
        gains nothing from being likely."""
        unlikely = self.nats - EOS_WEIGHT * math.log(self.p_eos + LEAST) + REPEATED * self.repeats
        return not self.fits, not self.complete, 0.0 if self.near else self.miss, not self.own, unlikely


class Fork(NamedTuple):
    """Where a response may go on in several ways.

    logits: of its next token. written: the answer's tokens; thought: those of thinking before them. goal, limit: in the
    unit; no try goes on past the limit.
    """

    logits: Tensor
    cache: FramedCache
    signal: SignalContext | None
    written: list[int]
    thought: list[int]
    goal: int
    limit: int | None = None


@dataclass
class Landing:
    """The last tokens of one run.

    tries: continuations written at first, one of them greedy; twice as many where these find no end. unit: what the
    goal counts. cap: most tokens in all. stopped: whether the run is to end. planned: whether an end was found and is
    being written. own: whether the model drew EOS there by itself. aim: the target in tokens under which the token
    given last is to be read.
    """

    tokenizer: PreTrainedTokenizerBase
    ends: Sequence[int]
    base: BaseModel
    tries: int
    seed: int
    unit: Unit
    cap: int
    stopped: Callable[[], bool]
    planned: bool = False
    own: bool = False
    aim: int | None = None
    _goal: int | None = None
    _plan: list[tuple[int, int | None]] = field(default_factory=list)
    _tried: list[int] = field(default_factory=list)
    _over: bool = False
    _endings: tuple[TriedEnding, ...] | None = None

    def token(self, fork: Fork) -> Generator[Read | list[Read], Any, int | None]:
        """The token to write next, None while the end is far or cannot be found."""
        if fork.goal != self._goal:
            # Ends near an earlier goal are none of this one's.
            self._endings = () if self._tried else None
            self._goal, self._plan, self._tried, self._over, self.planned = fork.goal, [], [], False, False
        if not self._plan and self._due(fork):
            endings, best = yield from self._best(fork)
            written = best.text.strip() if best is not None else None
            shown = sorted(endings, key=lambda ending: (ending.text.strip() != written, ending.rank))[:SHOWN]
            self._endings = tuple(
                self._tried_ending(fork, ending, ending.text.strip() == written) for ending in shown
            )
            self._tried.append(len(fork.written))
            self.planned = best is not None
            if best is not None:
                self.own = best.own
                self._plan = [*zip(best.tokens, best.aims, strict=True), (self.ends[0], None)]
        if not self._plan:
            self.aim = None
            return None
        token, self.aim = self._plan.pop(0)
        return token

    def taken(self) -> tuple[TriedEnding, ...] | None:
        """The endings tried since this was asked last, None where nothing was tried."""
        endings, self._endings = self._endings, None
        return endings

    def _due(self, fork: Fork) -> bool:
        """Whether the target is near, and endings were not just tried in vain."""
        left = self._left(fork)
        if self._tried:
            since = len(fork.written) - self._tried[-1]
            return not self._over and (since >= PAUSE or left <= 0 < since)
        return left <= LATEST or (left <= REACH and (not fork.written or final(self._text(fork.written))))

    @property
    def done(self) -> bool:
        """Whether nothing but EOS is left to write."""
        return self.planned and len(self._plan) == 1

    def _best(self, fork: Fork) -> Generator[Read | list[Read], Any, tuple[list[Ending], Ending | None]]:
        """The endings of different texts that were tried, and the best: near the target the best there is; before, one
        that fits or none."""
        times, last = len(self._tried), self._left(fork) < PAUSE
        warmth = chain((0.0,), cycle(TEMPERATURES))
        seeds = count(self.seed + 2 * MAX_LANDING * times)
        tried: dict[str, Ending] = {}
        endings: list[Ending] = []
        best = None
        for more in ([] if times else [self.tries]) + [widest(self.tries)]:
            found = yield from together([
                self._try(fork, torch.Generator().manual_seed(seed), temperature)
                for seed, temperature in zip(seeds, islice(warmth, more), strict=False)
            ])  # fmt: skip
            new = distinct(chain.from_iterable(found))
            hopeful = [each for each in new if last or (each.near and each.own)]
            judged = yield from self._judged(fork, hopeful[:JUDGED])
            endings += judged
            # What the base model said of an end stays known, whoever comes to it again.
            tried = {each.text.strip(): each for each in reversed(new)} | tried
            tried |= {each.text.strip(): each for each in judged}
            best = min(endings, key=lambda ending: ending.rank, default=None)
            if self.stopped() or (best is not None and best.complete):
                break
        self._over = last
        return [*tried.values()], best if best is None or best.fits or last else None

    def _judged(self, fork: Fork, endings: Sequence[Ending]) -> Generator[Read | list[Read], Any, list[Ending]]:
        """The same with what the base model says of them."""
        if self.stopped() or not endings:
            return []
        judged = yield from self.base.judge(fork.thought, fork.written, [ending.tokens for ending in endings])
        return [ending._replace(end=end, nats=nats) for ending, (end, nats) in zip(endings, judged, strict=False)]

    def _try(self, fork: Fork, random: torch.Generator, temperature: float) -> Generator[Read, Tensor, list[Ending]]:
        """The sentences' ends near the target on one continuation, up to the first at which the model draws EOS."""
        logits, cache, signal = fork.logits, copy.deepcopy(fork.cache), copy.copy(fork.signal)
        tokens, text, ends = [*fork.written], self._text(fork.written), torch.tensor(self.ends)
        high = round(fork.goal + tolerance(fork.goal, self.unit))
        aims: list[int] = []
        found: list[Ending] = []
        longest, grown = 0, len(tokens)
        # It may have ended already.
        ending = self._ending(fork, tokens, aims, text, len(tokens)) if tokens else None
        while True:
            check_finite(logits)
            # On the CPU the same draws on every device.
            likely = torch.log_softmax(logits.cpu(), -1)
            token = _chosen(likely, random, temperature)
            if ending is not None:
                found.append(ending._replace(own=token in self.ends))
                if found[-1].own and ending.near:
                    return found
            # A target that was passed is ended as soon as it can be.
            most = max(in_tokens(high, self.unit, text, len(tokens)), len(fork.written))
            passed = max(in_tokens(high, self.unit, text, len(tokens), past=True), len(fork.written))
            if len(tokens) >= min(passed + SLACK, grown + STILL, self.cap) or self.stopped():
                return found
            # EOS amid a sentence, which the count asks for near the goal, would leave nothing to choose from.
            if token in self.ends:
                token = _chosen(likely.index_fill(0, ends, -torch.inf), random, temperature)
            tokens.append(token)
            text = self._text(tokens)
            if (done := length(self.unit, text, len(tokens))) > longest:
                longest, grown = done, len(tokens)
            if fork.limit is not None and done > fork.limit:
                return found
            ending = self._ending(fork, tokens, aims, text, max(1, most))
            aims.append(ending.aims[-1] if ending is not None else max(1, most))
            if signal is not None:
                signal.end_at(aims[-1])
            logits = yield Read(torch.tensor([token]), cache, None, signal)

    def _ending(self, fork: Fork, tokens: list[int], aims: list[int], text: str, aim: int) -> Ending | None:
        """The end that a continuation has come to; None amid a sentence or far from the target. aim: of its last token,
        unless it is near."""
        done, margin, before = length(self.unit, text, len(tokens)), tolerance(fork.goal, self.unit), len(fork.written)
        each, miss = rate(self.unit, done, len(tokens)), abs(done - fork.goal)
        if (fork.goal - done - margin) * each > SLACK or not final(text):
            return None
        repeats, near, tail = repeated(tokens) - repeated(fork.written), miss <= margin, tokens[before:]
        return Ending(tail, [*aims, len(tokens) if near else aim][: len(tail)], text, miss * each, near, repeats)

    def _tried_ending(self, fork: Fork, ending: Ending, chosen: bool) -> TriedEnding:
        done = length(self.unit, ending.text, len(fork.written) + len(ending.tokens))
        text, end = ending.text[len(self._text(fork.written)) :], ending.end
        shown = TriedEnding(text, done, ending.near, ending.own, None, None, None, chosen)
        return shown if end is None else replace(shown, p_end=end.probable, p_eos=end.p_eos, nats=ending.nats)

    def _left(self, fork: Fork) -> int:
        """Tokens to the target."""
        text = "" if self.unit == "tokens" else self._text(fork.written)
        return in_tokens(fork.goal, self.unit, text, len(fork.written)) - len(fork.written)

    def _text(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True)


def widest(tries: int) -> int:
    """Most continuations that are written at a time, where the first tries found no end."""
    return min(2 * tries, MAX_LANDING)


def distinct(endings: Iterable[Ending]) -> list[Ending]:
    """The endings of different tokens, the most hopeful first."""
    found: dict[tuple[int, ...], Ending] = {}
    for ending in sorted(endings, key=lambda ending: (not ending.near, not ending.own, ending.miss)):
        found.setdefault(tuple(ending.tokens), ending)
    return [*found.values()]


def _chosen(logits: Tensor, random: torch.Generator, temperature: float) -> int:
    """A token by its likelihood; the likeliest at temperature 0."""
    if temperature == 0:
        return int(logits.argmax())
    best, tokens = logits.topk(TOP_K)
    return int(tokens[torch.multinomial(torch.softmax(best / temperature, -1), 1, generator=random)])
