"""How much the model writes: the length method, what it aims at, and the cap that is always on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from backend.methods import LengthMethod, methods
from backend.settings.on_page import OnPage, Part

if TYPE_CHECKING:
    Method = str
else:
    # What the folder holds, so that the schemas of page, terminal and API name each of them.
    Method = Literal[tuple(methods.names())]
Unit = Literal["tokens", "words", "characters"]

MAX_LANDING = 32
# Endings that are tried where a target is to be met well and nobody chose their number.
LANDING = 8
MAX_TARGET = 100_000
MAX_NEW_TOKENS = 16_384
# The cap where none is asked for: at least so many tokens, room for a long text, and for each unit aimed at so many.
CAP = LengthMethod.cap
ROOM: dict[Unit, float] = {"tokens": 2, "words": 3, "characters": 0.5}


def noun(number: int, unit: str) -> str:
    """The unit as it stands after a number: 'word' after 1 and −1, else 'words'."""
    return unit.removesuffix("s") if abs(number) == 1 else unit


def counted(number: int, unit: str) -> str:
    """A number with its unit: '1 word', '2 words'."""
    return f"{number:,} {noun(number, unit)}"


def signed(number: int) -> str:
    """+3, −2 or ±0."""
    return "±0" if number == 0 else f"{'+' if number > 0 else '−'}{abs(number):,}"


def cap_for(method: Method, target: int, limit: int, unit: Unit) -> int:
    """The cap on new tokens that leaves room for what is aimed at, from CAP to MAX_NEW_TOKENS."""
    found = methods[method]
    if found.bound is None:
        return found.cap
    wanted = limit if found.bound == "limit" else target
    return min(max(CAP, round(wanted * ROOM[unit])), MAX_NEW_TOKENS)


class LengthSettings(Part):
    """A length method and its aim. A cap that is not given follows the aim."""

    title = "How long?"
    hint = "a method, and what it aims at"

    method: Method = Field("none", description="how the length is steered")
    target: Annotated[int, OnPage("Target", "How long the answer is to be.", most=1000)] = Field(
        100, ge=1, le=MAX_TARGET, description="wanted length of the response, in `unit`"
    )
    unit: Annotated[Unit, OnPage("Unit", "What is counted.")] = Field(
        "tokens", description="what the target or the limit counts"
    )
    limit: Annotated[int, OnPage("Limit", "What the answer is to stay under.", most=1000)] = Field(
        200, ge=1, le=MAX_TARGET, description="upper bound for Max New Tokens++, in `unit`"
    )
    landing: Annotated[
        int,
        OnPage(
            "Landing", "Finishes the sentence: tries so many endings near the target or limit. 0 is off.",
            most=MAX_LANDING,
        ),
    ] = Field(
        0, ge=0, le=MAX_LANDING,
        description="continuations tried near the target or limit, to end a sentence there; 0 is off",
    )  # fmt: skip
    in_prompt: Annotated[bool, OnPage("Say the length in the prompt too", "More answers then come to an end.")] = Field(
        False, description="say the wanted length in the prompt too, so that the answer is planned for it"
    )
    max_new_tokens: Annotated[
        int, OnPage("Cap on new tokens", "The most it may write. Follows the target until you change it.", most=4096)
    ] = Field(
        CAP, ge=1, le=MAX_NEW_TOKENS,
        description="hard cap on generated tokens, always on; follows target or limit if unset",
    )  # fmt: skip

    @model_validator(mode="before")
    @classmethod
    def _cap_follows_the_target(cls, given: Any) -> Any:
        if not isinstance(given, dict) or given.get("max_new_tokens") is not None:
            return given
        aims = {name: given.get(name, cls.model_fields[name].default) for name in ("method", "target", "limit", "unit")}
        try:
            cap = cap_for(aims["method"], int(aims["target"]), int(aims["limit"]), aims["unit"])
        except (TypeError, ValueError, KeyError, OverflowError):
            # What is wrong with them is said of them.
            cap = CAP
        return given | {"max_new_tokens": cap}

    @field_validator("method", mode="before")
    @classmethod
    def _method_is_known(cls, method: Any) -> str:
        return methods[method].name

    @property
    def steered(self) -> bool:
        """Whether a target (or limit) acts on this run at all."""
        return methods[self.method].bound is not None

    @property
    def limited(self) -> bool:
        """Whether what the method aims at is an upper bound."""
        return methods[self.method].bound == "limit"

    @property
    def bound(self) -> Literal["target", "limit"]:
        """The setting that the method aims at."""
        return "limit" if self.limited else "target"

    @property
    def lands(self) -> bool:
        """Whether endings are tried near the target, or below the limit, that the method aims at."""
        return self.landing > 0 and self.steered

    def missed(self, error: int | None) -> int | None:
        """What of an error, produced − asked for, counts: none of it within a limit."""
        return None if error is None or (self.limited and error <= 0) else error

    @property
    def goal(self) -> int:
        """The number the method aims at: the limit for Max New Tokens++, else the target."""
        return self.limit if self.limited else self.target
