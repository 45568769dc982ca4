"""The words of an English text, and those that only lead to others."""

from __future__ import annotations

import re

# Articles, prepositions and conjunctions, after which more is to come.
FUNCTION_WORDS = frozenset(
    "a an the about above across after against along amid among around as at before behind below beneath beside "
    "besides between beyond but by concerning despite down during except for from in inside into like near of off on "
    "onto out outside over past per plus since than through throughout to toward towards under underneath unlike "
    "until up upon versus via with within without and or nor so yet although because if lest though unless when "
    "whenever where whereas wherever whether while that which who whose its your their this these those".split()
)
WORD = re.compile(r"[\w][\w+#.'’/-]*", re.UNICODE)


def spoken(text: str) -> list[str]:
    """The words of a text in small letters, without marks at their ends."""
    return [word.rstrip(".'’/-").lower() for word in WORD.findall(text)]
