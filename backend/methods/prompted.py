"""The prompted baseline: the target is written into the prompt (000 §4)."""
from __future__ import annotations

from backend.methods.base import LengthMethod


class Prompted(LengthMethod):
    name = "prompted"
    label = "In the prompt"
    summary = "The target is written into the prompt."
    paper = "000 §4"
    order = 10

    def prompt(self, text: str, wanted: str) -> str:
        """The prompt with the wanted length put in front of it.

        >>> Prompted().prompt("Why is the sky blue?", "112 tokens")
        'Answer the following question in 112 tokens:\\nWhy is the sky blue?'
        """
        return f"Answer the following question in {wanted}:\n{text}"


class PromptedTuned(Prompted):
    name = "prompted_tuned"
    label = "In the prompt, trained"
    summary = "The target is written into the prompt of a model that was trained to heed it."
    order = 20
    adapter = True
    recipe = ("{answers} --method prompted_tuned --samples 700 --out assets/adapters/prompted_tuned",)
