"""The Compare tab: one prompt under two to four settings, written at once, on shared axes; with as many seeds as one
likes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import gradio as gr

from app import charts, controls, lanes, live, model, seeds, setting, toasts
from app.buttons import QUIET, Buttons
from app.charts.base import encode
from app.controls import Form
from app.frames import Frame
from app.model import ModelChoice, narrowed
from app.numbers import in_range
from app.runs import Run, Runs
from app.series import RunSeries
from app.share import flat, settings_of
from app.tabs.generate import Adapters
from app.taking_up import Place
from app.view import View, coming_words, ended_words, ending, failed, sentence
from backend.inference.control import Control
from backend.methods import methods
from backend.models.capabilities import Capabilities
from backend.positions import policies
from backend.refused import Refused
from backend.settings import (
    Method,
    RunSettings,
    counted,
)
from backend.steps import Progress

PLACE: Final = "compare"
NAMES = ("A", "B", "C", "D")
POINTS = "A box for each setting, every answer a point; the lines are the targets."
COMMON = (*model.NAMES, "prompt", "unit", "max_new_tokens")
OWN = ("method", "target", "landing", "pic", "ratio", "window", "seed", "temperature")
DEFAULTS = (
    {"pic": "none", "ratio": 1.0, "window": 0},
    {"pic": "none", "ratio": 1.0, "window": 32},
    {"pic": "dynamic", "ratio": 4.0, "window": 0},
    {"pic": "naive", "ratio": 2.0, "window": 0},
)


@dataclass
class Slot:
    """The controls of one setting."""

    method: gr.Dropdown
    target: gr.Number
    landing: gr.Number
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
    lab: Any, runs: Runs, adapters: Adapters, opens: Callable[..., Any]
) -> tuple[dict[str, Any], Place]:
    """Makes the tab where it is called; returns its form's parts by name, and where it shows runs.

    opens: the event of the page's opening.
    """
    choice = model.build(lab.models.names(), "c-")
    methods = _methods(adapters(choice.model.value))
    common, many, slots_shown, buttons = _common(choice)
    live.figures("compare", (("setting", "Writing"), ("tokens", "Tokens"), ("speed", "Tokens/s")))
    queue = gr.HTML("", apply_default_css=False, elem_classes=["ll", "ll-queue"])
    slots, columns = _slots(methods, choice)
    own = [part for slot in slots for part in slot.inputs]
    inputs = [*choice.inputs, *common, many, slots_shown, *own]
    live.chart(seeds.CHART, "Lengths of all answers", POINTS, encode(seeds.picture([])), seldom=True)
    with gr.Row(elem_classes=["ll-grid", "ll-large"]):
        opening = [view.series for view in _views(_settings([part.value for part in inputs]))]
        previews = live.charts(PLACE, opening)
    stream = live.stream(Frame(charts.parts(PLACE, opening)))

    _follow_form(choice, inputs, slots_shown, columns, previews)
    _follow(choice, lab, adapters, slots, opens)
    labels = {name: part.label for name, part in zip((*COMMON, *OWN), [*choice.inputs, *common, *own], strict=False)}
    # What the methods that have one aim at stands in the same box.
    labels["limit"] = labels["target"]
    buttons.starts(runs, _comparing(lab, runs, labels), inputs, [stream], queue, "compare")
    each = [f"{name}_{field}" for name in NAMES for field in OWN]
    form = dict(zip([*COMMON, "answers", "count", *each], inputs, strict=True))
    buttons.shares(form)
    return form, Place(stream, buttons)


def leads_on(lab: Form, compared: Mapping[str, Any], way: gr.Radio, tabs: gr.Tabs) -> None:
    """Makes the button that takes the Lab's settings over as A. compared: this tab's form, by name."""
    with gr.Row(elem_classes=["ll-onward"]):
        go = gr.Button("Compare these settings with others", size="sm", elem_id="lab-compare")
    names = [*COMMON, *(f"A_{name}" for name in OWN)]

    def taken(*values: Any) -> list[Any]:
        try:
            settings = lab.settings(values)
        except ValueError as error:
            raise toasts.refusal(sentence(error, lab.labels), "These settings were not taken over") from error
        given = flat(settings) | {"target": settings.goal, "window": settings.window or 0}
        given["max_new_tokens"] = min(given["max_new_tokens"], compared["max_new_tokens"].maximum)
        return [gr.Tabs(selected="compare"), way.value, *(given[name.removeprefix("A_")] for name in names)]

    filled = go.click(taken, lab.inputs, [tabs, way, *(compared[name] for name in names)], **QUIET)
    filled.success(None, None, None, js="() => LengthLab.sweeps(false)", **QUIET)


def _common(choice: ModelChoice) -> tuple[list[Any], gr.Number, gr.Radio, Buttons]:
    """What all settings share, in the order of COMMON after the model's; how many answers each writes; how many there
    are; the buttons."""
    with gr.Row(elem_classes=["ll-panel", "ll-common"]):
        prompt = gr.Textbox(controls.DEFAULT_PROMPT, label="Prompt", lines=2, max_lines=6, scale=4, elem_id="c-prompt")
        unit = setting.control("unit", scale=1, min_width=120, elem_id="c-unit")
        slots_shown = gr.Radio([2, 3, 4], value=3, label="Settings", scale=1, min_width=180, elem_id="c-count")
        many = gr.Number(
            1, label="Answers of each", precision=0, minimum=1, maximum=seeds.MOST, scale=1, min_width=110,
            info="Each with the next seed", elem_id="c-answers",
        )  # fmt: skip
        cap = setting.control(
            "max_new_tokens", typed=True, value=120, maximum=1024, scale=1, min_width=120, elem_id="c-cap"
        )
        choice.render()
        with gr.Row(elem_classes=["ll-buttons"]):
            go = gr.Button("Compare", variant="primary", elem_classes=["ll-go"], elem_id="c-go", min_width=110)
            stop = gr.Button("Stop", elem_classes=["ll-stop"], elem_id="c-stop", min_width=70, interactive=False)
            link = gr.Button("Copy link", elem_id="c-link", min_width=90)
    return [prompt, unit, cap], many, slots_shown, Buttons(PLACE, go, stop, link=link)


def _slots(methods: list[tuple[str, str]], choice: ModelChoice) -> tuple[list[Slot], list[gr.Column]]:
    with gr.Row(elem_classes=["ll-slots"]):
        slots, columns = [], []
        for name, defaults in zip(NAMES, DEFAULTS, strict=False):
            with gr.Column(
                elem_classes=["ll-panel", f"ll-slot-{name.lower()}"], visible=name != "D", min_width=240
            ) as column:
                live.heading(name, "")
                slots.append(_slot(defaults, methods, choice))
                live.response(f"c-{name.lower()}", f"Response {name}")
            columns.append(column)
    return slots, columns


def _follow_form(
    choice: ModelChoice, inputs: Sequence[Any], slots_shown: gr.Radio, columns: Sequence[gr.Column],
    previews: Sequence[gr.HTML],
) -> None:  # fmt: skip
    """Shows as many settings as are chosen, and what each makes of positions."""
    cap, quiet = inputs[COMMON.index("max_new_tokens")], QUIET | {"queue": False}
    slots_shown.change(
        lambda chosen: [gr.update(visible=i < chosen) for i in range(len(NAMES))], [slots_shown], columns, **quiet
    )
    gr.on(
        [part.change for part in [choice.model, cap, *inputs[len(COMMON) :]]],
        _previewer(previews),
        inputs,
        previews,
        trigger_mode="always_last",
        js=in_range(inputs),
        # A compression that another model takes away comes here before the layer that it takes away as well.
        preprocess=False,
        **quiet,
    )


def _comparing(lab: Any, runs: Runs, labels: Mapping[str, str]) -> Callable[..., Iterator[str]]:
    """The event of the button: the frames of a comparison. labels: of the settings' boxes."""

    def compare(request: gr.Request, *values: Any) -> Iterator[str]:
        try:
            chosen, count = _settings(values), int(values[len(COMMON)] or 1)
            seeds.checked(chosen, count)
            with runs.started(request.session_hash, control := Control(), PLACE) as run:
                yield from lanes.streamed(run, _frames(lab, chosen, run, control, count))
        except Exception as error:
            yield failed("compare", error, "The comparison could not be made", labels)

    return compare


def _slot(defaults: dict[str, Any], methods: list[tuple[str, str]], choice: ModelChoice) -> Slot:
    with gr.Row():
        method = gr.Dropdown(methods, value="none", label="Method", min_width=100)
        target = gr.Number(100, label="Target or limit", precision=0, minimum=1, min_width=80)
        landing = setting.control("landing", typed=True, info="0 is off", min_width=60)
    with gr.Row():
        pic = gr.Dropdown(
            controls.offered(controls.pic_options(None)), value=defaults["pic"], label="Positions", min_width=100
        )
        ratio = setting.control("ratio", typed=True, value=defaults["ratio"], min_width=60)
        window = gr.Number(defaults["window"], label="Λ window", info="0 is off", precision=0, minimum=0, min_width=60)

    def as_trained(method: Method, name: str, *given: Any) -> list[Any]:
        return controls.as_trained(method, name, given)

    method.input(as_trained, [method, choice.model, pic, ratio], [pic, ratio], concurrency_limit=None, **QUIET)
    with gr.Row():
        seed = setting.control("seed", typed=True, maximum=2**32 - seeds.MOST, min_width=80)
        temperature = setting.control("temperature", typed=True, step=0.1, min_width=90)
    return Slot(method, target, landing, pic, ratio, window, seed, temperature)


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
    lab: Any, chosen: Sequence[RunSettings], run: Run, control: Control, count: int
) -> Iterator[Frame]:
    """The texts, the charts and what is going on, until all settings ran or a stop; then so many answers of each."""
    views = _views(chosen)
    names = [f"text-c-{name.lower()}" for name in NAMES]

    def draw(views: Sequence[View], coming: Progress | None, frame: int) -> dict[str, str]:
        series = [view.series for view in views]
        # Before the first token there is nothing new after the first frame, which empties the charts.
        parts = charts.parts(PLACE, series, frame) if frame == 1 or any(map(len, series)) else {}
        return parts | {"compare": live.fill(**_figures(series, coming)), seeds.CHART: one_each}

    last, one_each = Frame({}), encode(seeds.picture([]), run.stream.name)
    for last in lanes.frames(lab, views, run, [run.control] * len(chosen), names, draw):
        yield last
    ended = [view.series.finish for view in views]
    if count > 1 and all(one and one.reason not in ("stopped", "error") for one in ended):
        found = [(view.series.name, view.series.settings, [one]) for view, one in zip(views, ended, strict=True) if one]
        yield from seeds.frames(lab, found, count, run, control, last)


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
    done = [1 if one.finish else len(one) / one.settings.max_new_tokens for one in runs]
    states = {ending(finish) for _, finish in ended}
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


def _lowered(words: str) -> str:
    return words[:1].lower() + words[1:]


def _settings(values: Sequence[Any]) -> list[RunSettings]:
    common = dict(zip(COMMON, values, strict=False))
    _, count, *rest = values[len(COMMON) :]
    slots = [rest[i * len(OWN) : (i + 1) * len(OWN)] for i in range(int(count))]
    if any(value is None for value in [*common.values(), *(value for slot in slots for value in slot)]):
        raise Refused("a number is missing: fill in every box of the settings that are compared")
    return [settings_of(common | _own(dict(zip(OWN, slot, strict=True)), common["model"])) for slot in slots]


def _own(given: dict[str, Any], name: str) -> dict[str, Any]:
    """A setting's fields of RunSettings."""
    method, kept = given["method"], {key: value for key, value in given.items() if key != "target"}
    aim = methods[method].bound or "target"
    return kept | {aim: given["target"], "window": given["window"] or None} | _left_alone(method, name)


def _left_alone(method: Method, name: str) -> dict[str, int]:
    """Initial and recent tokens that dynamic compression leaves alone: few, since answers are short, or as trained."""
    found = controls.trained_positions(method, name)
    return {"initial": found.initial, "recent": found.recent} if found else {"recent": 64}


def _previewer(previews: Sequence[gr.HTML]) -> Callable[..., Any]:
    def preview(*values: Any) -> Any:
        chosen = [*values]
        chosen[COMMON.index("prompt")] = "…"
        try:
            runs = [view.series for view in _views(_settings(chosen))]
        except ValueError:
            return gr.skip()
        return dict(zip(previews, charts.previews(PLACE, runs), strict=True))

    return preview


def describe(settings: RunSettings) -> str:
    """A setting in a few words."""
    words = [] if settings.method == "none" else [methods[settings.method].label]
    if settings.steered:
        goal = settings.goal if settings.unit == "tokens" else counted(settings.goal, settings.unit)
        words = [f"{words[0]} {goal}"]
        if settings.lands:
            words.append(f"landing {settings.landing}")
        if settings.in_prompt:
            words.append("asked too")
    policy = policies[settings.pic]
    if policy.name != "none" and not ("ratio" in policy.heeds() and settings.ratio == 1):
        ratio = f" × {settings.ratio:g}" if "ratio" in policy.heeds() else ""
        kept = f", recent {settings.recent:,}" if "recent" in policy.heeds() else ""
        words.append(f"{policy.label}{ratio}{kept}")
    if settings.window is not None:
        words.append(f"Λ {settings.window:,}")
    return ", ".join(words) or "plain"
