"""Lists that a text announces."""

from __future__ import annotations

import re

NUMBERS = {
    word: number
    for number, word in enumerate("two three four five six seven eight nine ten eleven twelve".split(), 2)
} | {str(number): number for number in range(2, 31)}
ANNOUNCED = re.compile(rf"\b({'|'.join(NUMBERS)})\b(?: [\w'’-]+){{1,8}}:\s*$", re.IGNORECASE | re.MULTILINE)
ITEM = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+\S", re.MULTILINE)


def whole_list(text: str) -> bool:
    """Whether a list has as many items as the line before it announces; True where none does.

    >>> whole_list("Here are three ways:\\n1. Walk.\\n2. Swim.")
    False
    """
    for line in ANNOUNCED.finditer(text):
        if len(ITEM.findall(text[line.end() :])) < NUMBERS[line[1].lower()]:
            return False
    return True
