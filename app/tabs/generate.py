"""The Lab tab: one run with all settings, streamed and seen from inside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import gradio as gr

from app import charts, controls, conversation, embed, live, model, presets, replay, toasts, veil
from app.branches import Branch, Tree, chosen, grown, shown
from app.buttons import QUIET, Buttons, Start
from app.controls import Form
from app.exports import EXPORTS, IN_LANGUAGE, exporter
from app.kept import unpacked
from app.model import ModelChoice
from app.numbers import in_range
from app.orphans import Orphan
from app.runs import Run, Runs
from app.series import PastRun, RunSeries
from app.share import about_of, from_query, to_query
from app.steering import steering
from app.store import Store
from app.taking_up import Place
from app.view import ABOUT, FIELDS, View, failed, follow, sentence
from backend.inference.control import Control
from backend.record.trace import Trace, TraceError
from backend.refused import Refused
from backend.settings import RunSettings

PLACE: Final = "generate"
# Why each length method cannot be used on a model, or None where it can.
Adapters = Callable[[str], Mapping[Any, str | None]]


@dataclass
class Parts:
    """The tab's components that events touch.

    text: of the answer, where a token can be chosen. stream: shows a `View.frame`. previews: the charts of the policy.
    kept: the answers that branch from one another, which `tree` shows.
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
    kept: gr.State
    tree: gr.HTML

    @property
    def left(self) -> list[Any]:
        """What a run leaves when it has ended, beside its last frame."""
        return [self.past, self.trace, self.kept]


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
    steering(form, parts.wrap, runs, PLACE)
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
            tree = live.branches()
            go_on = gr.Button("Go on: ask the next question", size="sm", elem_id="go-on")
            stream = live.stream(View.of(first).frame() if first else None)
            with gr.Row(elem_classes=["ll-grid"]):
                live.charts(PLACE, [], preview=False)
    view.change(None, [view], None, js="(v) => document.body.classList.toggle('advanced', v === 'Advanced')")
    reset.click(lambda: form.values({}), None, form.inputs, **QUIET)
    buttons = Buttons(PLACE, go, stop, [wrap], [*resting, go_on])
    state = (gr.State([]), gr.State(None), gr.State({}), tree)
    return Parts(form, text, buttons, wrap, go_on, queue, figures, stream, previews, *state)


def _generation(parts: Parts, lab: Any, runs: Runs, first: Trace | None) -> None:
    """Generate, Stop, and going on from a token of the answer."""

    def written(
        session: str | None, settings: RunSettings, past: list[PastRun], tree: Tree, branch: Branch | None = None
    ) -> Iterator[list[Any]]:
        with runs.started(session, Control(), PLACE) as run:
            yield [run.stream.invitation, *[gr.skip()] * 3]
            for view in follow(lab, settings, run, past, branch=branch):
                if not view.ended:
                    run.stream.show(view.frame())
            view.tree = grown(tree, branch, view.trace)
            yield [run.ends(view.frame()), *view.leaves()]

    def refused(error: Exception) -> list[Any]:
        words = failed("run", error, "This run could not be made", parts.form.labels)
        return [words, *[gr.skip()] * 3]

    def write(request: gr.Request, past: list[PastRun], *values: Any) -> Iterator[list[Any]]:
        try:
            yield from written(request.session_hash, parts.form.settings(values), past, {})
        except Exception as error:
            yield refused(error)

    def go_on(
        request: gr.Request, asked: str, trace: Trace | None, past: list[PastRun], tree: Tree
    ) -> Iterator[list[Any]]:
        try:
            if (answer := trace or first) is None:
                raise Refused("there is no answer to go on from yet: press Generate")
            branch = Branch.of(answer, asked)
            yield from written(request.session_hash, branch.settings, past, tree, branch)
        except Exception as error:
            yield refused(error)

    parts.buttons.starts(
        runs,
        write,
        [parts.past, *parts.form.inputs],
        [parts.stream, *parts.left], parts.queue, "run",
        [Start(parts.text.input, go_on, [parts.text, parts.trace, parts.past, parts.kept])],
    )

    def shown_branch(value: str, tree: Tree, past: list[PastRun]) -> list[Any]:
        trace = chosen(tree, value)
        return [gr.skip()] * 2 if trace is None else [trace, View.of(trace, past).frame().encode()]

    parts.tree.input(shown_branch, [parts.tree, parts.kept, parts.past], [parts.trace, parts.stream], **QUIET)
    parts.trace.change(lambda trace, tree: shown(tree, trace), [parts.trace, parts.kept], [parts.tree], **QUIET)


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
        with runs.started(request.session_hash, Control(), PLACE) as run:
            yield run.stream.invitation
            async for frame in replay.frames(trace, lambda: run.control.stopped):
                run.stream.show(frame)
            yield run.ends(frame)

    parts.buttons.busy_during(files.replay)
    replayed = files.replay.click(again, [parts.trace], [parts.stream], concurrency_limit=None, **QUIET)
    parts.buttons.free_after(replayed)


def place(parts: Parts) -> Place:
    """Where the tab shows a run that was taken up, and what that leaves."""
    return Place(parts.stream, parts.buttons, parts.left, _left)


def _left(run: Run | Orphan) -> list[Any]:
    view = run.view
    return view.leaves() if view else [gr.skip()] * 3


def shown_again(text: str) -> list[Any]:
    """The earlier runs, the trace, its branches and the frame of a run that the browser kept."""
    trace, past, tree = unpacked(text)
    if trace is None:
        return [past or gr.skip(), *[gr.skip()] * 3]
    return [past or gr.skip(), trace, tree, View.of(trace, past).frame().encode()]


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
