"""The base model beside a run: what it would have expected, without the run's adapter, length signal and target.

It judges whether a text ends: of a sentence's end that a count alone asks for, it knows nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from backend.inference.chunks import sizes
from backend.inference.scheduler import Read
from backend.positions import PositionPolicy
from backend.text.sentences import mark

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from backend.inference.model_runner import Runner


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
    token = None if place is None else _writes(tokenizer, ids, place)
    p_eos = float(likely[-1, list(ends)].exp().sum())
    return End(
        None if token is None or token < known else float(likely[token - known, ids[token]].exp()),
        p_eos,
        p_eos + float(likely[-1, _line_ends(tokenizer)].exp().sum()),
    )


def _writes(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], place: int) -> int:
    """The token that writes the character at `place` of the text."""
    last = len(ids) - 1
    while last and len(tokenizer.decode(ids[:last], skip_special_tokens=True)) > place:
        last -= 1
    return last


@cache
def _line_ends(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Ids of the tokens that begin with a line's end."""
    texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
    return [token for token, text in enumerate(texts) if text.startswith("\n")]


class BaseModel:
    """The base model that reads a run's tokens. prompt [n]: ids that ask for no length. room: most tokens in all."""

    def __init__(self, runner: Runner, policy: PositionPolicy, prompt: Tensor, room: int) -> None:
        self._policy, self._prompt = policy, prompt
        self._cache = runner.beside(None).cache(policy, room)
        self._next = torch.empty(0)

    def judge(
        self, written: Sequence[int], tails: Sequence[Sequence[int]]
    ) -> Generator[Read | list[Read], Any, list[Tensor]]:
        """Log-probabilities [len(tail) + 1, vocabulary] of what may follow what is written, and each token of a tail
        after it, for each of the tails. They are read in the same steps."""
        if not tails:
            return []
        yield from self._follow(written)
        found = yield [Read(torch.tensor(tail), copy.deepcopy(self._cache), every=True) for tail in tails]
        return [torch.log_softmax(torch.cat([self._next[None], rows]).cpu(), -1) for rows in found]

    def _follow(self, written: Sequence[int]) -> Generator[Read, Tensor, None]:
        """Read what was written since."""
        read = self._cache.length
        rest = torch.cat([self._prompt, torch.tensor(written, dtype=self._prompt.dtype)])[read:]
        for ids in rest.split(sizes(read, len(rest), self._policy.window)) if len(rest) else ():
            self._next = yield Read(ids, self._cache)
