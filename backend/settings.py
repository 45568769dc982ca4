"""The settings of one run: one typed, validated object shared by the page, Python, the CLI and the API."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from backend.methods import LengthMethod, methods
from backend.positions import policies

if TYPE_CHECKING:
    Method = str
    Pic = str
else:
    # What the folders hold, so that the schemas of page, terminal and API name each of them.
    Method = Literal[tuple(methods.names())]
    Pic = Literal[tuple(policies.names())]
Unit = Literal["tokens", "words", "characters"]
Precision = Literal["bf16", "fp32", "int8", "int4", "4bit"]

MAX_PROMPT_CHARS = 400_000
MAX_TURNS = 200
MAX_LANDING = 32
MAX_TARGET = 100_000
MAX_NEW_TOKENS = 16_384
# The cap where none is asked for: at least so many tokens, room for a long text, and for each unit aimed at so many.
CAP = LengthMethod.cap
ROOM: dict[Unit, float] = {"tokens": 2, "words": 3, "characters": 0.5}
MAX_WINDOW = 131_072


def noun(number: int, unit: str) -> str:
    """The unit as it stands after a number: 'word' after 1 and −1, else 'words'."""
    return unit.removesuffix("s") if abs(number) == 1 else unit


def counted(number: int, unit: str) -> str:
    """A number with its unit: '1 word', '2 words'."""
    return f"{number:,} {noun(number, unit)}"


def cap_for(method: Method, target: int, limit: int, unit: Unit) -> int:
    """The cap on new tokens that leaves room for what is aimed at, from CAP to MAX_NEW_TOKENS."""
    found = methods[method]
    if found.bound is None:
        return found.cap
    wanted = limit * ROOM["tokens"] if found.bound == "limit" else target * ROOM[unit]
    return min(max(CAP, round(wanted)), MAX_NEW_TOKENS)


class Watch(BaseModel):
    """What the probes record while the model writes (002 §3)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = Field(True, description="record attention entropy, logits and first-layer states")
    layer: int = Field(0, ge=0, le=1000, description="layer whose attention logits are binned by distance")
    head: int = Field(0, ge=0, le=1000, description="head whose attention logits are binned by distance")
    every: int = Field(4, ge=1, le=1000, description="tokens between two recordings of the attention logits")


class Turn(BaseModel):
    """A message of the conversation that comes before a prompt."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Literal["system", "user", "assistant"]
    content: str


def _half_a_pair(text: str) -> bool:
    return any(0xD800 <= ord(character) <= 0xDFFF for character in text)


def _in_turn(roles: list[str]) -> None:
    """ValueError for messages before a prompt that are not a system's, if any, and then a user's and an assistant's in
    turn."""
    spoken = [*(roles[1:] if roles[:1] == ["system"] else roles), "user"]
    if "system" in spoken:
        raise ValueError("a system message comes after another message: give one alone, before all others")
    if spoken[0] != "user":
        raise ValueError("the conversation begins with an answer of the assistant's: begin with the user's")
    if twice := next((role for role, after in pairwise(spoken) if role == after), None):
        raise ValueError(
            f"two messages of the {twice}'s follow each other: join them, or put one of the "
            f"{'assistant' if twice == 'user' else 'user'}'s between them"
        )


class RunSettings(BaseModel):
    """Everything that decides a run's output. Frozen; invalid values raise with a sentence that says what to do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: str = Field(description="the user's message; the model's chat template is applied to it")
    earlier: tuple[Turn, ...] = Field(
        (), description="messages before the prompt: a system prompt, then the user's and the assistant's in turn"
    )
    model: str = Field(
        "embedded", max_length=300, description="'embedded', a hub id or a local folder from the allow-list"
    )
    precision: Precision = Field(
        "bf16", description="weights as bf16, fp32, weight-only int8 or int4 (CPU), or 4-bit by bitsandbytes"
    )

    thinking: bool = Field(
        False, description="let a thinking model think before it answers, where its template can switch that"
    )
    thinking_budget: int = Field(
        0, ge=0, le=MAX_NEW_TOKENS, description="tokens of thinking after which its end is written; 0 is off"
    )
    special_tokens: bool = Field(
        False, description="let special tokens typed in the prompt act as such; else they are read as text"
    )

    method: Method = Field("none", description="how the length is steered")
    target: int = Field(100, ge=1, le=MAX_TARGET, description="wanted length of the response, in `unit`")
    unit: Unit = Field("tokens", description="what the target counts")
    limit: int = Field(200, ge=1, le=MAX_TARGET, description="upper bound for Max New Tokens++, in tokens")
    landing: int = Field(
        0, ge=0, le=MAX_LANDING, description="continuations tried near the target, to end a sentence on it; 0 is off"
    )
    in_prompt: bool = Field(
        False, description="say the wanted length in the prompt too, so that the answer is planned for it"
    )
    max_new_tokens: int = Field(
        CAP, ge=1, le=MAX_NEW_TOKENS, description="hard cap on generated tokens, always on; follows the target if unset"
    )

    pic: Pic = Field("none", description="position policy")
    ratio: float = Field(
        1.0, ge=0.05, le=1024, allow_inf_nan=False,
        description="compression ratio s (NTK: factor on the RoPE base; Self-Extend: tokens of a group)",
    )  # fmt: skip
    initial: int = Field(4, ge=0, le=100_000, description="dynamic PIC: uncompressed tokens at the start")
    recent: int = Field(
        200, ge=1, le=100_000, description="tokens at the end that keep their distances, the current one included"
    )
    reading: Literal["contiguous", "literal"] = Field("contiguous", description="reading of 004 eq. 9")
    prefill: Literal["row_exact", "paper"] = Field(
        "row_exact", description="frames of the prompt's rows: each its own, or one for all"
    )

    window: int | None = Field(
        None,
        ge=1,
        le=MAX_WINDOW,
        description="Λ: tokens of the local branch, the query included; none: plain attention",
    )
    sinks: int = Field(10, ge=0, le=4096, description="Λ: tokens of the global branch (n_global of 002)")
    distance_limit: int | Literal["window", "off"] = Field("window", description="Λ: cap on perceived distances")

    temperature: float = Field(0.0, ge=0, le=10, allow_inf_nan=False, description="0 is greedy")
    top_k: int = Field(0, ge=0, le=1_000_000, description="0 is off")
    top_p: float = Field(1.0, gt=0, le=1, allow_inf_nan=False)
    repetition_penalty: float = Field(1.0, ge=0.1, le=10, allow_inf_nan=False, description="1 is off")
    seed: int = Field(0, ge=0, le=2**32 - 1)

    watch: Watch = Watch()

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

    @field_validator("prompt")
    @classmethod
    def _prompt_has_text(cls, prompt: str) -> str:
        if not prompt.strip():
            raise ValueError("the prompt is empty: type what the model should answer")
        if len(prompt) > MAX_PROMPT_CHARS:
            raise ValueError(
                f"the prompt has {len(prompt):,} characters, more than {MAX_PROMPT_CHARS:,}: shorten it, "
                "or use the Read far tab"
            )
        if _half_a_pair(prompt):
            raise ValueError("the prompt is not valid Unicode text (it holds half a surrogate pair): paste it again")
        return prompt

    @field_validator("earlier")
    @classmethod
    def _earlier_is_a_conversation(cls, earlier: tuple[Turn, ...]) -> tuple[Turn, ...]:
        length = sum(len(turn.content) for turn in earlier)
        if len(earlier) > MAX_TURNS or length > MAX_PROMPT_CHARS:
            raise ValueError(
                f"the {len(earlier):,} messages before the prompt have {length:,} characters, more than "
                f"{MAX_TURNS:,} messages or {MAX_PROMPT_CHARS:,} characters: leave some out"
            )
        if any(_half_a_pair(turn.content) for turn in earlier):
            raise ValueError("a message is not valid Unicode text (it holds half a surrogate pair): paste it again")
        if any(turn.role == "user" and not turn.content.strip() for turn in earlier):
            raise ValueError("a message of the user's is empty: give it text, or leave it and its answer out")
        _in_turn([turn.role for turn in earlier])
        return earlier

    @field_validator("distance_limit")
    @classmethod
    def _distance_limit_in_range(cls, limit: int | str) -> int | str:
        if isinstance(limit, int) and not 1 <= limit <= MAX_WINDOW:
            raise ValueError(f"give a distance limit from 1 to {MAX_WINDOW:,}, 'window' or 'off'")
        return limit

    @model_validator(mode="after")
    def _combination_makes_sense(self) -> RunSettings:
        if self.prefill == "paper" and self.window is not None:
            raise ValueError(
                "one frame for the whole prompt (prefill 'paper') cannot be windowed: let each row have its own "
                "(prefill 'row_exact'), or choose no window"
            )
        return self

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

    @property
    def goal(self) -> int:
        """The number the method aims at: the limit for Max New Tokens++, else the target."""
        return self.limit if self.limited else self.target

    @property
    def goal_unit(self) -> Unit:
        """What `goal` counts, and with it what is produced: a limit is always in tokens."""
        return "tokens" if self.limited else self.unit
