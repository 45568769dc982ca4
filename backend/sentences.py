"""Where sentences end: places at which a response may be cut, and whether it ended like one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FINAL = re.compile(r"[.!?…][\"'”’)\]*_`]*\s*$")
NUMBERED = re.compile(r"(?:^|\n)\s*(?:[-*#>]+\s*)?(?:\d{1,3}|[A-Za-z]|[ivxIVX]+)\.\s*$")
ABBREVIATED = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|St|vs|etc|e\.g|i\.e|No|Fig|al|Inc|Jr|U\.S|[A-Z]))\.$")


def final(text: str) -> bool:
    """Whether a text ends as a sentence does, the marker of a list's item aside.

    >>> final("It rains."), final("Here is why:"), final("First.\\n2.")
    (True, False, False)
    """
    return bool(FINAL.search(text)) and not NUMBERED.search(text)


def sentences(text: str) -> list[str]:
    """The sentences of a text, stripped; a line ends one too.

    >>> sentences("It rains. Dr. Low stays\\nat home.")
    ['It rains.', 'Dr. Low stays', 'at home.']
    """
    text = text.strip()
    found, start = [], 0
    for space in re.finditer(r"\s+|$", text):
        piece = text[start : space.start()]
        if "\n" in space[0] or not space[0] or (final(piece) and not ABBREVIATED.search(piece)):
            found.append(piece)
            start = space.end()
    return found if text else []


def sentence_lengths(tokens: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Numbers of leading tokens after which a sentence ends, ascending; the whole is among them if it ends as one."""
    pieces = [tokenizer.decode([token]) for token in tokens]
    found, text = [], ""
    for index, piece in enumerate(pieces):
        text += piece
        following = pieces[index + 1] if index + 1 < len(pieces) else "\n"
        if following[:1].isspace() and final(text) and not ABBREVIATED.search(text.rstrip()):
            found.append(index + 1)
    return found
