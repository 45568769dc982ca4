"""The Compare tab: one prompt under two to four settings, written at once, on shared axes; with as many seeds as one
likes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import gradio as gr

from app import cap, carried, charts, columns, controls, kept, lanes, live, model, seeds, setting, toasts, veil
from app.buttons import QUIET, Buttons
from app.charts.base import encode
from app.columns import BOXES, COMMON, NAMES, OWN, describe
from app.comparison import Answers, Comparison
from app.controls import Form
from app.exports import COMPARED, compared_as
from app.frames import Frame
from app.model import ModelChoice, narrowed
from app.numbers import in_range
from app.presets import READING
from app.runs import Run, Runs
from app.series import RunSeries
from app.store import Store
from app.tabs.generate import Adapters
from app.taking_up import Place
from app.view import View, coming_words, ended_words, failed, sentence, went
from backend.inference.control import Control
from backend.methods import methods
from backend.models.capabilities import Capabilities
from backend.settings import LANDING, Method, RunSettings
from backend.steps import Progress

PLACE: Final = "compare"
# Of a form's parts all but those of columns that do not show.
SHOWS = "(name, form) => !/^[A-D]_/.test(name) || 'ABCD'.indexOf(name[0]) < form.count"
# As many as the Lab's slider has.
MOST_TOKENS = 4096
LENGTHS = (
    "How many answers have which length; the dotted lines are the targets. A sentence's end is known by its mark "
    "alone: the joint rate on the Evidence tab also asks the base model."
)
# What the page opens with: a length that is asked for, steered to as Try it steers, and steered to by another signal.
TARGET = 60
DEFAULTS: tuple[Mapping[str, Any], ...] = (
    {"method": "prompted", "landing": 0, "in_prompt": False},
    {"method": "ldpe", "landing": LANDING, "in_prompt": True},
    {"method": "orpe", "landing": LANDING, "in_prompt": True},
    {"method": "exp_decay", "landing": LANDING, "in_prompt": True},
)


@dataclass
class Slot:
    """The controls of one setting."""

    method: gr.Dropdown
    target: gr.Number
    landing: gr.Number
    in_prompt: gr.Checkbox
    pic: gr.Dropdown
    ratio: gr.Number
    window: gr.Number
    seed: gr.Number
    temperature: gr.Number

    @property
    def inputs(self) -> list[Any]:
        """In the order of OWN."""
        return [getattr(self, name) for name in OWN]


def build(
    lab: Any, runs: Runs, adapters: Adapters, store: Store, opens: Callable[..., Any]
) -> tuple[dict[str, Any], Place]:
    """Makes the tab where it is called; returns its form's parts by name, and where it shows runs.

    opens: the event of the page's opening.
    """
    choice = model.build(lab.models.names(), "c-")
    methods = _methods(adapters(choice.model.value))
    common, many, slots_shown, buttons = _common(choice)
    beside = _carried()
    live.figures("compare", (("setting", "Writing"), ("tokens", "Tokens"), ("speed", "Tokens/s")))
    queue = gr.HTML("", apply_default_css=False, elem_classes=["ll", "ll-queue"])
    slots, shown = _slots(methods, choice)
    own = [part for slot in slots for part in slot.inputs]
    inputs = [*choice.inputs, *common, many, slots_shown, beside, *own]
    made = gr.State(None)
    _saving(made, store)
    live.chart(seeds.CHART, "Lengths of all answers", LENGTHS, encode(seeds.picture([])), seldom=True)
    with gr.Row(elem_classes=["ll-grid", "ll-large"]):
        opening = [view.series for view in _views(columns.asked([part.value for part in inputs]))]
        previews = live.charts(PLACE, opening)
    stream = live.stream(Frame(charts.parts(PLACE, opening)), kept.frames(PLACE, "compare"))

    aims = [part for slot in slots for part in (slot.method, slot.target)]
    cap.follows(common[2], [common[1], slots_shown, *aims], columns.room)
    _follow_form(choice, inputs, slots_shown, shown, previews)
    _follow(choice, lab, adapters, slots, opens)
    labels = {name: part.label for name, part in zip((*COMMON, *OWN), [*choice.inputs, *common, *own], strict=False)}
    # What the methods that have one aim at stands in the same box.
    labels["limit"] = labels["target"]
    each = [f"{name}_{field}" for name in NAMES for field in OWN]
    form = dict(zip([*COMMON, "answers", "count", "carried", *each], inputs, strict=True))
    veil.follows(PLACE, form, buttons.go, SHOWS)
    buttons.starts(runs, _comparing(lab, runs, labels), inputs, [stream, made], queue, "compare")
    buttons.shares(form)
    return form, Place(stream, buttons, [made], lambda run: [run.made])


def leads_on(
    lab: Form, compared: Mapping[str, Any], adapters: Adapters, way: gr.Radio, tabs: gr.Tabs
) -> None:
    """Makes the button that takes the Lab's settings over as A; the others go on with what its model has. compared:
    this tab's form, by name."""
    with gr.Row(elem_classes=["ll-onward"]):
        go = gr.Button("Compare these settings with others", size="sm", elem_id="lab-compare")
    names = [*COMMON, *(f"A_{name}" for name in OWN)]
    before = [compared["model"], *(compared[f"{name}_method"] for name in NAMES[1:])]
    others = [compared[f"{name}_{field}"] for name in NAMES[1:] for field in ("method", "pic", "ratio")]

    def taken(*values: Any) -> list[Any]:
        own, (model_before, *chosen) = values[: -len(before)], values[-len(before) :]
        try:
            settings = lab.settings(own)
        except ValueError as error:
            raise toasts.refusal(sentence(error, lab.labels), "These settings were not taken over") from error
        given, beside = columns.taken_over(settings)
        choices = _methods(adapters(settings.model))
        given["method"] = gr.update(choices=choices, value=settings.method)
        boxes = [given[name.removeprefix("A_")] for name in names]
        moved = [update for method in chosen for update in _kept(method, settings.model, choices)]
        beside_a = [gr.skip()] * len(others) if settings.model == model_before else moved
        return [gr.Tabs(selected="compare"), way.value, beside, *boxes, *beside_a]

    boxes = [compared[name] for name in ("carried", *names)]
    filled = go.click(taken, [*lab.inputs, *before], [tabs, way, *boxes, *others], **QUIET)
    filled.success(None, None, None, js="() => { LengthLab.sweeps(false); scrollTo(0, 0) }", **QUIET)


def _common(choice: ModelChoice) -> tuple[list[Any], gr.Number, gr.Radio, Buttons]:
    """What all settings share, in the order of COMMON after the model's; how many answers each writes; how many there
    are; the buttons."""
    with gr.Row(elem_classes=["ll-panel", "ll-common"]):
        prompt = gr.Textbox(READING, label="Prompt", lines=2, max_lines=6, scale=4, elem_id="c-prompt")
        unit = setting.control("unit", scale=1, min_width=120, elem_id="c-unit")
        slots_shown = gr.Radio([2, 3, 4], value=3, label="Settings", scale=1, min_width=180, elem_id="c-count")
        many = gr.Number(
            1, label="Answers of each", precision=0, minimum=1, maximum=seeds.MOST, scale=1, min_width=110,
            info="Each with the next seed", elem_id="c-answers",
        )  # fmt: skip
        most = setting.control(
            "max_new_tokens", typed=True, maximum=MOST_TOKENS, scale=1, min_width=120, elem_id="c-cap"
        )
        choice.render()
        with gr.Row(elem_classes=["ll-buttons"]):
            go = gr.Button("Compare", variant="primary", elem_classes=["ll-go"], elem_id="c-go", min_width=110)
            stop = gr.Button("Stop", elem_classes=["ll-stop"], elem_id="c-stop", min_width=70, interactive=False)
            link = gr.Button("Copy link", elem_id="c-link", min_width=90)
    return [prompt, unit, most], many, slots_shown, Buttons(PLACE, go, stop, link=link)


def _carried() -> gr.Textbox:
    """What the Lab gave beside the boxes here: a box out of sight, the line that names it, and a way to drop it."""
    beside = gr.Textbox("", visible="hidden", elem_id="c-carried")
    with gr.Row(elem_classes=["ll-carried"], visible=False) as line:
        words = gr.HTML("", apply_default_css=False, elem_classes=["ll"], elem_id="c-beside")
        drop = gr.Button("Leave these out", size="sm", elem_id="c-drop", min_width=130)

    def named(text: str) -> list[Any]:
        said = carried.shown(text, BOXES)
        return [gr.update(visible=bool(said)), said]

    beside.change(named, [beside], [line, words], concurrency_limit=None, **QUIET)
    drop.click(None, None, [beside], js="() => ''", **QUIET)
    return beside


def _slots(methods: list[tuple[str, str]], choice: ModelChoice) -> tuple[list[Slot], list[gr.Column]]:
    with gr.Row(elem_classes=["ll-slots"]):
        slots, shown = [], []
        for name, defaults in zip(NAMES, DEFAULTS, strict=False):
            with gr.Column(
                elem_classes=["ll-panel", f"ll-slot-{name.lower()}"], visible=name != "D", min_width=240
            ) as column:
                live.heading(name, "")
                slots.append(_slot(defaults, methods, choice))
                live.response(f"c-{name.lower()}", f"Response {name}")
            shown.append(column)
    return slots, shown


def _follow_form(
    choice: ModelChoice, inputs: Sequence[Any], slots_shown: gr.Radio, shown: Sequence[gr.Column],
    previews: Sequence[gr.HTML],
) -> None:  # fmt: skip
    """Shows as many settings as are chosen, and what each makes of positions."""
    most, quiet = inputs[COMMON.index("max_new_tokens")], QUIET | {"queue": False}
    slots_shown.change(
        lambda chosen: [gr.update(visible=i < chosen) for i in range(len(NAMES))], [slots_shown], shown, **quiet
    )
    gr.on(
        [part.change for part in [choice.model, most, *inputs[len(COMMON) :]]],
        _previewer(previews),
        inputs,
        previews,
        trigger_mode="always_last",
        js=in_range(inputs),
        # A compression that another model takes away comes here before the layer that it takes away as well.
        preprocess=False,
        **quiet,
    )


def _saving(made: gr.State, store: Store) -> None:
    """Lets the comparison that was made last be saved."""
    with gr.Row(elem_classes=["ll-unseen"]):
        file = gr.DownloadButton("Comparison", visible="hidden", elem_id="c-file")
    with gr.Row(elem_classes=["ll-files"]):
        for name in COMPARED:
            save = gr.Button(f"Save as {name}", size="sm", elem_id=f"c-{name.lower()}", min_width=60)
            saved = save.click(compared_as(name, store), [made], [file], **QUIET)
            saved.success(None, None, None, js="() => setTimeout(() => document.querySelector('#c-file').click(), 50)")


def _comparing(lab: Any, runs: Runs, labels: Mapping[str, str]) -> Callable[..., Iterator[list[Any]]]:
    """The event of the button: the frames of a comparison, and in the end what came of it. labels: of the settings'
    boxes."""

    def compare(request: gr.Request, *values: Any) -> Iterator[list[Any]]:
        try:
            chosen, count = columns.asked(values), int(values[len(COMMON)] or 1)
            seeds.checked(chosen, count)
            with runs.started(request.session_hash, control := Control(), PLACE) as run:
                views = _views(chosen)
                run.made = Comparison([(view.series.name, view.trace) for view in views])
                for frame in lanes.streamed(run, _frames(lab, views, run, control, count, run.made.answers)):
                    yield [frame, run.made]
        except Exception as error:
            yield [failed("compare", error, "The comparison could not be made", labels), gr.skip()]

    return compare


def _slot(defaults: Mapping[str, Any], methods: list[tuple[str, str]], choice: ModelChoice) -> Slot:
    with gr.Row():
        method = gr.Dropdown(methods, value=_there(defaults["method"], methods), label="Method", min_width=100)
        target = gr.Number(TARGET, label="Target or limit", precision=0, minimum=1, min_width=80)
        landing = setting.control("landing", typed=True, value=defaults["landing"], info="0 is off", min_width=60)
    in_prompt = setting.control("in_prompt", typed=True, value=defaults["in_prompt"])
    with gr.Row():
        pic = gr.Dropdown(
            controls.offered(controls.pic_options(None)), value="none", label="Positions", min_width=100
        )
        ratio = setting.control("ratio", typed=True, min_width=60)
        window = gr.Number(0, label="Λ window", info="0 is off", precision=0, minimum=0, min_width=60)

    def as_trained(method: Method, name: str, *given: Any) -> list[Any]:
        return controls.as_trained(method, name, given)

    method.input(as_trained, [method, choice.model, pic, ratio], [pic, ratio], concurrency_limit=None, **QUIET)
    with gr.Row():
        seed = setting.control("seed", typed=True, min_width=80)
        temperature = setting.control("temperature", typed=True, step=0.1, min_width=90)
    return Slot(method, target, landing, in_prompt, pic, ratio, window, seed, temperature)


def _there(method: Method, methods: Sequence[tuple[str, str]]) -> Method:
    """A method, or the one that needs no adapter where the model lacks its own."""
    return method if any(value == method for _, value in methods) else "none"


def _follow(
    choice: ModelChoice, lab: Any, adapters: Adapters, slots: Sequence[Slot], opens: Callable[..., Any]
) -> None:
    """Lets every setting offer what the chosen model has: methods as soon as it is chosen, compressions once it is
    loaded."""
    pics = [slot.pic for slot in slots]

    def compressions(can: Capabilities, *chosen: str) -> dict[Any, Any]:
        choices = controls.offered(controls.pic_options(can))
        return {pic: narrowed(choices, value) for pic, value in zip(pics, chosen, strict=True)}

    def methods(name: str, *chosen: Method) -> list[Any]:
        choices = _methods(adapters(name))
        return [update for method in chosen for update in _kept(method, name, choices)]

    choice.tells(lab, opens, compressions, pics, pics)
    choice.model.input(
        methods,
        [choice.model, *(slot.method for slot in slots)],
        [part for slot in slots for part in (slot.method, slot.pic, slot.ratio)],
        concurrency_limit=None,
        preprocess=False,
        **QUIET,
    )


def _methods(missing: Mapping[Any, str | None]) -> list[tuple[str, str]]:
    return controls.offered(controls.method_options(missing))


def _kept(method: Method, name: str, choices: Sequence[tuple[str, str]]) -> list[Any]:
    """A setting's method, compression and ratio on another model: as the method was trained there, or without it."""
    there = any(value == method for _, value in choices)
    trained = controls.trained_positions(method, name) if there else None
    positions = [trained.kind, trained.ratio] if trained else controls.UNCOMPRESSED[:2]
    return [narrowed(choices, method), *(positions if methods[method].compression else [gr.skip()] * 2)]


def _frames(
    lab: Any, views: list[View], run: Run, control: Control, count: int, answers: list[Answers]
) -> Iterator[Frame]:
    """The texts, the charts and what is going on, until all settings ran or a stop; then so many answers of each, which
    `answers` keeps."""
    names = [f"text-c-{name.lower()}" for name in NAMES]

    def draw(views: Sequence[View], coming: Progress | None, frame: int) -> dict[str, str]:
        series = [view.series for view in views]
        # Before the first token there is nothing new after the first frame, which empties the charts.
        parts = charts.parts(PLACE, series, frame) if frame == 1 or any(map(len, series)) else {}
        return parts | {"compare": live.fill(**_figures(series, coming)), seeds.CHART: one_each}

    last, one_each = Frame({}), encode(seeds.picture([]), run.stream.name)
    for last in lanes.frames(lab, views, run, [run.control] * len(views), names, draw):
        yield last
    for series in (view.series for view in views):
        if series.finish and series.finish.reason not in ("stopped", "error"):
            answers.append((series.name, series.settings, {series.settings.seed: series.finish}))
    if count > 1 and len(answers) == len(views):
        yield from seeds.frames(lab, answers, count, run, control, last)


def _views(chosen: Sequence[RunSettings]) -> list[View]:
    """Each setting's view, with its letter."""
    return [
        View(settings, name=name, words=describe(settings)) for name, settings in zip(NAMES, chosen, strict=False)
    ]


def _figures(runs: Sequence[RunSeries], coming: Progress | None) -> dict[str, Any]:
    """The strip above the texts: all settings together. coming: how near one of them is to its first token."""
    writing = [one.name for one in runs if one.finish is None]
    ended = [(one, one.finish) for one in runs if one.finish]
    speed = sum(one.speed or 0 for one in runs if one.finish is None)
    done = [1 if one.finish else _done(one) for one in runs]
    states = {went(finish) for _, finish in ended}
    return {
        "setting": ", ".join(writing) or "–",
        "tokens": f"{sum(len(one) for one in runs):,}",
        "speed": f"{speed:.0f}" if speed else "–",
        "progress": sum(done) / len(done),
        "state": "busy" if writing else "bad" if "bad" in states else "good",
        "message": " ".join(
            f"{one.name}, {one.words}: {_lowered(ended_words(finish, one.settings))}" for one, finish in ended
        )
        or (coming_words(coming)["message"] if coming else ""),
    }


def _done(run: RunSeries) -> float:
    """The share of what a run is to write, or at most, that is written."""
    target = run.target[-1] if len(run) else None
    return min(1.0, len(run) / run.settings.max_new_tokens if target is None else run.produced[-1] / target)


def _lowered(words: str) -> str:
    return words[:1].lower() + words[1:]


def _previewer(previews: Sequence[gr.HTML]) -> Callable[..., Any]:
    def preview(*values: Any) -> Any:
        chosen = [*values]
        chosen[COMMON.index("prompt")] = "…"
        try:
            runs = [view.series for view in _views(columns.asked(chosen))]
        except ValueError:
            return gr.skip()
        return dict(zip(previews, charts.previews(PLACE, runs), strict=True))

    return preview
