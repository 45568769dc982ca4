"""Lengths in words and characters: how they are counted, and how many tokens they will take."""
from __future__ import annotations

from dataclasses import dataclass

import regex

from backend.settings import Unit


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens per unit expected before any text is there, and the number of units at which text outweighs it."""

    tokens: float
    weight: int


# Measured with SmolLM2's tokenizer on 3,000 English answers of six open models (HelloBench): mean 1.40 tokens per
# word and 0.214 per character; the weights gave the smallest error after 5 to 40 tokens on 400 of them.
EXPECTED: dict[Unit, Rate] = {"words": Rate(1.40, 20), "characters": Rate(0.214, 100)}

# How far a length may be from its target at least, where 5 % are less.
LEAST: dict[Unit, int] = {"tokens": 3, "words": 1, "characters": 10}

# Scripts without spaces between words: of the first each sign counts, of the second ICU's dictionary knows the words.
_SIGNS = r"\p{Han}\p{Hiragana}\p{Katakana}ー"
_JOINED = r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORD = regex.compile(rf"(?P<sign>[{_SIGNS}])|(?P<joined>[{_JOINED}]+)|[^\W_](?:(?![{_SIGNS}{_JOINED}])\S)*")
_CLUSTER = regex.compile(r"\X")
# White space that joins nothing: a word ends before it, and so does a grapheme cluster.
_APART = regex.compile(r"(?<=[\p{L}\p{N}\p{P}])\s(?!\p{M})")


def words(text: str) -> int:
    """Number of words as word processors count them: runs without white space that hold a letter or a digit.

    List bullets, dashes and heading marks are not words; "well-known" and "3.14" are one each. Each Chinese character
    and each kana is one; Thai, Lao, Khmer and Burmese words are those of ICU's dictionaries (UAX 29).
    """
    return sum(_parts(found["joined"]) if found["joined"] else 1 for found in _WORD.finditer(text))


def _parts(text: str) -> int:
    # It takes a tenth of a second to be read, and few texts need it.
    from icu4py.breakers import WordBreaker

    return sum(any(map(str.isalnum, text[start:end])) for start, end in WordBreaker(text, "th").segments())


def characters(text: str) -> int:
    """Number of characters as a reader sees them: grapheme clusters (UAX 29), outer white space not counted."""
    return len(_CLUSTER.findall(text.strip()))


def length(unit: Unit, text: str, tokens: int) -> int:
    """Length of a response in `unit`. tokens: its number of tokens, EOS not counted."""
    if unit == "tokens":
        return tokens
    return words(text) if unit == "words" else characters(text)


def tolerance(target: int, unit: Unit) -> float:
    """How far a length may be from its target: 5 %, and at least 3 tokens, 1 word or 10 characters."""
    return max(LEAST[unit], 0.05 * target)


def met(produced: int, target: int, unit: Unit, limit: bool = False) -> bool:
    """Whether a length is within the tolerance of its target, or not beyond it where that is a limit."""
    return produced <= target if limit else abs(produced - target) <= tolerance(target, unit)


class Growing:
    """Length in words or characters of a text that grows by pieces.

    Where it has spaces each piece costs the same however long it is: nothing before its last word is counted again.
    """

    def __init__(self, unit: Unit) -> None:
        self._count = words if unit == "words" else lambda text: len(_CLUSTER.findall(text.rstrip()))
        self._settled = 0
        self._open = ""

    def add(self, piece: str) -> int:
        """The length once `piece` follows: that of the whole text by `length`."""
        self._open = self._open + piece if self._open else piece.lstrip()
        if apart := [found.start() for found in _APART.finditer(self._open, 0, max(0, len(self._open) - 1))]:
            self._settled += self._count(self._open[: apart[-1]])
            self._open = self._open[apart[-1] :]
        return self._settled + self._count(self._open)


def in_tokens(goal: int, unit: Unit, text: str = "", tokens: int = 0, past: bool = False) -> int:
    """Target in tokens for a goal in `unit`, estimated afresh from the response so far.

    tokens so far + remaining units × tokens per unit, where the rate runs with the text and starts from what is
    expected of English. Reaches `tokens` when the goal is met. goal: wanted length in `unit`. text, tokens: the
    response so far and its number of tokens. past: once the goal is passed, go back by as many tokens as the units
    beyond it took, so that it tells how far it is passed. Returns at least 1.
    """
    if unit == "tokens":
        return goal
    done = length(unit, text, tokens)
    if past and done > goal:
        return max(tokens - round((done - goal) * rate(unit, done, tokens)), 1)
    remaining = max(round((goal - done) * rate(unit, done, tokens)), _unfinished(goal, done, unit, text))
    return max(tokens + remaining, 1)


def rate(unit: Unit, done: int, tokens: int) -> float:
    """Tokens a unit takes, after a response of `done` units and `tokens` tokens."""
    if unit == "tokens":
        return 1.0
    expected = EXPECTED[unit]
    return (expected.tokens * expected.weight + tokens) / (expected.weight + done)


def _unfinished(goal: int, done: int, unit: Unit, text: str) -> int:
    """One token more while the last wanted word may still grow or lacks its full stop; a further word ends that."""
    return int(unit == "words" and done == goal and text[-1:].isalnum())
