"""The base model beside a run: what it would have expected without the run's adapter and length signal, and without its
target where the prompt does not say it.

It judges whether a text ends: of a sentence's end that a count alone asks for, it knows nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from backend.inference.chunks import sizes
from backend.inference.kv_cache import FramedCache
from backend.inference.scheduler import Read
from backend.positions import PositionPolicy
from backend.text.sentences import mark

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from backend.inference.model_runner import Runner


# Tails that are read in one step: others write meanwhile, and the logits of all their tokens are kept for so long.
TOGETHER = 4
# The base model's probability of a sentence's mark from which on it would have ended the sentence as well.
PROBABLE = 0.05
_LINE_ENDS: MutableMapping[PreTrainedTokenizerBase, list[int]] = WeakKeyDictionary()


class End(NamedTuple):
    """What a model says of a text's end. p_mark: probability of the token that holds the last sentence's mark, None
    without a mark. p_eos, p_line: of EOS, and of EOS or a line's end, after the whole."""

    p_mark: float | None
    p_eos: float
    p_line: float

    @property
    def probable(self) -> float:
        """How likely the model's own text would end so: by its mark, or where there is none by EOS or a line's end."""
        return self.p_line if self.p_mark is None else self.p_mark


def end_of(
    tokenizer: PreTrainedTokenizerBase, ends: Sequence[int], ids: Sequence[int], likely: Tensor, known: int = 0
) -> End:
    """What a model says of the end of a response. ends: ids of EOS. ids: the response's tokens.

    likely: log-probabilities [len(ids) + 1 − known, vocabulary], row i of what it expects after known + i ids. A mark
    among the first `known` ids counts as none.
    """
    place = mark(tokenizer.decode(ids, skip_special_tokens=True))
    token = None if place is None else written_by(tokenizer, ids, place)
    p_eos = float(likely[-1, list(ends)].exp().sum())
    return End(
        None if token is None or token < known else float(likely[token - known, ids[token]].exp()),
        p_eos,
        p_eos + float(likely[-1, line_ends(tokenizer)].exp().sum()),
    )


def written_by(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], place: int) -> int:
    """The token that writes the character at `place` of the text."""
    last = len(ids) - 1
    while last and len(tokenizer.decode(ids[:last], skip_special_tokens=True)) > place:
        last -= 1
    return last


def line_ends(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Ids of the tokens that begin with a line's end."""
    if tokenizer not in _LINE_ENDS:
        texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
        _LINE_ENDS[tokenizer] = [token for token, text in enumerate(texts) if text.startswith("\n")]
    return _LINE_ENDS[tokenizer]


class BaseModel:
    """The base model that reads a run's tokens.

    prompt [n]: ids that ask for no length. ends: ids of EOS. room: most tokens in all. stopped: whether the run is to
    end.
    """

    def __init__(
        self, runner: Runner, policy: PositionPolicy, tokenizer: PreTrainedTokenizerBase, ends: Sequence[int],
        prompt: Tensor, room: int, stopped: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self._runner, self._policy, self._prompt, self._room = runner.beside(None), policy, prompt, room
        self._tokenizer, self._ends, self._stopped = tokenizer, [*ends], stopped
        # It takes a while, which the loop of all runs does not have.
        line_ends(tokenizer)
        self._cache: FramedCache | None = None
        self._next = torch.empty(0)

    def judge(
        self, thought: Sequence[int], answer: Sequence[int], tails: Sequence[Sequence[int]]
    ) -> Generator[Read | list[Read], Any, list[tuple[End, float]]]:
        """What it says of the end of an answer that goes on with each of the tails, and the nats of the tail's tokens.
        thought: tokens before the answer. None of a run that is to end. Some tails are read in one step."""
        found: list[tuple[End, float]] = []
        cache = yield from self._follow([*thought, *answer])
        for place in range(0, len(tails), TOGETHER):
            some = tails[place : place + TOGETHER]
            reads = [Read(torch.tensor(tail), copy.deepcopy(cache), every=True) for tail in some if tail]
            rows = iter((yield reads) if reads else ())
            if self._stopped():
                return []
            found += [self._judged(answer, tail, next(rows) if tail else None) for tail in some]
        return found

    def _judged(self, answer: Sequence[int], tail: Sequence[int], rows: Tensor | None) -> tuple[End, float]:
        """rows [len(tail), vocabulary]: logits after each of its tokens."""
        every = self._next[None] if rows is None else torch.cat([self._next[None], rows])
        likely = torch.log_softmax(every.cpu(), -1)
        end = end_of(self._tokenizer, self._ends, [*answer, *tail], likely, len(answer))
        return end, -float(likely[range(len(tail)), list(tail)].sum())

    def _follow(self, written: Sequence[int]) -> Generator[Read, Tensor, FramedCache]:
        """Read what was written since, or a part of it where the run is to end."""
        cache = self._cache = self._cache or self._runner.cache(self._policy, self._room)
        rest = torch.cat([self._prompt, torch.tensor(written, dtype=self._prompt.dtype)])[cache.length :]
        pieces = sizes(cache.length, len(rest), self._policy.window, self._runner.chunk)
        for ids in rest.split(pieces) if len(rest) else ():
            if self._stopped():
                break
            self._next = yield Read(ids, cache)
        return cache
