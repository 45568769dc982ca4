"""What long answers measure: lengths, ends, repetition and quality, over all answers, and by 004's own rule.

Every answer counts. One that the cap cut is known to be at least so long (see `censored`). Rows are compared answer by
answer, to the same prompts; bounds are those of draws of prompts (see `bootstrap`).
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any

import numpy as np

from backend.measures import censored
from backend.measures import length_error as scores
from backend.measures.bootstrap import bounded, difference, ratio, share

# Novels and Python's documentation repeat 1 to 12 % of their 4-grams within 6,144 tokens; an answer that goes in a
# circle for longer than it did not, more than half.
SEVERE = 0.5
# 004 (appendix A) gives no expressions: here, a passage of 10 to 300 characters five times in a row.
CIRCLE = re.compile(r"(.{10,300}?)\1{4}", re.DOTALL)
# From which share of corrupted answers on 004 compares no prompts in common (its appendix A).
MANY = 0.2


@dataclass(frozen=True)
class Answer:
    """One response.

    repetition: share of its token 4-grams that occurred before in it. ended: by itself. distinct2: different pairs of
    tokens over all. similarity: cosine of MiniLM's embeddings of it and its prompt, −1 to 1. nats: negative
    log-likelihood of its tokens under the model without a policy. wanted: words asked for. judged: what a judge said.
    text: None where it was not kept.
    """

    tokens: int
    words: int
    repetition: float
    ended: bool
    distinct2: float = 1.0
    similarity: float = 0.0
    nats: float = 0.0
    wanted: int | None = None
    judged: float | None = None
    text: str | None = None

    @property
    def corrupted(self) -> bool:
        """Severe repetition: more than half of its 4-grams occurred before. Its length has no part in it."""
        return self.repetition > SEVERE

    @property
    def corrupted_004(self) -> bool:
        """By 004's rule (appendix A): it did not end by itself, or an expression finds that it goes in a circle.

        Where the text was not kept, severe repetition stands in for the expression.
        """
        circles = self.corrupted if self.text is None else CIRCLE.search(self.text) is not None
        return not self.ended or circles


Pair = tuple[Answer, Answer]


def summary(answers: Iterable[Answer], reference: Iterable[Answer] = ()) -> dict[str, float | None]:
    """Measures of the answers of a row, at least one, and of all of them over those of the reference (`beside`).

    answers: how many count, which is all. words_half: the length that half of them exceed, by Kaplan and Meier, None
    beyond the cap. s_l: LongBench-Write's length score, over the `lengths_asked` prompts that ask for one; judged:
    over the `judged_answers` that a judge was asked about. …_low, …_high: 95 %.
    """
    found = list(answers)
    words, ended = [a.words for a in found], [a.ended for a in found]
    pairs = [(a.words, a.wanted) for a in found if a.wanted]
    judged = [a.judged for a in found if a.judged is not None]
    nats = sum(a.nats for a in found) / max(1, sum(a.tokens for a in found))
    return {
        "answers": len(found),
        "texts_kept": sum(a.text is not None for a in found),
        "tokens_mean": statistics.mean(a.tokens for a in found),
        "tokens_median": statistics.median(a.tokens for a in found),
        "words_mean": statistics.mean(words),
        "words_median": statistics.median(words),
        **censored.median(words, ended).keys("words_half"),
        **share(sum(ended), len(found)).keys("ended"),
        **share(sum(a.corrupted for a in found), len(found)).keys("corrupted"),
        **share(sum(a.corrupted_004 for a in found), len(found)).keys("corrupted_004"),
        "repetition_mean": statistics.mean(a.repetition for a in found),
        "distinct2": statistics.mean(a.distinct2 for a in found),
        "similarity": statistics.mean(a.similarity for a in found),
        "perplexity": exp(nats),
        **beside(found, reference),
        **({"s_l": scores.s_l(pairs), "lengths_asked": len(pairs)} if pairs else {}),
        **({"judged": statistics.mean(judged), "judged_answers": len(judged)} if judged else {}),
    }


def beside(answers: Iterable[Answer], reference: Iterable[Answer]) -> dict[str, float | None]:
    """Answers over a reference's to the same prompts, `compared` in number, nothing left out.

    lengthening: mean words to mean words. restricted_mean: no answer counts more than `horizon` words, the largest
    length to which both rows are known; restricted_ratio: to that of the reference. ended_more: difference of the
    shares that ended by themselves. …_ratio: quality to quality. lengthening_004: see `_as_004`.
    """
    pairs = list(zip(answers, reference, strict=False))
    if not pairs:
        return {"compared": 0}
    horizon = min(max(a.words for a in side) for side in zip(*pairs, strict=True))
    found = {
        "lengthening": ratio(*_columns(pairs, "words")),
        "restricted_mean": bounded(
            lambda words, ended: censored.restricted_mean(words, ended, horizon),
            *_columns(pairs, "words", "ended")[::2], vectorized=False,
        ),
        "restricted_ratio": bounded(_restricted(horizon), *_columns(pairs, "words", "ended"), vectorized=False),
        "ended_more": difference(*_columns(pairs, "ended")),
        **{f"{key}_ratio": ratio(*_columns(pairs, key)) for key in ("distinct2", "similarity")},
        "perplexity_ratio": bounded(_perplexities, *_columns(pairs, "nats", "tokens")),
    }
    columns = {key: value for name, each in found.items() for key, value in each.keys(name).items()}
    return {"compared": len(pairs), "horizon": horizon, **columns, **_as_004(pairs)}


def _columns(pairs: Sequence[Pair], *keys: str) -> list[list[float]]:
    """Of each key our values, then theirs."""
    return [[float(getattr(pair[side], key)) for pair in pairs] for key in keys for side in (0, 1)]


def _perplexities(nats: Any, their_nats: Any, tokens: Any, their_tokens: Any, axis: int) -> Any:
    ours, theirs = nats.sum(axis) / tokens.sum(axis), their_nats.sum(axis) / their_tokens.sum(axis)
    return np.exp(ours - theirs)


def _restricted(horizon: float) -> Any:
    def statistic(words: Any, their_words: Any, ended: Any, their_ended: Any) -> float:
        ours = censored.restricted_mean(words, ended, horizon)
        theirs = censored.restricted_mean(their_words, their_ended, horizon)
        return ours / theirs if theirs else np.nan

    return statistic


def _as_004(pairs: Sequence[Pair]) -> dict[str, float | None]:
    """Lengthening as 004 compares rows (appendix A): over the prompts that neither answered corruptly by its rule, or
    each over its own uncorrupted answers where more than a fifth of either's are corrupted. compared_004: the prompts,
    or the answers of the row that has fewer."""
    whole = [[not a.corrupted_004 for a in side] for side in zip(*pairs, strict=True)]
    if all(np.mean(side) >= 1 - MANY for side in whole):
        shared = [pair for pair, *both in zip(pairs, *whole, strict=True) if all(both)]
        found, count = ratio(*_columns(shared, "words")), len(shared)
    else:
        found = bounded(_own_means, *_columns(pairs, "words"), *whole)
        count = min(map(sum, whole))
    return found.keys("lengthening_004") | {"compared_004": count}


def _own_means(words: Any, their_words: Any, whole: Any, their_whole: Any, axis: int) -> Any:
    ours = (words * whole).sum(axis) / whole.sum(axis)
    return ours / ((their_words * their_whole).sum(axis) / their_whole.sum(axis))
