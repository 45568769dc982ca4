"""The first tab: one prompt written twice at once, asked for a length and steered to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import gradio as gr

from app import charts, embed, kept, lanes, live, presets, runway, setting, text, toasts
from app.buttons import QUIET, Buttons
from app.controls import Form
from app.frames import Frame
from app.numbers import in_range
from app.runs import Runs
from app.tabs.generate import Adapters
from app.taking_up import Place
from app.view import View, coming_words, failed, sentence
from backend.ending import ending
from backend.inference.control import Control
from backend.record.trace import Trace
from backend.settings import LANDING, RunSettings, Unit, counted, signed
from backend.steps import Progress

PLACE: Final = "try"
NAMES: Final = ("Asked", "Steered")
TEXTS = ("text-try-asked", "text-try-steered")
FIELDS = (("written", "Written"), ("error", "Off by"), ("end", "Ends"))
# The first of these that the model has an adapter for steers; the last needs none.
STEERS = ("ldpe", "orpe", "pre", "exp_decay")
# Seconds between frames of the runway, at least.
FLUENT = 0.1
# Shown as long as the lanes play a scene.
FIRST = "These two answers are recorded. Press Write for your own."
LABELS = {"prompt": "Prompt", "target": "Length", "unit": "Unit"}
PROMPTS = {
    "Reading": presets.READING,
    "Clouds": presets.STORY,
    "Fox": "Tell a bedtime story about a fox who is afraid of the dark.",
    "Bees": "Tell me about the life of bees.",
    "Friend": "What makes a good friend?",
}


class Lanes(Control):
    """One hand on both lanes: Stop ends both, and a moved target moves where the steered one ends. What was asked in
    the prompt stays asked, and both watch what they began with."""

    def __init__(self) -> None:
        super().__init__()
        self.unsteered, self.steered = Control(), Control()

    def ask(self, **changes: Any) -> None:
        super().ask(**changes)
        changes.pop("watched", None)
        self.steered.ask(**changes)
        self.unsteered.ask(**{name: value for name, value in changes.items() if name != "goal"})


@dataclass
class Parts:
    """The tab's components that events of the page touch. form: prompt, target, unit and finish, by name. place: where
    its runs are shown."""

    form: dict[str, Any]
    inside: gr.Button
    place: Place


def build(lab: Any, runs: Runs, adapters: Adapters) -> Parts:
    """Makes the tab where it is called. adapters: why a length method cannot be used on a model, or None."""
    shown = presets.opening()
    asked = shown[1].settings if shown else RunSettings(prompt=presets.READING, target=60)
    with gr.Column(elem_classes=["ll-try"]):
        inputs, go, stop = _question(asked)
        queue = gr.HTML("", apply_default_css=False, elem_classes=["ll", "ll-queue"])
        gr.HTML(f"<p>{FIRST}</p>", apply_default_css=False, elem_classes=["ll", "ll-first"])
        _lanes()
        flag = live.runway("try", "Runway", asked.target)
        with gr.Row(elem_classes=["ll-onward"]):
            inside = gr.Button("All settings", size="sm", elem_id="try-inside")
            link = gr.Button("Copy link", size="sm", elem_id="try-link")
            code = gr.Button("Copy embed code", size="sm", elem_id="try-embed")
        with gr.Accordion("See inside", open=False, elem_id="try-charts"), gr.Row(elem_classes=["ll-grid"]):
            live.charts(PLACE, [])
        stream = live.stream(recorded(shown) if shown else None, kept.frames(PLACE, "try-steered"))
    scene = gr.Textbox(visible="hidden")
    embed.offers(code, [scene], str, "() => [document.querySelector('#runway-try .ll-runway').dataset.scene ?? '']")
    _steering(inputs[1], flag, runs)
    veils = "(...values) => window.LengthLab?.asksFor(values)"
    gr.on([part.change for part in inputs], None, inputs, None, js=veils, **QUIET)
    write = _writing(lab, runs, adapters)
    buttons = Buttons(PLACE, go, stop, link=link)
    buttons.starts(runs, write, inputs, [stream], queue, "try-steered")
    form = dict(zip(("prompt", "target", "unit", "finish"), inputs, strict=True))
    buttons.shares(form)
    return Parts(form, inside, Place(stream, buttons))


def leads_on(parts: Parts, form: Form, adapters: Adapters, tabs: gr.Tabs) -> None:
    """Lets what is tried be taken to the form with all settings."""

    def taken(prompt: str, target: int, unit: Unit, finish: bool) -> list[Any]:
        try:
            return [gr.Tabs(selected="lab"), *form.values(steers(prompt, target, unit, finish, adapters))]
        except ValueError as error:
            raise toasts.refusal(sentence(error, LABELS), "These settings were not taken over") from error

    parts.inside.click(taken, [*parts.form.values()], [tabs, *form.inputs], **QUIET)


def _question(asked: RunSettings) -> tuple[list[Any], gr.Button, gr.Button]:
    """What to write about, how long, and the buttons."""
    with gr.Row(elem_classes=["ll-panel", "ll-question"], equal_height=False):
        with gr.Column(scale=3, min_width=280, elem_classes=["ll-about"]):
            prompt = gr.Textbox(
                asked.prompt, label="Prompt", lines=2, max_lines=6, elem_id="try-prompt",
                placeholder="What should the model write about?",
            )  # fmt: skip
            gr.Examples(
                [[text] for text in PROMPTS.values()], [prompt], label="Other prompts", elem_id="try-examples",
                example_labels=list(PROMPTS),
            )  # fmt: skip
        with gr.Column(scale=2, min_width=280, elem_classes=["ll-how-long"]):
            with gr.Row():
                target = gr.Slider(
                    10, 300, asked.target, step=1, label="Length", elem_id="try-target", scale=3, min_width=160
                )
                unit = setting.control("unit", value=asked.unit, elem_id=None, scale=1, min_width=110)
            with gr.Row(elem_classes=["ll-buttons"]):
                finish = gr.Checkbox(
                    True, label="Finish the sentence", elem_id="try-finish", min_width=240,
                    info="Tries several endings near the length, and takes the likeliest whole one.",
                )  # fmt: skip
                go = gr.Button("Write", variant="primary", elem_classes=["ll-go"], elem_id="try-go", min_width=90)
                stop = gr.Button("Stop", elem_classes=["ll-stop"], elem_id="try-stop", min_width=70, interactive=False)
    return [prompt, target, unit, finish], go, stop


def _lanes() -> None:
    titles = {
        "asked": ("Asked in the prompt", "The model reads the length in its prompt, and is left alone with it."),
        "steered": ("Steered by a countdown", "It reads the length too, and at every token how many are left."),
    }
    with gr.Row(elem_classes=["ll-lanes"], equal_height=True):
        for lane, (title, hint) in titles.items():
            with gr.Column(elem_classes=["ll-panel", "ll-lane", f"ll-lane-{lane}"], min_width=300):
                live.heading(title, hint)
                live.figures(f"try-{lane}", FIELDS)
                live.response(f"try-{lane}", title)


def _steering(target: gr.Slider, flag: gr.HTML, runs: Runs) -> None:
    """Keeps slider and flag at one number, which is the target of what is being written."""
    quiet = QUIET | {"queue": False, "trigger_mode": "always_last"}

    def retarget(request: gr.Request, goal: float | None) -> None:
        run = runs.of(request.session_hash, PLACE)
        if run and goal:
            run.control.retarget(int(goal))

    target.change(None, [target], [flag], js="(target) => target", **QUIET)
    flag.input(None, [flag], [target], js="(target) => target", **QUIET)
    gr.on([target.input, target.release], retarget, [target], None, js=in_range([target]), **quiet)
    flag.input(retarget, [flag], None, **quiet)


def _writing(lab: Any, runs: Runs, adapters: Adapters) -> Callable[..., Iterator[str]]:
    """The event of the button."""

    def write_both(request: gr.Request, prompt: str, target: int, unit: Unit, finish: bool) -> Iterator[str]:
        try:
            views = [
                View(settings, name=name)
                for name, settings in zip(NAMES, both(prompt, target, unit, finish, adapters), strict=True)
            ]
            hand = Lanes()
            with runs.started(request.session_hash, hand, PLACE) as run:
                shown = lanes.frames(lab, views, run, [hand.unsteered, hand.steered], TEXTS, Drawing(), FLUENT)
                yield from lanes.streamed(run, shown)
        except Exception as error:
            yield failed("try-steered", error, "This could not be written", LABELS)

    return write_both


def both(prompt: str, target: int, unit: Unit, finish: bool, adapters: Adapters) -> tuple[RunSettings, RunSettings]:
    """The settings of the two lanes: the length asked for in the prompt alone, and steered."""
    steered = steers(prompt, target, unit, finish, adapters)
    return steered.model_copy(update={"method": "prompted", "landing": 0}), steered


def steers(prompt: str, target: int, unit: Unit, finish: bool, adapters: Adapters) -> RunSettings:
    """The settings of the lane that is steered, whose prompt says the length too. finish: whether it is to end with a
    sentence."""
    plain = RunSettings(prompt=prompt)
    missing = adapters(plain.model)
    method = next(name for name in STEERS if not missing.get(name))
    return RunSettings(
        prompt=prompt, method=method, target=target, unit=unit, landing=LANDING if finish else 0,
        in_prompt=True, watch=presets.WATCH,
    )  # fmt: skip


def recorded(pair: Sequence[Trace]) -> Frame:
    """The frame of a recorded pair, asked and steered."""
    views = [View.of(trace, name=name) for trace, name in zip(pair, NAMES, strict=True)]
    texts = {name: text.pieces(view.series) for name, view in zip(TEXTS, views, strict=True)}
    scene = embed.of_pair([preset.name for preset in presets.OPENING])
    return Frame(draw(views, None, 1, scene), texts)


class Drawing:
    """What both lanes show beside their texts, frame by frame: the charts from the first token on, and then less often
    than the runway, since they cost many times as much."""

    def __init__(self) -> None:
        self._due = 0.0

    def __call__(self, views: Sequence[View], coming: Progress | None, frame: int) -> dict[str, str]:
        now = time.monotonic()
        inside = now >= self._due or all(view.ended for view in views)
        if inside and any(len(view.series) for view in views):
            self._due = now + lanes.PERIOD
        return draw(views, coming, frame, inside=inside)


def draw(
    views: Sequence[View], coming: Progress | None, frame: int, scene: str = "", inside: bool = True
) -> dict[str, str]:
    """What both lanes show beside their texts. scene: the name of one that plays the same. inside: with the charts."""
    series = [view.series for view in views]
    parts = charts.parts(PLACE, series, frame) if inside and (frame == 1 or any(map(len, series))) else {}
    strips = {
        f"try-{lane}": live.fill(**_strip(view, coming))
        for lane, view in zip(("asked", "steered"), views, strict=True)
    }
    return parts | strips | {"try": runway.encode(series, frame, scene)}


def _strip(view: View, coming: Progress | None) -> dict[str, Any]:
    run, finish = view.series, view.series.finish
    if not len(run) and finish is None:
        return {"state": "busy"} | coming_words(coming)
    produced = counted(run.produced[-1] if len(run) else 0, run.settings.unit)
    if finish is None:
        return {"state": "busy", "written": produced, "error": "–", "end": "writing …"}
    state, words = ending(finish, run.settings)
    return {
        "state": state,
        "written": produced,
        "error": "–" if finish.error is None else signed(finish.error),
        "end": words,
        "message": finish.message if finish.reason == "error" else " ".join(finish.notes),
    }
