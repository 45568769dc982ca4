"""How far apart tokens seem, and how far the model looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_validator

from backend.positions import policies
from backend.settings.on_page import OnPage, Part

if TYPE_CHECKING:
    Pic = str
else:
    # What the folder holds, so that the schemas of page, terminal and API name each of them.
    Pic = Literal[tuple(policies.names())]
MAX_WINDOW = 131_072


class PositionSettings(Part):
    """A position policy and the numbers that the policies heed (004)."""

    title = "How far apart do words look?"
    hint = "to the model"

    pic: Pic = Field("none", description="position policy")
    ratio: Annotated[
        float, OnPage("Ratio", "Above 1 distances shrink, below 1 they grow.", least=0.1, most=64, step=0.05)
    ] = Field(
        1.0, ge=0.05, le=1024, allow_inf_nan=False,
        description="compression ratio s (NTK: factor on the RoPE base; Self-Extend: tokens of a group)",
    )  # fmt: skip
    initial: Annotated[
        int, OnPage("Initial tokens left alone", "So many first tokens keep their distance.", most=1024, advanced=True)
    ] = Field(
        4, ge=0, le=100_000, description="dynamic PIC: uncompressed tokens at the start"
    )
    recent: Annotated[
        int, OnPage("Recent tokens left alone", "So many last tokens keep their distance.", most=4096, advanced=True)
    ] = Field(
        200, ge=1, le=100_000, description="tokens at the end that keep their distances, the current one included"
    )


class VariantSettings(Part):
    """What the PIC paper leaves open, or does in another way."""

    title = "Paper variants"
    hint = "where a paper can be read in two ways"

    reading: Annotated[
        Literal["contiguous", "literal"],
        OnPage(
            "Dynamic, by the PIC paper's equation", "How its equation 9 is read.",
            options=("contiguous: without gaps", "literal: word for word"),
        ),
    ] = Field("contiguous", description="reading of 004 eq. 9")
    prefill: Annotated[
        Literal["row_exact", "paper"],
        OnPage(
            "Positions in the prompt", "Which distances hold while the prompt is read.",
            options=("each token its own", "one set, as in the PIC paper"),
        ),
    ] = Field("row_exact", description="frames of the prompt's rows: each its own, or one for all")


class WindowSettings(Part):
    """The Λ-shaped attention window (002 §4)."""

    title = "How far does it look?"
    hint = "which earlier words it sees"

    window: Annotated[
        int | None, OnPage("Window, in tokens", "So many last tokens are seen.", most=16_384)
    ] = Field(
        None,
        ge=1,
        le=MAX_WINDOW,
        description="Λ: tokens of the local branch, the query included; none: plain attention",
    )
    sinks: Annotated[
        int,
        OnPage(
            "Sinks: first tokens always seen", "Attention rests on them where nothing else fits.", most=256,
            advanced=True,
        ),
    ] = Field(
        10, ge=0, le=4096, description="Λ: tokens of the global branch (n_global of 002)"
    )
    distance_limit: int | Literal["window", "off"] = Field("window", description="Λ: cap on perceived distances")

    @field_validator("distance_limit")
    @classmethod
    def _distance_limit_in_range(cls, limit: int | str) -> int | str:
        if isinstance(limit, int) and not 1 <= limit <= MAX_WINDOW:
            raise ValueError(f"give a distance limit from 1 to {MAX_WINDOW:,}, 'window' or 'off'")
        return limit
