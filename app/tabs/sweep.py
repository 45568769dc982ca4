"""The sweep of the Compare tab: every prompt under every method, target and seed, a table and a chart that grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import gradio as gr
import orjson

from app import controls, kept, lanes, live, model, outcome, plans, setting, swept, toasts, veil
from app.buttons import QUIET, Buttons
from app.charts.base import encode
from app.frames import Frame
from app.model import ModelChoice
from app.numbers import in_range
from app.runs import Run, Runs, batches
from app.swept import Plan
from app.tabs.generate import Adapters
from app.taking_up import Place
from app.view import failed, sentence
from backend.inference.control import Control
from backend.refused import Refused
from backend.settings import RunSettings, counted
from backend.sweep import as_row, finishes

PLACE: Final = "sweep"
WAYS = ("Settings side by side", "A sweep over prompts")
ROWS = 8
METHODS = ("prompted", "ldpe")
PROMPTS = "\n".join(list(controls.PROMPTS.values())[:3])
FIGURES = (("done", "Answers"), ("tokens", "Tokens"), ("left", "Time left"))
HINT = "How many tokens, words or characters each method wrote, and what it makes of a target, shows here."
POINTS = "A box for each method, every answer a point; the lines are the targets."
WRITING = "Answers are written side by side: each is in the table once it has ended."
LABELS = {"temperature": "Temperature"}


def ways() -> gr.Radio:
    """The choice between settings side by side and a sweep; sweep.css shows the one that is chosen, and tabs.js
    puts it into the page's address."""
    return gr.Radio([*WAYS], value=WAYS[0], show_label=False, container=False, elem_id="c-way", interactive=True)


def build(
    lab: Any, runs: Runs, adapters: Adapters, opens: Callable[..., Any]
) -> tuple[dict[str, Any], Place]:
    """Makes it where it is called; returns its form's parts by name, and where it shows runs.

    opens: the event of the page's opening.
    """
    choice = model.build(lab.models.names(), "s-")
    form, about, buttons = _form(choice, adapters(choice.model.value))
    live.figures(PLACE, FIGURES)
    queue = gr.HTML("", apply_default_css=False, elem_classes=["ll", "ll-queue"])
    live.answers("sweep-outcomes", "By method and target", HINT, written=False)
    live.chart("s-sweep", "Lengths by target", POINTS, encode(swept.picture([])))
    live.table("sweep-table", "Answers", swept.HEADS, "length-lab-sweep.csv")
    stream = live.stream(keeps=kept.frames(PLACE, PLACE))
    inputs = [*form.values()]
    opens(_estimate, inputs, [about], queue=False, **QUIET)
    gr.on(
        [part.change for part in inputs], _estimate, inputs, [about], queue=False, trigger_mode="always_last",
        js=in_range(inputs), **QUIET,
    )  # fmt: skip

    def methods(can: Any, chosen: Sequence[str]) -> dict[Any, Any]:
        there = controls.offered(controls.method_options(adapters(can.model), can))
        names = [name for _, name in there if name in chosen]
        return {form["methods"]: gr.update(choices=there, value=names)}

    choice.tells(lab, opens, methods, [form["methods"]], [form["methods"]])
    veil.follows(PLACE, form, buttons.go, "(name, form) => name !== 'typed' || !form.given")
    buttons.starts(runs, _sweeping(lab, runs), inputs, [stream], queue, PLACE)
    buttons.shares(form)
    return form, Place(stream, buttons)


def _form(
    choice: ModelChoice, missing: Mapping[Any, str | None]
) -> tuple[dict[str, Any], gr.HTML, Buttons]:
    """What is asked for by its name, what is said of it, and the buttons."""
    with gr.Row(elem_classes=["ll-panel", "ll-common"]):
        with gr.Column(scale=3, min_width=280):
            given, typed = _prompts()
        with gr.Column(scale=3, min_width=280):
            there = controls.offered(controls.method_options(missing))
            chosen = [name for _, name in there if name in METHODS]
            methods = gr.CheckboxGroup(there, value=chosen, label="Methods", elem_id="s-methods")
            with gr.Row():
                targets = gr.Textbox("20, 60", label="Targets or limits", elem_id="s-targets", min_width=110)
                seeds = gr.Textbox("0", label="Seeds", elem_id="s-seeds", min_width=90)
            with gr.Row():
                unit = setting.control("unit", elem_id=None, min_width=110)
                temperature = setting.control("temperature", typed=True, step=0.1, min_width=90)
        with gr.Column(scale=2, min_width=240):
            choice.model.render()
            choice.parts["precision"].render()
            # Nothing of a sweep is watched.
            with gr.Row(visible=False):
                choice.parts["layer"].render()
                choice.parts["head"].render()
            about = live.note(elem_id="s-about")
            with gr.Row(elem_classes=["ll-buttons"]):
                go = gr.Button("Sweep", variant="primary", elem_classes=["ll-go"], elem_id="s-go", min_width=90)
                stop = gr.Button("Stop", elem_classes=["ll-stop"], elem_id="s-stop", min_width=70, interactive=False)
                link = gr.Button("Copy link", elem_id="s-link", min_width=90)
    form = {"given": given, "typed": typed, "methods": methods, "targets": targets, "seeds": seeds, "unit": unit,
            "temperature": temperature, "model": choice.model, "precision": choice.parts["precision"]}
    return form, about, Buttons(PLACE, go, stop, link=link)


def _prompts() -> tuple[gr.Textbox, gr.Textbox]:
    """The prompts of a file, which go before those that are typed, and these. Those of a file are held by the page, so
    that the browser keeps them as it keeps the rest of the form."""
    given = gr.Textbox("", visible="hidden")
    typed = gr.Textbox(PROMPTS, label="Prompts, one a line", lines=5, max_lines=10, elem_id="s-typed")
    with gr.Row(elem_classes=["ll-files"]):
        upload = gr.UploadButton(
            "Upload a CSV of prompts", size="sm", file_types=[".csv"], elem_id="s-upload", min_width=150
        )
        drop = gr.Button("Back to what is typed", size="sm", elem_id="s-drop", visible=False, min_width=130)
    note = live.note("Its first line names its columns; one of them is prompt.", elem_id="s-file")

    def taken(path: str) -> str:
        try:
            return swept.uploaded(Path(path)).packed()
        except ValueError as error:
            raise toasts.refusal(sentence(error), "The file was not taken") from error

    def shown(packed: str) -> list[Any]:
        file = swept.File.of(packed)
        words = f"{counted(len(file.prompts), 'prompts')} of {file.name}, in the place of what is typed."
        there = bool(file.prompts)
        note = live.noted(words, "good") if there else live.noted("")
        return [note, gr.update(visible=there), gr.update(interactive=not there)]

    upload.upload(taken, [upload], [given], **QUIET)
    drop.click(lambda: "", None, [given], **QUIET)
    given.change(shown, [given], [note, drop, typed], **QUIET)
    return given, typed


def _estimate(*values: Any) -> str:
    try:
        plan = Plan.of(*values)
    except ValueError as error:
        return live.noted(sentence(error, LABELS), "bad")
    return live.noted(plan.words())


def _sweeping(lab: Any, runs: Runs) -> Callable[..., Iterator[str]]:
    """The event of the button."""

    def sweep(request: gr.Request, *values: Any) -> Iterator[str]:
        try:
            plan = Plan.of(*values)
            with runs.started(request.session_hash, control := Control(), PLACE) as run:
                yield from lanes.streamed(run, _frames(lab, plan.cases, control, run))
        except Exception as error:
            yield failed(PLACE, error, "The sweep could not be made", LABELS)

    return sweep


@dataclass
class Table:
    """What has come of a sweep. run: its name; cases: how many are to come; rows: by their number, as they ended."""

    run: str
    cases: int
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    since: float = field(default_factory=time.monotonic)

    def frame(self, state: str, message: str) -> Frame:
        """All of it, with a word about how it stands."""
        done, spent = len(self.rows), time.monotonic() - self.since
        left = plans.duration(spent * (self.cases / done - 1)) if done and state == "busy" else "–"
        figures = live.fill(
            done=f"{done} of {self.cases}", tokens=f"{sum(row['tokens'] for row in self.rows.values()):,}", left=left,
            progress=done / self.cases, state=state, message=message,
        )  # fmt: skip
        table = swept.table(self.rows)
        parts = {
            PLACE: figures, "s-sweep": encode(swept.picture(table), self.run, done),
            "sweep-outcomes": orjson.dumps(swept.outcomes(table)).decode(),
        }  # fmt: skip
        return Frame(parts, {"sweep-table": swept.pieces(self.run, self.rows)}, running=True)


def _frames(lab: Any, cases: Sequence[RunSettings], control: Control, run: Run) -> Iterator[Frame]:
    """The table and what is drawn of it, until all have ended or were stopped."""
    table = Table(run.stream.name, len(cases))
    yield table.frame("busy", WRITING)
    try:
        for found in batches(finishes(lab, cases, control, ROWS), lanes.PERIOD):
            table.rows |= {number: as_row(cases[number], one) for number, one in found}
            run.outcomes += [outcome.answer("", cases[number], one) for number, one in found]
            yield table.frame("busy", WRITING)
    except Refused as error:
        yield table.frame("bad", f"{sentence(error)} What had ended before is kept.")
        return
    stopped = "Stopped: what had ended is kept." if control.stopped else ""
    yield table.frame("good", stopped or "All answers are in the table.")
