"""The Compare tab: one prompt and seed under two to four settings, one after the other, on shared axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from app import charts, controls, live, overlays, text
from app.overlays import Named
from app.runs import Runs
from app.stopping import stoppable
from app.tabs.generate import Adapters
from app.view import ended_words, follow, sentence
from backend.engine import Control
from backend.settings import RunSettings, Watch

NAMES = ("A", "B", "C", "D")
PERIOD = 0.33
DEFAULTS = (
    {"pic": "none", "ratio": 1.0, "window": 0},
    {"pic": "none", "ratio": 1.0, "window": 32},
    {"pic": "dynamic", "ratio": 4.0, "window": 0},
    {"pic": "naive", "ratio": 2.0, "window": 0},
)
CHARTS: tuple[tuple[str, str, str, Callable[[Sequence[Named]], charts.Chart]], ...] = (
    ("c-length", "Length", "Produced against tokens generated; dashed is the target", overlays.length),
    ("c-end", "Chance to end", "Probability that the next token ends the response", overlays.p_end),
    ("c-entropy", "Attention entropy", "Mean over layers and heads; dashed is the ceiling", overlays.entropy),
    ("c-logits", "Attention logits", "Mean score of one head by perceived distance", overlays.logits),
    ("c-states", "First-layer states", "One plane for all settings", overlays.states),
)


@dataclass
class Slot:
    """The controls of one setting."""

    method: gr.Dropdown
    target: gr.Number
    pic: gr.Dropdown
    ratio: gr.Number
    window: gr.Number

    @property
    def inputs(self) -> list[Any]:
        """In the order that `settings_of_slot` takes them."""
        return [self.method, self.target, self.pic, self.ratio, self.window]


def build(lab: Any, runs: Runs, adapters: Adapters) -> None:
    """Makes the tab where it is called."""
    missing = adapters(lab.models.names()[0])
    with gr.Row(elem_classes=["ll-panel", "ll-common"]):
        prompt = gr.Textbox(controls.DEFAULT_PROMPT, label="Prompt", lines=2, max_lines=6, scale=4, elem_id="c-prompt")
        count = gr.Radio([2, 3, 4], value=3, label="Settings", scale=1, min_width=180, elem_id="c-count")
        seed = gr.Number(0, label="Seed", precision=0, minimum=0, maximum=2**32 - 1, scale=1, min_width=80)
        temperature = gr.Number(0, label="Temperature", minimum=0, maximum=10, step=0.1, scale=1, min_width=90)
        cap = gr.Number(
            120,
            label="Cap on new tokens",
            precision=0,
            minimum=1,
            maximum=1024,
            scale=1,
            min_width=120,
            elem_id="c-cap",
        )
        with gr.Row(elem_classes=["ll-buttons"]):
            go = gr.Button("Compare", variant="primary", elem_classes=["ll-go"], elem_id="c-go", min_width=110)
            stop = gr.Button("Stop", elem_classes=["ll-stop"], elem_id="c-stop", min_width=70, interactive=False)
    state = live.note("", elem_id="c-state")
    queue = gr.HTML("", apply_default_css=False, elem_classes=["ll", "ll-queue"])
    with gr.Row(elem_classes=["ll-slots"]):
        slots, columns, texts = [], [], []
        for name, defaults in zip(NAMES, DEFAULTS, strict=False):
            with gr.Column(
                elem_classes=["ll-panel", f"ll-slot-{name.lower()}"], visible=name != "D", min_width=240
            ) as column:
                live.heading(name, "")
                slots.append(_slot(defaults, missing))
                texts.append(live.response(f"c-{name.lower()}", f"Response {name}"))
            columns.append(column)
    with gr.Row(elem_classes=["ll-grid", "ll-large"]):
        drawn = [live.chart(name, title, hint, charts.encode(draw([]))) for name, title, hint, draw in CHARTS]
        preview = live.chart(
            "c-positions",
            "Perceived positions",
            "How far each earlier token seems from the last one",
            _preview([_defaults(defaults) for defaults in DEFAULTS[:3]]),
        )
    common = [prompt, count, seed, temperature, cap]
    inputs = [*common, *(part for slot in slots for part in slot.inputs)]
    quiet: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}

    count.change(lambda chosen: [gr.update(visible=i < chosen) for i in range(len(NAMES))], [count], columns, **quiet)
    gr.on(
        [part.change for part in [count, cap, *(p for slot in slots for p in slot.inputs)]],
        _previewing,
        inputs,
        [preview],
        trigger_mode="always_last",
        **quiet,
    )

    def compare(request: gr.Request, *values: Any) -> Iterator[list[Any]]:
        shown: list[Any] = [gr.skip()] * (len(texts) + len(drawn))
        try:
            chosen = _settings(values)
            with runs.started(request.session_hash, Control()) as run:
                for shown, words in _frames(lab, chosen, run):
                    yield [*shown, live.noted(words, "busy"), gr.update(interactive=False), gr.update(interactive=True)]
            yield [*shown, live.noted(words, "good"), gr.update(interactive=True), gr.update(interactive=False)]
        except Exception as error:
            words = sentence(error)
            gr.Warning(words, title="The comparison could not be made")
            yield [*shown, live.noted(words, "bad"), gr.update(interactive=True), gr.update(interactive=False)]

    event = go.click(
        compare,
        inputs,
        [*texts, *drawn, state, go, stop],
        show_progress="minimal",
        show_progress_on=[queue],
        concurrency_id="model",
        api_visibility="private",
    )
    stoppable(stop, event, runs, [go, stop], [gr.update(interactive=True), gr.update(interactive=False)])


def _slot(defaults: dict[str, Any], missing: Any) -> Slot:
    methods = [(label, method) for method, (label, _) in controls.METHODS.items() if not missing.get(method)]
    with gr.Row():
        method = gr.Dropdown(methods, value="none", label="Method", min_width=100)
        target = gr.Number(100, label="Target", precision=0, minimum=1, min_width=80)
    with gr.Row():
        pic = gr.Dropdown(
            [(label, pic) for pic, (label, _) in controls.PICS.items()],
            value=defaults["pic"],
            label="Compression",
            min_width=100,
        )
        ratio = gr.Number(defaults["ratio"], label="Ratio", minimum=0.05, min_width=60)
        window = gr.Number(defaults["window"], label="Λ window", info="0 is off", precision=0, minimum=0, min_width=60)
    return Slot(method, target, pic, ratio, window)


def _frames(lab: Any, chosen: Sequence[RunSettings], run: Any) -> Iterator[tuple[list[str], str]]:
    """Values of the four texts and the charts, and a word about what is going on, until all settings ran or a stop."""
    named: list[Named] = []
    texts = [""] * len(NAMES)
    frame = 0
    for i, settings in enumerate(chosen):
        for view in follow(lab, settings, run, period=PERIOD):
            series = view.series
            if len(named) == i:
                named.append(Named(NAMES[i], describe(settings), series))
            texts[i] = text.lines(series, texts[i])
            frame += 1
            words = ended_words(series.finish, settings.unit) if series.finish else f"{len(series):,} tokens"
            yield (
                _values(texts, named, frame, view.training_length),
                f"Setting {NAMES[i]} of {NAMES[len(chosen) - 1]}: {words}",
            )
        if run.control.stopped:
            return


def _values(texts: Sequence[str], named: Sequence[Named], frame: int, training_length: int | None) -> list[str]:
    run = named[0].series.run
    drawn = [
        draw(named) if draw is not overlays.logits else overlays.logits(named, training_length) for *_, draw in CHARTS
    ]
    return [*texts, *(charts.encode(chart, run, frame) for chart in drawn)]


def _settings(values: Sequence[Any]) -> list[RunSettings]:
    prompt, count, seed, temperature, cap = values[:5]
    per = len(DEFAULTS[0]) + 2
    slots = [values[5 + i * per : 5 + (i + 1) * per] for i in range(int(count))]
    if any(value is None for value in [seed, *(value for slot in slots for value in slot)]):
        raise ValueError("a number is missing: fill in every box of the settings that are compared")
    return [
        RunSettings(
            prompt=prompt,
            seed=seed,
            temperature=temperature,
            max_new_tokens=cap,
            method=method,
            target=target,
            pic=pic,
            ratio=ratio,
            window=window or None,
            recent=64,
            watch=Watch(layer=12),
        )
        for method, target, pic, ratio, window in slots
    ]


def _previewing(*values: Any) -> Any:
    try:
        return _preview(_settings(["…", *values[1:]]))
    except ValueError:
        return gr.skip()


def _preview(settings: Sequence[RunSettings]) -> str:
    named = [(name, describe(chosen), chosen) for name, chosen in zip(NAMES, settings, strict=False)]
    return charts.encode(overlays.positions(named, overlays.common_length(settings)))


def _defaults(chosen: dict[str, Any]) -> RunSettings:
    return _settings(["…", 1, 0, 0, 120, "none", 100, chosen["pic"], chosen["ratio"], chosen["window"]])[0]


def describe(settings: RunSettings) -> str:
    """A setting in a few words."""
    words = [] if settings.method == "none" else [f"{controls.METHODS[settings.method][0]} {settings.goal}"]
    if settings.pic != "none" and settings.ratio != 1:
        words.append(f"{controls.PICS[settings.pic][0]} × {settings.ratio:g}")
    if settings.window is not None:
        words.append(f"Λ {settings.window:,}")
    return ", ".join(words) or "plain"
