"""A trace's file format: what is written, and everything that is checked when one is read."""
from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    JsonValue,
    field_validator,
    model_validator,
)

from backend.record.arrays import (
    LEAST_ENTROPY,
    MAX_ENTROPY,
    Bins,
    Entropies,
    Heads,
    Integers,
    Parts,
    Shares,
    States,
)
from backend.settings import MAX_NEW_TOKENS, RunSettings
from backend.steps import Alternative, Finish, Logits, Reading, Reason, Step, TriedEnding

# More than any run here has: tokens in a context, seconds, numbers of a chart.
MAX_CONTEXT = 2**24
MAX_SECONDS = 1e8
MAX_LOGIT = 1e9
MAX_ALTERNATIVES = 64
MAX_TRIED, MAX_NATS = 64, 1e6

Count = Annotated[int, Field(ge=0, lt=2**53)]
Signed = Annotated[int, Field(gt=-(2**53), lt=2**53)]
Positive = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]
Context = Annotated[int, Field(ge=0, le=MAX_CONTEXT)]
Goal = Annotated[int, Field(ge=1, lt=2**53)]
Size = Annotated[int, Field(strict=True, ge=1, lt=2**53)]
Probability = Annotated[float, Field(ge=0, le=1.001, allow_inf_nan=False)]


class Record(BaseModel):
    model_config = ConfigDict(from_attributes=True, arbitrary_types_allowed=True, frozen=True)

    def fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields}


class Known(BaseModel):
    """What the page reads of a model's capabilities, where a trace tells it; the rest is kept as it is."""

    model: str | None = None
    family: str | None = None
    position: str | None = None
    precision: str | None = None
    device: str | None = None
    layers: Size | None = None
    heads: Size | None = None
    kv_heads: Size | None = None
    head_dim: Size | None = None
    width: Size | None = None
    vocab: Size | None = None
    parameters: Size | None = None
    training_length: Size | None = None
    rope_base: Positive | None = None
    unsupported: dict[str, str] | None = None


class ReadingRecord(Record):
    tokens: Context
    seconds: Seconds
    positions: Integers
    entropy: Entropies
    attended: Integers
    states: States

    @model_validator(mode="after")
    def _rows_match(self) -> ReadingRecord:
        rows = len(self.positions)
        if any(len(part) != rows for part in (self.entropy, self.attended, self.states)):
            raise ValueError("the prompt's positions, entropies and states differ in number")
        if rows and (self.entropy.ndim != 3 or self.states.ndim != 2):
            raise ValueError("the prompt's entropies are [r, layers, heads] and its states [r, d]")
        if rows and (min(self.positions) < 0 or max(self.positions) > MAX_CONTEXT or min(self.attended) < 0):
            raise ValueError(f"the prompt's positions and counts are from 0 to {MAX_CONTEXT:,}")
        return self


class LogitsRecord(Record):
    layer: Count
    head: Count
    distance: Bins
    mean: Bins
    low: Bins
    high: Bins
    heads: Heads | None = None

    @model_validator(mode="after")
    def _bins_match(self) -> LogitsRecord:
        bins = self.distance.shape
        if len(bins) != 1 or any(part.shape != bins for part in (self.mean, self.low, self.high)):
            raise ValueError("the bins of the attention logits differ in number")
        if not bins[0]:
            raise ValueError("the attention logits have no bins")
        if self.distance.min() < 0 or self.distance.max() > MAX_CONTEXT:
            raise ValueError(f"attention logits stand at distances from 0 to {MAX_CONTEXT:,}")
        if max(abs(part).max() for part in (self.mean, self.low, self.high)) > MAX_LOGIT:
            raise ValueError(f"attention logits are from {-MAX_LOGIT:,.0f} to {MAX_LOGIT:,.0f}")
        if self.heads is not None and (self.heads.shape[1:] != bins or len(self.heads) <= self.head):
            raise ValueError("the logits of the heads are [heads, bins], the watched head among them")
        return self


class AlternativeRecord(Record):
    token: Count
    text: str
    p: Probability
    p_model: Probability
    ends: bool = False


class TriedRecord(Record):
    text: str
    length: Count
    near: bool
    own: bool
    p_end: Probability | None = None
    p_eos: Probability | None = None
    nats: Annotated[float, Field(ge=LEAST_ENTROPY, le=MAX_NATS, allow_inf_nan=False)] | None = None
    chosen: bool


Tried = Annotated[tuple[TriedRecord, ...], Field(max_length=MAX_TRIED)]


def _tried(endings: Sequence[TriedRecord] | None) -> tuple[TriedEnding, ...] | None:
    return None if endings is None else tuple(TriedEnding(**each.fields()) for each in endings)


class StepRecord(Record):
    index: Annotated[int, Field(ge=1, lt=2**53)]
    token: Count
    text: str
    p: Probability
    p_eos: Probability
    spread: Annotated[float, Field(ge=LEAST_ENTROPY, le=MAX_ENTROPY, allow_inf_nan=False)]
    context: Context
    attended: Annotated[int, Field(ge=1, le=MAX_CONTEXT)]
    goal: Goal | None = None
    remaining: Signed | None = None
    seconds: Seconds
    entropy: Entropies | None = None
    state: States | None = None
    logits: LogitsRecord | None = None
    reading: ReadingRecord | None = None
    wanted: Goal | None = None
    p_model: Probability | None = None
    p_eos_model: Probability | None = None
    thinking: bool = False
    looked: Shares | None = None
    source: tuple[str, ...] | None = None
    alternatives: Annotated[tuple[AlternativeRecord, ...], Field(max_length=MAX_ALTERNATIVES)] | None = None
    chosen: bool | None = None
    sink_share: Parts | None = None
    tried: Tried | None = None

    @model_validator(mode="after")
    def _models_own_is_whole(self) -> StepRecord:
        if (self.p_model is None) != (self.p_eos_model is None):
            raise ValueError("the model's own probabilities are those of the token and of the end, or neither")
        return self

    @model_validator(mode="after")
    def _shapes_match(self) -> StepRecord:
        if self.entropy is not None and (self.entropy.ndim != 2 or not self.entropy.size):
            raise ValueError("a token's entropies are [layers, heads]")
        if self.state is not None and (self.state.ndim != 1 or self.state.size < 2):
            raise ValueError("a token's state is [d], of two dimensions and more")
        return self

    def event(self, settings: RunSettings) -> Step:
        """The step of a run with these settings."""
        wanted = self.wanted
        # A file that does not tell it shows a moved target only where the goal counts tokens.
        if wanted is None and self.goal is not None:
            wanted = self.goal if settings.unit == "tokens" else settings.goal
        return Step(**self.fields() | {
            "wanted": wanted,
            "logits": self.logits and Logits(**self.logits.fields()),
            "reading": self.reading and Reading(**self.reading.fields()),
            "alternatives": None if self.alternatives is None else tuple(
                Alternative(**each.fields()) for each in self.alternatives
            ),
            "chosen": bool(self.chosen),
            "tried": _tried(self.tried),
        })


class FinishRecord(Record):
    reason: Reason
    text: str
    tokens: Count
    words: Count
    characters: Count
    error: Signed | None = None
    prompt_tokens: Count
    prefill_seconds: Seconds
    decode_seconds: Seconds
    tokens_per_second: Positive
    cache_bytes: Count
    p_eos: Probability | None = None
    message: str = ""
    notes: tuple[str, ...] = ()
    landed: bool = False
    own_end: bool | None = None
    p_eos_model: Probability | None = None
    thinking: str = ""
    thinking_tokens: Count = 0
    tried: Tried | None = None

    @model_validator(mode="after")
    def _models_own_has_its_pair(self) -> FinishRecord:
        if self.p_eos_model is not None and self.p_eos is None:
            raise ValueError("the model's own probability of the end lacks the one drawn with")
        return self

    def event(self) -> Finish:
        # Files from before it was recorded: only what landing ended did not end by itself.
        own = self.reason == "eos" and not self.landed if self.own_end is None else self.own_end
        return Finish(**self.fields() | {"own_end": own, "tried": _tried(self.tried)})


class Header(BaseModel):
    """The first thing read of a file: whether it is a trace, and one that this program reads."""

    format: str
    version: int


class TraceRecord(Record):
    """A whole file. Validation raises pydantic's ValidationError and nothing else."""

    format: Literal["length-lab-trace"] = "length-lab-trace"
    version: Literal[1] = 1
    created: str
    settings: RunSettings
    capabilities: dict[str, JsonValue]
    steps: Annotated[list[StepRecord], FailFast()] = Field(max_length=MAX_NEW_TOKENS)
    finish: FinishRecord | None = None

    @field_validator("created")
    @classmethod
    def _created_is_a_time(cls, created: str) -> str:
        try:
            zone = datetime.fromisoformat(created).tzinfo
        except ValueError as error:
            raise ValueError("the time of the run is not written by ISO 8601") from error
        if zone is None:
            raise ValueError("the time of the run lacks its time zone")
        return created

    @field_validator("capabilities")
    @classmethod
    def _capabilities_are_finite(cls, capabilities: dict[str, Any]) -> dict[str, Any]:
        try:
            json.dumps(capabilities, allow_nan=False)
        except ValueError as error:
            raise ValueError("the model's description holds a number that is not finite") from error
        Known.model_validate(capabilities)
        return capabilities

    @model_validator(mode="after")
    def _probabilities_are_of_one_kind(self) -> TraceRecord:
        own = {step.p_model is not None for step in self.steps}
        if self.finish is not None and self.finish.p_eos is not None:
            own.add(self.finish.p_eos_model is not None)
        if len(own) > 1:
            raise ValueError("some tokens tell the model's own probabilities and some do not")
        return self

    @model_validator(mode="after")
    def _steps_follow_one_model(self) -> TraceRecord:
        if any(step.index != place for place, step in enumerate(self.steps, start=1)):
            raise ValueError("the tokens are not numbered one by one from 1")
        if any(step.reading is not None or step.source is not None for step in self.steps[1:]):
            raise ValueError("only the first token carries what the prompt's reading showed, and its tokens")
        pairs = [*zip(self.steps, self.steps[1:], strict=False)]
        if any(after.context != before.context + 1 for before, after in pairs):
            raise ValueError("the context does not grow by one from token to token")
        if any(step.attended > step.context for step in self.steps):
            raise ValueError("a token attends to more tokens than the context has")
        if any(after.seconds < before.seconds for before, after in pairs):
            raise ValueError("the seconds fall from token to token")
        known = [self.capabilities.get(name) for name in ("layers", "heads", "width")]
        _agree("entropies", known[:2], [a.shape[-2:] for a in self._entropies()])
        _agree("shares of attention", known[:1], [s.sink_share.shape for s in self.steps if s.sink_share is not None])
        heads = [step.logits.heads.shape[:1] for step in self.steps if step.logits and step.logits.heads is not None]
        _agree("heads' logits", known[1:2], heads)
        _agree("states", known[2:], [a.shape[-1:] for a in self._states()])
        return self

    @model_validator(mode="after")
    def _looks_are_at_the_source(self) -> TraceRecord:
        tokens = self.steps[0].source if self.steps else None
        looks = [step.looked for step in self.steps if step.looked is not None]
        if any(tokens is None or len(looked) != len(tokens) for looked in looks):
            raise ValueError("the shares of attention are not one for each token of the source")
        return self

    def _entropies(self) -> list[np.ndarray]:
        of_prompt = [step.reading.entropy for step in self.steps[:1] if step.reading and step.reading.entropy.size]
        return of_prompt + [step.entropy for step in self.steps if step.entropy is not None]

    def _states(self) -> list[np.ndarray]:
        of_prompt = [step.reading.states for step in self.steps[:1] if step.reading and step.reading.states.size]
        return of_prompt + [step.state for step in self.steps if step.state is not None]


def _agree(what: str, known: list[Any], shapes: list[tuple[int, ...]]) -> None:
    if len(set(shapes)) > 1:
        raise ValueError(f"the {what} change their shape from token to token")
    if shapes and all(type(size) is int for size in known) and list(shapes[0]) != known:
        raise ValueError(f"the {what} have shape {list(shapes[0])}, and the model's is {known}")
