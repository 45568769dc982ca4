"""Whether a headline ends as one that an editor would keep: the joint rate of encoder-decoders."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from backend.evaluation.quality import stemmed
from backend.text.words import FUNCTION_WORDS, spoken

TOLERANCE, CHANCE = 1, 0.05
# Of the references 0.4 % say more than one word again, and 5.5 % take fewer of their words from the source.
AGAIN, OF_SOURCE = 1, 1 / 3
PAIRS = {")": "(", "]": "[", "}": "{"}


def complete(text: str, known: Collection[str]) -> bool:
    """Whether a headline's last word is whole and lets it end, and no bracket or quote stays open.

    known: the words of its source, and of a dictionary, as `spoken` gives them.
    """
    words = spoken(text)
    if not words or not text.strip() or text.rstrip()[-1] in "-–—,:;/&+(":
        return False
    return words[-1] in known and words[-1] not in FUNCTION_WORDS and _closed(text)


def _closed(text: str) -> bool:
    still_open: list[str] = []
    for mark in text:
        if mark in PAIRS.values():
            still_open.append(mark)
        elif mark in PAIRS and (not still_open or still_open.pop() != PAIRS[mark]):
            return False
    return not still_open and text.count('"') % 2 == 0 and text.count("“") == text.count("”")


def sensible(text: str, source: str) -> bool:
    """Whether a headline says no more than one of its words again, and takes a third of them from its source; stems
    count, and articles, prepositions and conjunctions do not."""
    said = [stemmed(word) for word in spoken(text) if word not in FUNCTION_WORDS]
    of_source = {stemmed(word) for word in spoken(source)}
    different = set(said)
    return len(said) - len(different) <= AGAIN and len(different & of_source) >= OF_SOURCE * max(1, len(different))


def joint(text: str, ended: bool, target: int, chance: float, known: Collection[str], source: str) -> bool:
    """Length within a character, an end that was drawn, a complete and sensible headline, and a model without control
    that would end there with at least 5 % chance."""
    fits = ended and abs(len(text) - target) <= TOLERANCE and chance >= CHANCE
    return fits and complete(text, known) and sensible(text, source)


def reranked(texts: Sequence[str], source: str) -> int:
    """The place of the text with most of the source's words, stemmed; the first of several (001 §3.4)."""
    of_source = {stemmed(word) for word in spoken(source)}
    counts = [len(of_source & {stemmed(word) for word in spoken(text)}) for text in texts]
    return counts.index(max(counts))
