"""How much of a response repeats itself: n-grams."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

NGRAM = 4


def ngrams(tokens: Sequence[Hashable], n: int) -> list[tuple[Hashable, ...]]:
    """All runs of n tokens of a response."""
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


def distinct(tokens: Sequence[Hashable], n: int) -> float:
    """Distinct-n (Li et al. 2016): distinct n-grams over all n-grams of a response; 1 where it has none."""
    grams = ngrams(tokens, n)
    return len(set(grams)) / len(grams) if grams else 1.0


def repetition(tokens: Sequence[Hashable]) -> float:
    """Share of the 4-grams of a response that are not its first of their kind; 0 below 4 tokens."""
    return 1 - distinct(tokens, NGRAM)


def repeated(tokens: Sequence[Hashable]) -> int:
    """Number of the 4-grams of a response that are not its first of their kind."""
    grams = ngrams(tokens, NGRAM)
    return len(grams) - len(set(grams))
