"""How the next token is chosen."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from backend.settings.on_page import OnPage, Part


class SamplingSettings(Part):
    """Temperature and what narrows the draw, as transformers' generate has them."""

    title = "Sampling"
    hint = "how it chooses"

    temperature: Annotated[
        float, OnPage("Temperature", "How freely it chooses. 0 always takes the likeliest token.", most=2, step=0.05)
    ] = Field(0.0, ge=0, le=10, allow_inf_nan=False, description="0 is greedy")
    top_k: Annotated[
        int, OnPage("Top k", "Draws among so many likeliest tokens alone. 0 is off.", most=200, advanced=True)
    ] = Field(0, ge=0, le=1_000_000, description="0 is off")
    top_p: Annotated[
        float,
        OnPage(
            "Top p", "Draws among the likeliest tokens that have this probability together. 1 is off.",
            least=0.05, most=1, step=0.01, advanced=True,
        ),
    ] = Field(1.0, gt=0, le=1, allow_inf_nan=False)
    repetition_penalty: Annotated[
        float,
        OnPage(
            "Repetition penalty", "Above 1, tokens that were written before become less likely. 1 is off.",
            least=0.8, most=2, step=0.01, advanced=True,
        ),
    ] = Field(1.0, ge=0.1, le=10, allow_inf_nan=False, description="1 is off")
    seed: Annotated[int, OnPage("Seed", "The same seed draws the same answer again.", advanced=True)] = Field(
        0, ge=0, le=2**32 - 1
    )
