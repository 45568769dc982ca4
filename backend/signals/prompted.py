"""The prompted baseline: the target is written into the prompt (000 §4)."""
from __future__ import annotations

from backend.settings import Unit, counted


def prompted(prompt: str, target: int, unit: Unit) -> str:
    """The prompt with the wanted length put in front of it, in tokens, words or characters.

    >>> prompted("Why is the sky blue?", 112, "tokens")
    'Answer the following question in 112 tokens:\\nWhy is the sky blue?'
    """
    return f"Answer the following question in {counted(target, unit)}:\n{prompt}"
