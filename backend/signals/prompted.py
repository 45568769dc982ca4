"""The prompted baseline: the target is written into the prompt (000 §4)."""
from __future__ import annotations

from backend.settings import Unit, noun


def prompted(prompt: str, target: int, unit: Unit) -> str:
    """The prompt with the wanted length put in front of it, in tokens, words or characters.

    >>> prompted("Why is the sky blue?", 112, "tokens")
    'Answer the following question in 112 tokens:\\nWhy is the sky blue?'
    >>> prompted("Tell me a story.", 2000, "words")
    'Answer the following question in 2000 words:\\nTell me a story.'
    """
    return f"Answer the following question in {target} {noun(target, unit)}:\n{prompt}"
