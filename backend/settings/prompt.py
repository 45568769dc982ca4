"""What the model reads first: the prompt, the messages before it, and how they are read."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from backend.settings.length import MAX_NEW_TOKENS
from backend.settings.on_page import OnPage, Part

MAX_PROMPT_CHARS = 400_000
MAX_TURNS = 200


class Turn(BaseModel):
    """A message of the conversation that comes before a prompt."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Literal["system", "user", "assistant"]
    content: str


class PromptSettings(Part):
    """The user's message, what was said before it, and whether the model thinks before it answers."""

    title = "Instruction"
    hint = "what it reads first"

    prompt: str = Field(description="the user's message; the model's chat template is applied to it")
    earlier: tuple[Turn, ...] = Field(
        (), description="messages before the prompt: a system prompt, then the user's and the assistant's in turn"
    )
    thinking: Annotated[
        bool, OnPage("Let it think first", "for models whose template can switch thinking", advanced=True)
    ] = Field(False, description="let a thinking model think before it answers, where its template can switch that")
    thinking_budget: Annotated[
        int, OnPage("Thinking budget", "tokens, after which its end is written; 0 is off", advanced=True)
    ] = Field(0, ge=0, le=MAX_NEW_TOKENS, description="tokens of thinking after which its end is written; 0 is off")
    special_tokens: Annotated[
        bool, OnPage("Typed special tokens act", "else <|im_end|> in a prompt is text", advanced=True)
    ] = Field(False, description="let special tokens typed in the prompt act as such; else they are read as text")

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
