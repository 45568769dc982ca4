"""OpenAI's form of a chat: what a request asks for, as settings of a run, and what is answered."""

from __future__ import annotations

import time
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.share import explain
from backend.models.adapters import heeding
from backend.refused import Refused
from backend.settings import RunSettings, Turn, Watch

ROLES = {"developer": "system", "system": "system", "user": "user", "assistant": "assistant"}
# What asks for nothing here, and its values that ask for nothing either.
NOTHING = {
    "n": (1,), "stop": ([],), "logprobs": (False,), "top_logprobs": (), "logit_bias": ({},), "frequency_penalty": (0,),
    "presence_penalty": (0,), "tools": ([],), "tool_choice": ("none",), "functions": ([],), "modalities": (["text"],),
    "response_format": ({"type": "text"},), "audio": (), "prediction": (), "web_search_options": (),
}  # fmt: skip
IGNORED = {
    "user", "store", "metadata", "service_tier", "parallel_tool_calls", "safety_identifier", "prompt_cache_key",
    "reasoning_effort", "verbosity",
}  # fmt: skip
# Their names here, where those of the settings differ.
NAMES = {
    "prompt": "messages", "earlier": "messages", "unit": "target_unit", "method": "length_method",
    "max_new_tokens": "max_tokens",
}  # fmt: skip
REASONS = {"eos": "stop", "stopped": "stop", "cap": "length"}


class Message(BaseModel):
    """One of the conversation; content: text, or parts of text."""

    role: str
    content: str | list[dict[str, Any]]

    @property
    def turn(self) -> Turn:
        """The same as the lab takes it. Refused where it is no text, or of a role that has none here."""
        if self.role not in ROLES:
            raise Refused(f"a message of the role “{self.role}” is not known here: use system, user or assistant")
        parts = [{"type": "text", "text": self.content}] if isinstance(self.content, str) else self.content
        if not all(part.get("type") == "text" and isinstance(part.get("text"), str) for part in parts):
            raise Refused("a message has a part that is no text: send text alone")
        return Turn(role=ROLES[self.role], content="".join(part["text"] for part in parts))


class StreamOptions(BaseModel):
    include_usage: bool = False


class ChatRequest(BaseModel):
    """The fields of OpenAI's that the lab heeds, and beside them its own: target, target_unit, length_method, landing,
    in_prompt.

    What is left out has the lab's default: temperature 0, seed 0. A target without a method takes the one that the
    command line does.
    """

    model_config = ConfigDict(extra="allow")

    model: str = "embedded"
    messages: list[Message] = Field(min_length=1)
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    target: int | None = None
    target_unit: str | None = None
    length_method: str | None = None
    landing: int | None = None
    in_prompt: bool | None = None

    def settings(self) -> RunSettings:
        """The run that is asked for; ValueError with a sentence where there is none."""
        for name, value in (self.model_extra or {}).items():
            if name not in IGNORED and value is not None and value not in NOTHING.get(name, ()):
                raise Refused(f"“{name}” is not supported here: leave it out")
        *earlier, last = [message.turn for message in self.messages]
        if last.role != "user":
            raise Refused("the last message is not the user's: end with the one to be answered")
        asked = {
            "model": self.model,
            "max_new_tokens": self.max_completion_tokens if self.max_tokens is None else self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": self.seed,
            "method": self.length_method,
            "target": self.target,
            "limit": self.target,
            "unit": self.target_unit,
            "landing": self.landing,
            "in_prompt": self.in_prompt,
        }
        given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
        if self.target is not None and self.length_method is None:
            given = heeding(self.model) | given
        return RunSettings(prompt=last.content, earlier=tuple(earlier), watch=Watch(enabled=False), **given)


class Answer:
    """One completion in that form; name: its id. updates: `text` so far and, in the last, `finish`."""

    def __init__(self, name: str, request: ChatRequest) -> None:
        self._request, self._sent = request, ""
        self._about = {"id": name, "created": int(time.time()), "model": request.model}

    def whole(self, update: dict[str, Any]) -> dict[str, Any]:
        """The object for a request without `stream`; of the last update."""
        message = {"role": "assistant", "content": update["text"]}
        choice = {"index": 0, "message": message, "finish_reason": _reason(update["finish"]), "logprobs": None}
        return {**self._about, "object": "chat.completion", "choices": [choice], **_told(update["finish"])}

    def chunks(self, update: dict[str, Any]) -> list[dict[str, Any]]:
        """What an update adds, as objects of a stream; one for the usage, where it is asked for, after the last."""
        finish = update["finish"]
        delta = {"role": "assistant"} if not self._sent else {}
        new, self._sent = update["text"][len(self._sent) :], update["text"]
        chunks = [self._chunk(delta | {"content": new})] if new else []
        if finish:
            chunks.append(self._chunk({}, _reason(finish)) | {"length": _told(finish)["length"]})
        if finish and self._request.stream_options and self._request.stream_options.include_usage:
            chunks.append(self._chunk({}) | {"choices": [], "usage": _told(finish)["usage"]})
        return chunks

    def _chunk(self, delta: dict[str, str], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        return {**self._about, "object": "chat.completion.chunk", "choices": [choice]}


def _reason(finish: dict[str, Any]) -> Literal["stop", "length"]:
    return REASONS[finish["reason"]]  # type: ignore[return-value]


def _told(finish: dict[str, Any]) -> dict[str, Any]:
    """usage, and length: the signed error in the target's unit, and the lab's notes."""
    written = finish["tokens"] + finish["thinking_tokens"]
    read = finish["prompt_tokens"]
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return {"usage": usage, "length": {name: finish[name] for name in ("tokens", "words", "error", "notes")}}


def failure(words: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    """An error in OpenAI's form."""
    return {"error": {"message": words, "type": kind, "param": None, "code": None}}


def refusal(error: ValueError) -> str:
    """What is wrong with a request, in a sentence with its own names of the fields."""
    words = explain(error, NAMES)
    return words[0].upper() + words[1:] + ("" if words.endswith(".") else ".")


def models(names: list[str]) -> dict[str, Any]:
    """The list of models that may be asked for."""
    listed = [{"id": name, "object": "model", "created": 0, "owned_by": "length-lab"} for name in names]
    return {"object": "list", "data": listed}


Kind = Literal["invalid_request_error", "rate_limit_error", "server_error"]


def kind(status: int) -> Kind:
    """OpenAI's word for what an HTTP status tells."""
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"
