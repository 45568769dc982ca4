"""The run as a named endpoint: POST /gradio_api/call/generate, or gradio_client's predict(…, api_name="/generate")."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import gradio as gr

from app.runs import Runs
from app.view import follow, sentence
from backend.inference.control import Control
from backend.record.schema import StepRecord
from backend.settings import RunSettings, Watch
from backend.steps import Step

Unread = Callable[[str | None], bool]
# Fields that are called otherwise here.
ARGUMENTS = {"enabled": "probes"}
# Arguments that have another kind or default here: (kind, default).
APART: dict[str, tuple[Any, Any]] = {
    "max_new_tokens": (int | None, None), "probes": (bool, False), "earlier": (list[dict[str, str]] | None, None)
}  # fmt: skip
# Clients may give arguments by their places: one that is not here comes after these.
PLACES = (
    "prompt", "model", "precision", "method", "target", "unit", "limit", "landing", "in_prompt", "max_new_tokens",
    "pic", "ratio", "initial", "recent", "reading", "prefill", "window", "sinks", "distance_limit", "temperature",
    "top_k", "top_p", "repetition_penalty", "seed", "thinking", "special_tokens", "probes", "layer", "head", "every",
    "earlier", "thinking_budget",
)  # fmt: skip
RUNS = "Runs the model and streams the run."
UPDATES = """
Each update, and the result, is an object: `progress` (until the first token {before}, runs that wait ahead of this one,
or {read, total}, tokens of the prompt that were read, of how many; then null); `text` so far; `finish` (null until the
end, then reason, tokens, words, characters, signed error, thinking, thinking_tokens, seconds, tokens_per_second,
cache_bytes and message); `steps`, one entry a new token since the last update (all of them in the result) with index,
token, text, p and p_eos as drawn with, p_model and p_eos_model as the model has them, spread (the model's own entropy),
context, attended, wanted, goal, remaining, seconds and thinking (whether the token is of the thinking, which `text`
leaves out); with probes also alternatives (the likeliest tokens there), entropy of every layer and head, sink_share (of
every layer, the share of attention on the first four tokens), state (first layer's output), logits of one head by
perceived distance, and on the first step reading (what was seen while the prompt was read), as in a saved trace: long
arrays are {shape, f16}, base64 of little-endian float16. earlier: each message is {role, content}.
"""
REFUSES = "Settings that cannot run are refused with a sentence."
# What the probes see.
SEEN = {"alternatives", "entropy", "sink_share", "state", "logits", "reading", "looked", "source"}


def endpoint(
    lab: Any, runs: Runs, unread: Unread = lambda session: False
) -> Callable[..., Iterator[dict[str, Any]]]:
    """The function behind /generate; its parameters are the fields of RunSettings and Watch.

    unread: whether a session has yet to read an update; the next one then tells what came meanwhile.
    """

    request = inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=gr.Request)
    signature = inspect.Signature([request, *_parameters()], return_annotation=Iterator[dict[str, Any]])

    def generate(*values: Any, **named: Any) -> Iterator[dict[str, Any]]:
        """Runs the model and streams the run, as UPDATES says."""
        asked = signature.bind(*values, **named)
        asked.apply_defaults()
        given = dict(asked.arguments)
        watch = {name: given.pop(ARGUMENTS.get(name, name)) for name in Watch.model_fields}
        yield from _run(lab, runs, unread, given.pop("request").session_hash, given, watch)

    # Gradio asks for both.
    generate.__signature__ = signature  # type: ignore[attr-defined]
    generate.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()} | {
        "return": signature.return_annotation
    }
    return generate


def _parameters() -> list[inspect.Parameter]:
    """A parameter for each setting, as the settings have it."""
    watched = {ARGUMENTS.get(name, name): field for name, field in Watch.model_fields.items()}
    fields = {name: field for name, field in RunSettings.model_fields.items() if name != "watch"} | watched
    kinds = {name: (field.annotation, field.default) for name, field in fields.items()} | APART
    return [
        inspect.Parameter(
            name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind,
            default=inspect.Parameter.empty if fields[name].is_required() else default,
        )
        for name, (kind, default) in sorted(kinds.items(), key=lambda each: _place(each[0]))
    ]  # fmt: skip


def _place(name: str) -> int:
    return PLACES.index(name) if name in PLACES else len(PLACES)


def _run(
    lab: Any, runs: Runs, unread: Unread, session: str | None, given: dict[str, Any], probes: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Updates of a run, the whole result last. given, probes: fields of RunSettings, and of its Watch."""
    try:
        settings = RunSettings(**given | {"earlier": given["earlier"] or ()}, watch=Watch(**probes))
        steps: list[dict[str, Any]] = []
        with runs.started(session, Control(), "api", beside=True) as run:
            for view in follow(lab, settings, run):
                if unread(session) and not view.ended:
                    continue
                new = [_fields(step, settings.watch.enabled) for step in view.trace.steps[len(steps) :]]
                steps += new
                text = view.series.answer
                if not view.ended:
                    progress = asdict(view.progress) if view.progress else None
                    yield {"progress": progress, "text": text, "finish": None, "steps": new}
            finish = asdict(view.series.finish) if view.series.finish else None
            yield {"progress": None, "text": text, "finish": finish, "steps": steps}
    except Exception as error:
        raise gr.Error(sentence(error, ARGUMENTS), print_exception=False) from error


def described(generate: Callable[..., Any]) -> str:
    """What the endpoint does, and each of its parameters with its range."""
    parameters = inspect.signature(generate).parameters
    watched = Watch.model_json_schema()["properties"]
    fields = RunSettings.model_json_schema()["properties"] | {ARGUMENTS.get(n, n): watched[n] for n in watched}
    lines = [_line(name, fields[name]) for name in parameters if name in fields]
    return "\n".join([" ".join([RUNS, *UPDATES.split(), REFUSES]), "", *lines])


def _line(name: str, schema: dict[str, Any]) -> str:
    """A parameter in a line; schema: its JSON schema."""
    bounds = schema | next((part for part in schema.get("anyOf", ()) if "minimum" in part), {})
    words = [schema["description"]] if "description" in schema else []
    if "minimum" in bounds:
        words.append(f"from {bounds['minimum']:,} to {bounds['maximum']:,}")
    if "exclusiveMinimum" in bounds:
        words.append(f"above {bounds['exclusiveMinimum']:,} and up to {bounds['maximum']:,}")
    return f"{name}: {'; '.join(words)}."


def _fields(step: Step, probes: bool) -> dict[str, Any]:
    plain = {name: getattr(step, name) for name in Step.__slots__ if name not in SEEN}
    return plain | StepRecord.model_validate(step).model_dump(mode="json", include=SEEN) if probes else plain
