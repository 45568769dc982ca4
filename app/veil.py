"""A veil over the run that is shown, as long as the form asks for another.

The Lab's form is held against a run's trace, which may be loaded or recorded too. Other places show what their own form
asked for when its button was pressed, and the page alone holds that against the form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from app import conversation
from app.buttons import QUIET
from app.controls import Form
from app.numbers import in_range
from app.runs import Runs
from backend.record.trace import Trace
from backend.settings import RunSettings


def build(form: Form, trace: gr.State, runs: Runs, place: str, first: Trace | None) -> None:
    """Makes it where it is called. trace: of the run that is shown; first: what is shown before there is one."""
    veiled = gr.Textbox(visible="hidden", elem_id="veiled")

    def differs(request: gr.Request, made: Trace | None, *values: Any) -> str:
        run = runs.of(request.session_hash, place)
        shown = run.view.trace if run and run.view else made or first
        return "" if shown is None or _belongs(form, values, shown) else "veiled"

    gr.on(
        [trace.change, *[part.change for part in form.inputs]],
        differs,
        [trace, *form.inputs],
        [veiled],
        trigger_mode="always_last",
        concurrency_limit=None,
        js=f"(trace, ...values) => [trace, ...({in_range(form.inputs)})(...values)]",
        **QUIET,
    )
    veiled.change(None, [veiled], None, js="(veiled) => window.LengthLab?.veil(veiled !== '')", **QUIET)


def root(place: str) -> str:
    """The id of what holds a place's form and its run."""
    return f"made-{place}"


def follows(place: str, form: Mapping[str, Any], go: gr.Button, matters: str = "() => true") -> None:
    """Veils a place's run. form: its parts by name. go: what runs it. matters: JavaScript that tells of a part's name,
    and the values of all by their names, whether that part counts.

    It comes before `go` is given the run: Gradio begins events of one press when those before have ended.
    """
    given = f"{json.dumps(place)}, {json.dumps([*form])}, values, {matters}"
    parts = [*form.values()]
    go.click(None, parts, None, js=f"(...values) => LengthLab.formPressed({given})", **QUIET)
    asks = f"(...values) => window.LengthLab?.formAsks({given})"
    gr.on([part.change for part in parts], None, parts, None, js=asks, **QUIET)


def _belongs(form: Form, values: Sequence[Any], shown: Trace) -> bool:
    """Whether a run is what the form asks for, or the turn before the question that is yet to be typed."""
    try:
        return same_run(form.settings(values), shown)
    except ValueError:
        chosen = dict(zip(form.parts, values, strict=True))
        return not (chosen["prompt"] or "").strip() and conversation.ends_with(chosen["talk"], shown)


def same_run(asked: RunSettings, shown: Trace) -> bool:
    """Whether a run is what the settings ask for: a target that was moved meanwhile is the last one, and what is
    watched is named on the charts."""
    last = shown.steps[-1].wanted if shown.steps else None
    free = {"watch"} | ({"target", "limit", "max_new_tokens"} if last == asked.goal and asked.steered else set())
    return asked.model_dump(exclude=free) == shown.settings.model_dump(exclude=free)
