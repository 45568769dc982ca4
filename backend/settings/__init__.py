"""The settings of one run: one typed, validated object shared by the page, Python, the CLI and the API.

One file holds the settings of one thing. A field has its range, its default, its words for the terminal and the API,
and beside them its control on the page.
"""

from __future__ import annotations

from pydantic import model_validator

from backend.settings.length import (
    CAP,
    LANDING,
    MAX_LANDING,
    MAX_NEW_TOKENS,
    MAX_TARGET,
    LengthSettings,
    Method,
    Unit,
    cap_for,
    counted,
    noun,
    signed,
)
from backend.settings.model import ModelSettings, Precision, Watch
from backend.settings.position import MAX_WINDOW, Pic, PositionSettings, VariantSettings, WindowSettings
from backend.settings.prompt import MAX_PROMPT_CHARS, MAX_TURNS, PromptSettings, Turn
from backend.settings.sampling import SamplingSettings

__all__ = [
    "CAP", "LANDING", "MAX_LANDING", "MAX_NEW_TOKENS", "MAX_PROMPT_CHARS", "MAX_TARGET", "MAX_TURNS",
    "MAX_WINDOW", "LengthSettings", "Method", "ModelSettings", "Pic", "PositionSettings", "Precision", "PromptSettings",
    "RunSettings", "SamplingSettings", "Turn", "Unit", "VariantSettings", "Watch", "WindowSettings", "cap_for",
    "counted", "noun", "signed",
]  # fmt: skip


# pydantic takes the fields of the last part first.
class RunSettings(
    SamplingSettings, WindowSettings, VariantSettings, PositionSettings, LengthSettings, ModelSettings, PromptSettings
):
    """Everything that decides a run's output: the sum of its parts, and what is watched. Frozen; invalid values raise
    with a sentence that says what to do."""

    watch: Watch = Watch()

    @model_validator(mode="after")
    def _combination_makes_sense(self) -> RunSettings:
        if self.prefill == "paper" and self.window is not None:
            raise ValueError(
                "one frame for the whole prompt (prefill 'paper') cannot be windowed: let each row have its own "
                "(prefill 'row_exact'), or choose no window"
            )
        return self
