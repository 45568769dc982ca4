"""What the page keeps in the visitor's browser, and gives back when it is opened anew: its forms and the last runs.

The server keeps nothing for it, so it outlives a restart, and a visitor's text stays with them. What comes back may be
anything: it passes the form's own ranges and choices, and a run what a loaded file passes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import gradio as gr
from pydantic import TypeAdapter, ValidationError

from app import branches, conversation, live
from app.branches import Answer, Tree
from app.buttons import QUIET
from app.series import PastRun
from app.view import PAST_KEPT
from backend.record.trace import Trace, TraceError

MAX_BYTES = 2_000_000
# The parts of the page's forms, by place and by name.
Forms = Mapping[str, Mapping[str, Any]]
_PAST = TypeAdapter(list[PastRun])

log = logging.getLogger("length_lab")


def follow(forms: Forms) -> None:
    """Lets the browser keep each form whenever one of its parts changes; the server hears nothing of it."""
    for place, parts in forms.items():
        names = json.dumps([place, [*parts]])[1:-1]
        gr.on(
            [part.change for part in parts.values()], None, [*parts.values()], None,
            js=f"(...values) => window.LengthLab?.keep({names}, values)", **QUIET,
        )  # fmt: skip


def read(text: str) -> dict[str, dict[str, Any]]:
    """The forms that a browser hands over as JSON: values by place and by name; what is no form is left out."""
    try:
        kept = json.loads(text or "{}")
    except ValueError:
        return {}
    forms = kept.items() if isinstance(kept, dict) else ()
    return {place: form for place, form in forms if isinstance(form, dict)}


def given_back(parts: Mapping[str, Any], form: Mapping[str, Any]) -> list[Any]:
    """Values of a form's parts: those that were kept and that the parts can have, the others as they are."""
    return [_fitting(part, form.get(name)) for name, part in parts.items()]


def _fitting(part: Any, value: Any) -> Any:
    if fits(part, value):
        return value
    # To skip a part of this kind takes its options from it where its tab was not opened yet.
    return part.value if isinstance(part, gr.HTML) else gr.skip()


def fits(part: Any, value: Any) -> bool:
    """Whether a part of a form could have been given that value on the page."""
    match part:
        case gr.Textbox():
            return isinstance(value, str)
        case gr.Checkbox():
            return isinstance(value, bool)
        case gr.Slider() | gr.Number():
            low, high = (-math.inf if part.minimum is None else part.minimum), part.maximum
            number = isinstance(value, int | float) and not isinstance(value, bool)
            whole = part.precision != 0 or (number and float(value).is_integer())
            return number and whole and low <= value <= (math.inf if high is None else high)
        case gr.HTML() if part.elem_id == "conversation":
            return conversation.fits(value)
        case gr.CheckboxGroup():
            return isinstance(value, list) and all(_among(each, _choices(part)) for each in value)
        case _:
            return _among(value, _choices(part))


def _choices(part: Any) -> list[Any]:
    """What is to choose from: of Gradio's own parts, or of `live.choice`."""
    if isinstance(part, gr.HTML):
        return [option["id"] for option in part.props["options"]]
    return [value for _, value in part.choices]


def _among(value: Any, choices: Sequence[Any]) -> bool:
    return any(type(value) is type(each) and value == each for each in choices)


def frames(place: str, figures: str) -> dict[str, Any]:
    """How the browser keeps the last frame of a place's last run, of MAX_BYTES at most, and shows it again without the
    server. figures: the name of those that say where it is too large. Another version of the page cannot draw it."""
    version = hashlib.sha256(live.script().encode()).hexdigest()[:12]
    return {"place": place, "figures": figures, "most": MAX_BYTES, "version": version}


def packed(trace: Trace | None, past: Sequence[PastRun], tree: Tree) -> str:
    """A run as the browser keeps it: in its tree, where it stands in one that fits in MAX_BYTES with it, else alone. A
    trace of more than that is left out."""
    run, rows, signs = "", [], MAX_BYTES * 4 // 3
    with suppress(TraceError):
        rows = branches.packed(tree, trace, signs)
    with suppress(TraceError):
        run = Answer(trace).packed if trace and not rows else ""
    large = len(run) > signs or (trace is not None and not run and not rows)
    return json.dumps({
        "trace": "" if large else run, "past": [asdict(each) for each in past], "large": large,
        "tree": rows, "shown": branches.named(tree, trace) if rows else "",
    })  # fmt: skip


def unpacked(text: str) -> tuple[Trace | None, list[PastRun], Tree]:
    """The inverse of `packed`, of whatever the browser hands over: what is damaged is left out."""
    try:
        run = json.loads(text)
        data, past = base64.b64decode(run["trace"]), _PAST.validate_python(run["past"])[-PAST_KEPT:]
        if rows := run.get("tree"):
            tree = branches.unpacked(rows)
            return tree[run["shown"]].trace, past, tree
        return (Trace.load(data) if data and len(data) <= MAX_BYTES else None), past, {}
    except (ValueError, LookupError, TypeError, OSError, OverflowError, EOFError, zlib.error, ValidationError) as error:
        log.info("what a browser kept of a run is left out: %s", error)
        return None, [], {}


def opens(load: Callable[..., Any], js: str, fn: Callable[..., Any], outputs: Sequence[Any]) -> Any:
    """Hands what the browser keeps to `fn` when the page opens. js: the call of the page's script that gathers it."""
    gathered = gr.Textbox(visible="hidden")
    # The page's script may come after the page's opening.
    waits = "while (!window.LengthLab) await new Promise((resolve) => setTimeout(resolve, 20))"
    js = f"async () => {{ {waits}; return [await LengthLab.{js}] }}"
    return load(fn, [gathered], outputs, js=js, concurrency_limit=None, **QUIET)
