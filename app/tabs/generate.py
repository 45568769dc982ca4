"""The Lab tab: one run with all settings, streamed and seen from inside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import gradio as gr

from app import charts, controls, conversation, embed, live, model, presets, replay, toasts, veil
from app.branches import WHOLE, Branch, Tree, branches_of, grown, holds, stands
from app.buttons import QUIET, Buttons, Start
from app.controls import Form
from app.exports import EXPORTS, IN_LANGUAGE, exporter
from app.kept import unpacked
from app.model import ModelChoice
from app.numbers import in_range
from app.replay import Replay
from app.runs import Runs
from app.series import PastRun, RunSeries
from app.share import about_of, from_query, to_query
from app.store import Store
from app.taking_up import Place
from app.view import ABOUT, FIELDS, View, failed, follow, sentence
from backend.inference.control import Control
from backend.methods import methods
from backend.record.trace import Trace, TraceError
from backend.refused import Refused
from backend.settings import MAX_TARGET, RunSettings

PLACE: Final = "generate"
WRAP_UP = {"tokens": 15, "words": 12, "characters": 70}
# Why each length method cannot be used on a model, or None where it can.
Adapters = Callable[[str], Mapping[Any, str | None]]


@dataclass
class Parts:
    """The tab's components that events touch.

    text: of the answer, where a token can be chosen. stream: shows a `View.frame`. previews: the charts of the policy.
    kept: the answers that branch from one another, by their names on `tree`, which shows one of them.
    """

    form: Form
    text: gr.HTML
    buttons: Buttons
    wrap: gr.Button
    go_on: gr.Button
    queue: gr.HTML
    figures: gr.HTML
    stream: gr.HTML
    previews: list[gr.HTML]
    past: gr.State
    trace: gr.State
    tree: gr.Radio
    kept: gr.State


def build(lab: Any, runs: Runs, adapters: Adapters, store: Store, opens: Callable[..., Any]) -> Parts:
    """Makes the tab where it is called.

    adapters: why a length method cannot be used on a model, or None. opens: the event of the page's opening.
    """
    first = next(iter(presets.recorded().values()), None)
    choice = model.build(lab.models.names())
    with gr.Row(elem_classes=["ll-toolbar"]):
        choose = _preset_buttons()
        files = _file_buttons()
    resting = [*choose.values(), files.replay, files.load]
    parts = _layout(choice, adapters(choice.model.value), first, resting)
    form = parts.form
    choice.tells(
        lab,
        opens,
        lambda can: controls.gates(form, can, adapters(can.model)),
        [form.limit, form.method, form.pic, form.windowed, form.window],
    )
    _generation(parts, lab, runs, first)
    _steering(parts, runs)
    _conversing(parts, first)
    veil.build(form, parts.trace, runs, PLACE, first)
    gr.on(
        [part.change for part in form.policy],
        _previewer(form, parts.previews),
        form.inputs,
        parts.previews,
        queue=False,
        trigger_mode="always_last",
        js=in_range(form.inputs),
        **QUIET,
    )
    for title, button in choose.items():
        button.click(_show_preset(form, title), None, [parts.trace, parts.stream, *form.inputs], **QUIET)
    _files(files, parts, runs, store, first)
    return parts


def _preset_buttons() -> dict[str, gr.Button]:
    with gr.Row(elem_classes=["ll-presets"]):
        gr.HTML("<span>Recorded runs</span>", apply_default_css=False, elem_classes=["ll"])
        return {title: gr.Button(title, size="sm", min_width=60) for title in presets.recorded()}


def _layout(
    choice: ModelChoice,
    missing: Mapping[Any, str | None],
    first: Trace | None,
    resting: Sequence[Any],
) -> Parts:
    settings = first.settings if first else RunSettings(prompt=controls.DEFAULT_PROMPT)
    with gr.Row(elem_classes=["ll-bench"], equal_height=False):
        with gr.Column(elem_classes=["ll-side"], scale=0, min_width=340):
            talk = live.conversation(conversation.EMPTY)
            prompt = gr.Textbox(
                settings.prompt, label="Prompt", lines=3, max_lines=10, elem_id="prompt",
                placeholder="What should the model answer?", info="Ctrl + Enter generates, Esc stops",
            )  # fmt: skip
            gr.Examples(
                [[text] for text in controls.PROMPTS.values()],
                [prompt],
                label="Examples",
                elem_id="examples",
                example_labels=list(controls.PROMPTS),
            )
            with gr.Row(elem_classes=["ll-buttons"]):
                go = gr.Button("Generate", variant="primary", elem_classes=["ll-go"], elem_id="go", min_width=110)
                stop = gr.Button("Stop", elem_classes=["ll-stop"], elem_id="stop", min_width=70, interactive=False)
                wrap = gr.Button("Wrap up now", elem_id="wrap", min_width=110, interactive=False)
            queue = gr.HTML("", apply_default_css=False, elem_id="queue", elem_classes=["ll", "ll-queue"])
            with gr.Row(elem_classes=["ll-view"]):
                view = gr.Radio(
                    ["Simple", "Advanced"], value="Simple", show_label=False, container=False, elem_id="view", scale=2
                )
                reset = gr.Button("Reset", size="sm", elem_id="reset", min_width=60, scale=1)
            previews = live.charts(PLACE, [RunSeries(settings)], preview=True, render=False)
            form = controls.build(prompt, talk, choice, missing, previews)
            controls.open_with(form, settings)
        with gr.Column(elem_classes=["ll-stage"], scale=1, min_width=320):
            figures = live.figures("run", FIELDS, ABOUT)
            text = live.response("run", "Response", branches=True)
            tree = gr.Radio(
                [], label="Branches", visible=False, elem_id="branches",
                info="Choose a token of the answer, and another in its place, to go on from there.",
            )  # fmt: skip
            go_on = gr.Button("Go on: ask the next question", size="sm", elem_id="go-on")
            stream = live.stream(View.of(first).frame() if first else None)
            with gr.Row(elem_classes=["ll-grid"]):
                live.charts(PLACE, [], preview=False)
    view.change(None, [view], None, js="(v) => document.body.classList.toggle('advanced', v === 'Advanced')")
    reset.click(lambda: form.values({}), None, form.inputs, **QUIET)
    buttons = Buttons(PLACE, go, stop, [wrap], [*resting, go_on])
    state = (gr.State([]), gr.State(None), tree, gr.State({}))
    return Parts(form, text, buttons, wrap, go_on, queue, figures, stream, previews, *state)


def _generation(parts: Parts, lab: Any, runs: Runs, first: Trace | None) -> None:
    """Generate, Stop, and going on from a token of the answer."""

    def written(
        session: str | None, settings: RunSettings, past: list[PastRun], tree: Tree, branch: Branch | None = None
    ) -> Iterator[list[Any]]:
        with runs.started(session, Control(), PLACE) as run:
            yield [run.stream.invitation, *[gr.skip()] * 4]
            for view in follow(lab, settings, run, past, branch=branch):
                if not view.ended:
                    run.stream.show(view.frame())
            tree = grown(tree, branch, view.trace)
            yield [run.ends(view.frame()), view.remembered(), view.trace, tree, branches_of(tree)]

    def refused(error: Exception) -> list[Any]:
        words = failed("run", error, "This run could not be made", parts.form.labels)
        return [words, *[gr.skip()] * 4]

    def write(request: gr.Request, past: list[PastRun], *values: Any) -> Iterator[list[Any]]:
        try:
            yield from written(request.session_hash, parts.form.settings(values), past, {})
        except Exception as error:
            yield refused(error)

    def go_on(
        request: gr.Request, asked: str, trace: Trace | None, past: list[PastRun], tree: Tree
    ) -> Iterator[list[Any]]:
        try:
            if (shown := trace or first) is None:
                raise Refused("there is no answer to go on from yet: press Generate")
            branch = Branch.of(shown, asked)
            begun = tree if holds(tree, shown) else {WHOLE: shown}
            yield from written(request.session_hash, branch.settings, past, begun, branch)
        except Exception as error:
            yield refused(error)

    parts.buttons.starts(
        runs,
        write,
        [parts.past, *parts.form.inputs],
        [parts.stream, parts.past, parts.trace, parts.kept, parts.tree],
        parts.queue,
        "run",
        [Start(parts.text.input, go_on, [parts.text, parts.trace, parts.past, parts.kept])],
    )

    def shown_branch(name: str, tree: Tree, past: list[PastRun]) -> list[Any]:
        trace = tree.get(name)
        return [gr.skip()] * 2 if trace is None else [trace, View.of(trace, past).frame().encode()]

    parts.tree.input(shown_branch, [parts.tree, parts.kept, parts.past], [parts.trace, parts.stream], **QUIET)
    parts.trace.change(stands, [parts.trace, parts.kept], [parts.tree], **QUIET)


def _conversing(parts: Parts, first: Trace | None) -> None:
    """Keeps a run's question and answer above the prompt, which is then free for the next question."""

    def next_question(trace: Trace | None, talk: str) -> list[str]:
        try:
            return [conversation.grown(talk, trace or first), ""]
        except ValueError as error:
            raise toasts.refusal(sentence(error), "Nothing to go on from") from error

    form = parts.form
    asked = parts.go_on.click(next_question, [parts.trace, form.talk], [form.talk, form.prompt], **QUIET)
    asked.success(None, None, None, js="() => document.querySelector('#prompt textarea').focus()", **QUIET)


def _steering(parts: Parts, runs: Runs) -> None:
    """What changes a run while it streams: the target, an early end, the head that is watched."""
    form = parts.form

    def retarget(request: gr.Request, goal: float | None) -> None:
        run = runs.of(request.session_hash, PLACE)
        if not run or not run.view or not goal or not 1 <= goal <= MAX_TARGET:
            return
        if methods[run.view.series.settings.method].retargets:
            run.control.retarget(int(goal))

    def wrap(request: gr.Request) -> list[Any]:
        run = runs.of(request.session_hash, PLACE)
        if not run or not run.view or not len(run.view.series):
            return [gr.skip()] * 2
        series = run.view.series
        if not methods[series.settings.method].retargets:
            toasts.inform("This method cannot change its target while it writes. Choose Push the end or a countdown.")
            return [gr.skip()] * 2
        goal = near_target(series)
        retarget(request, goal)
        shown = [goal, gr.skip()]
        return shown[::-1] if series.settings.limited else shown

    def watch(request: gr.Request, layer: int, head: int) -> None:
        if run := runs.of(request.session_hash, PLACE):
            run.control.watch(layer, head)

    quiet = QUIET | {"queue": False}
    for slider in (form.target, form.limit):
        events = [slider.input, slider.release]
        gr.on(events, retarget, [slider], None, trigger_mode="always_last", js=in_range([slider]), **quiet)
    # Only what comes through the queue can bring a message with it.
    parts.wrap.click(wrap, None, [form.target, form.limit], concurrency_limit=None, **QUIET)
    gr.on([form.layer.input, form.head.input], watch, [form.layer, form.head], None, **quiet)


def near_target(series: RunSeries) -> int:
    """A target for a run that is to end soon, never beyond the one it has."""
    goal = series.produced[-1] + WRAP_UP[series.settings.unit]
    return min(goal, series.target[-1] or MAX_TARGET)


def _previewer(form: Form, previews: Sequence[gr.HTML]) -> Callable[..., Any]:
    def preview(*values: Any) -> Any:
        chosen = dict(zip(form.parts, values, strict=True))
        # An empty prompt is no reason to hide what the policy does.
        chosen["prompt"] = (chosen["prompt"] or "").strip() or "…"
        try:
            run = RunSeries(form.settings(list(chosen.values())))
            return dict(zip(previews, charts.previews(PLACE, [run]), strict=True))
        except ValueError:
            return gr.skip()

    return preview


def _show_preset(form: Form, title: str) -> Callable[[], list[Any]]:
    def show() -> list[Any]:
        trace = presets.recorded()[title]
        return [trace, View.of(trace).frame().encode(), *form.values(trace.settings)]

    return show


@dataclass
class Files:
    """The buttons for links and files; `file` and `link` stay out of sight and carry what is handed over."""

    share: gr.Button
    embed: gr.Button
    replay: gr.Button
    load: gr.UploadButton
    exports: dict[str, gr.Button]
    file: gr.DownloadButton
    link: gr.Textbox


def _file_buttons() -> Files:
    with gr.Row(elem_classes=["ll-unseen"]):
        file = gr.DownloadButton("Run", visible="hidden", elem_id="file")
        link = gr.Textbox(visible="hidden", elem_id="link")
    with gr.Row(elem_classes=["ll-files"]):
        return Files(
            share=gr.Button("Copy link", size="sm", elem_id="share", min_width=60),
            embed=gr.Button("Copy embed code", size="sm", elem_id="embed", min_width=60),
            replay=gr.Button("Replay", size="sm", elem_id="replay", min_width=60),
            load=gr.UploadButton("Load", size="sm", file_types=[".json", ".gz"], elem_id="load", min_width=60),
            exports={
                name: gr.Button(name, size="sm", elem_id=f"export-{name.lower()}", min_width=50) for name in EXPORTS
            },
            file=file,
            link=link,
        )


def _files(files: Files, parts: Parts, runs: Runs, store: Store, first: Trace | None) -> None:
    """Share, export, load and replay."""

    def make_link(*values: Any) -> str:
        try:
            talk = dict(zip(parts.form.parts, values, strict=True))["talk"]
            return to_query(parts.form.settings(values), conversation.abouts(talk))
        except ValueError as error:
            raise toasts.refusal(sentence(error, parts.form.labels), "No link was made") from error

    files.share.click(make_link, parts.form.inputs, [files.link], **QUIET).success(
        None, [files.link], None, js="(query) => LengthLab.share(query)"
    )
    embed.offers(files.embed, [parts.trace], lambda trace: embed.of_run(trace or first))
    for name in EXPORTS:
        asked = [parts.trace, files.link]
        export = files.exports[name].click(exporter(name, first, store), asked, [files.file], js=IN_LANGUAGE, **QUIET)
        export.success(None, None, None, js="() => setTimeout(() => document.querySelector('#file').click(), 50)")

    def loaded(path: str) -> list[Any]:
        try:
            trace = Trace.load(Path(path))
        except TraceError as error:
            raise toasts.refusal(sentence(error), "The file was not loaded") from error
        if parts.form.lacks(trace.settings.model):
            toasts.warn(_lacking("file", trace.settings.model), "File")
        return [trace, View.of(trace).frame().encode(), *parts.form.values(trace.settings)]

    files.load.upload(loaded, [files.load], [parts.trace, parts.stream, *parts.form.inputs], **QUIET)

    async def again(request: gr.Request, trace: Trace | None) -> AsyncIterator[str]:
        trace = trace or first
        if trace is None:
            toasts.inform("There is no run to replay yet: press Generate.")
            return
        with runs.started(request.session_hash, Replay(), PLACE) as run:
            yield run.stream.invitation
            async for frame in replay.frames(trace, lambda: run.control.stopped):
                run.stream.show(frame)
            yield run.ends(frame)

    parts.buttons.busy_during(files.replay)
    replayed = files.replay.click(again, [parts.trace], [parts.stream], concurrency_limit=None, **QUIET)
    parts.buttons.free_after(replayed)


def place(parts: Parts) -> Place:
    """Where the tab shows a run that was taken up, and what that leaves."""
    left = [parts.past, parts.trace]
    return Place(parts.stream, parts.buttons, left, lambda view: (view.remembered(), view.trace))


def shown_again(text: str) -> list[Any]:
    """The trace, the earlier runs and the frame of a run that the browser kept."""
    trace, past = unpacked(text)
    return [trace or gr.skip(), past or gr.skip(), View.of(trace, past).frame().encode() if trace else gr.skip()]


def restored(form: Form, query: dict[str, str]) -> tuple[list[Any], str]:
    """The form's values for a link, and what to say about it; nothing changes without a parameter of ours."""
    values, problems = from_query(query)
    if form.lacks(values.get("model", form.model.value)):
        problems.append(_lacking("link", values.pop("model")))
    for problem in problems:
        toasts.warn(problem, "Link")
    for name in form.beyond(values):
        toasts.warn(f"The link's {name} is beyond this page's range and was cut to it.", "Link")
    if not values:
        return [gr.skip()] * len(form.inputs), ""
    shown = form.values({"prompt": controls.DEFAULT_PROMPT} | values, about_of(query))
    return shown, "Settings taken from the link: press Generate."


def _lacking(source: str, name: str) -> str:
    return (
        f"The {source}'s model was left out: '{name:.80}' is not on this lab's list. Choose another, or start the lab "
        "with --allow-model and its name."
    )
