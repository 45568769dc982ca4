"""What a sampled answer is worth to the person who asked for its length: the joint rule of design §12, and more.

An answer of another length, or without EOS of its own, is worth nothing. One that is cut where the target is reached is
worth CUT; one that ends as the base model would end a sentence, more; one after which the base model too would end the
answer, 1. What it repeats is taken off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cache
from math import exp
from typing import TYPE_CHECKING, Any, TypeVar

from backend.inference.base_model import PROBABLE, End, written_by
from backend.inference.responses import Response
from backend.measures.overlap import repetition
from backend.text.lists import whole_list
from backend.text.sentences import final, mark
from backend.text.units import met

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CUT, SENTENCE = 0.3, 0.65
# Of whole answers to learn from: tokens at least, and the share of repeated 4-grams at most.
SHORTEST, REPEATED = 3, 0.2
# Answers that a worker judges in one go.
SHARE = 64
T = TypeVar("T")


@dataclass(frozen=True)
class Judged:
    """An answer as the joint rule sees it; worth: from below 0 to 1."""

    in_length: bool
    own_end: bool
    real_end: bool
    p_eos: float
    repetition: float
    nats: float
    tokens: int

    @property
    def joint(self) -> bool:
        return self.in_length and self.own_end and self.real_end

    @property
    def worth(self) -> float:
        if not (self.in_length and self.own_end):
            return -self.repetition / 2
        further = SENTENCE + (1 - SENTENCE) * min(1.0, self.p_eos / PROBABLE) if self.real_end else CUT
        return further - self.repetition / 2


@dataclass(frozen=True)
class Sampled:
    """An answer with its target, both in tokens, and what the base model says of it: the log-probability of each token,
    and the probabilities of EOS and of EOS or a line's end after the whole."""

    tokens: list[int]
    ended: bool
    target: int
    likely: list[float]
    p_eos: float
    p_line: float


def _judged(tokenizer: PreTrainedTokenizerBase, answer: Sampled) -> Judged:
    """An answer by the rule of `backend.evaluation.joint`."""
    text = tokenizer.decode(answer.tokens, skip_special_tokens=True)
    place = mark(text)
    p_mark = None if place is None else exp(answer.likely[written_by(tokenizer, answer.tokens, place)])
    end = End(p_mark, answer.p_eos, answer.p_line)
    return Judged(
        in_length=met(len(answer.tokens), answer.target, "tokens"),
        own_end=answer.ended,
        real_end=bool(answer.tokens) and end.probable >= PROBABLE and whole_list(text),
        p_eos=answer.p_eos,
        repetition=repetition(answer.tokens),
        nats=-sum(answer.likely),
        tokens=len(answer.tokens),
    )


def all_judged(source: str, answers: Sequence[Sampled], workers: Executor) -> list[Judged]:
    """The same of many, by processes. source: what transformers loads the tokenizer from."""
    return _by_shares(_judged, source, answers, workers)


def all_texts(source: str, answers: Sequence[Response], workers: Executor) -> list[str | None]:
    """Of each answer that ended by itself, as a sentence, and does not repeat itself, the text; None of others."""
    return _by_shares(_text, source, answers, workers)


def _by_shares(each: Callable[[Any, Any], T], source: str, rows: Sequence[Any], workers: Executor) -> list[T]:
    shares = [rows[start : start + SHARE] for start in range(0, len(rows), SHARE)]
    count = len(shares)
    return [one for share in workers.map(_share, [each] * count, [source] * count, shares) for one in share]


def _share(each: Callable[[Any, Any], T], source: str, rows: Sequence[Any]) -> list[T]:
    return [each(_tokenizer(source), row) for row in rows]


def _text(tokenizer: PreTrainedTokenizerBase, answer: Response) -> str | None:
    if not answer.ended or len(answer.tokens) < SHORTEST or repetition(answer.tokens) > REPEATED:
        return None
    text = tokenizer.decode(answer.tokens)
    return text if final(text) else None


@cache
def _tokenizer(source: str) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(source)
