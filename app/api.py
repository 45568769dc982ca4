"""The run as a named endpoint: POST /gradio_api/call/generate, or gradio_client's predict(…, api_name="/generate")."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Literal

import gradio as gr

from app.runs import Runs
from app.view import follow, sentence
from backend.inference.control import Control
from backend.record.schema import StepRecord
from backend.settings import Method, Pic, Precision, RunSettings, Unit, Watch
from backend.steps import Step

Unread = Callable[[str | None], bool]
# Fields that are called otherwise here.
ARGUMENTS = {"enabled": "probes"}
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

    def generate(
        request: gr.Request,
        prompt: str,
        model: str = "embedded",
        precision: Precision = "bf16",
        method: Method = "none",
        target: int = 100,
        unit: Unit = "tokens",
        limit: int = 200,
        landing: int = 0,
        in_prompt: bool = False,
        max_new_tokens: int | None = None,
        pic: Pic = "none",
        ratio: float = 1.0,
        initial: int = 4,
        recent: int = 200,
        reading: Literal["contiguous", "literal"] = "contiguous",
        prefill: Literal["row_exact", "paper"] = "row_exact",
        window: int | None = None,
        sinks: int = 10,
        distance_limit: int | Literal["window", "off"] = "window",
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        thinking: bool = False,
        special_tokens: bool = False,
        probes: bool = False,
        layer: int = 0,
        head: int = 0,
        every: int = 4,
        earlier: list[dict[str, str]] | None = None,
        thinking_budget: int = 0,
    ) -> Iterator[dict[str, Any]]:
        """Runs the model and streams the run, as UPDATES says."""
        given = {name: value for name, value in locals().items() if name in RunSettings.model_fields}
        watch = {"enabled": probes, "layer": layer, "head": head, "every": every}
        yield from _run(lab, runs, unread, request.session_hash, given, watch)

    return generate


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
