"""What changes a run while it streams: the target, an early end, the head that is watched."""

from __future__ import annotations

from typing import Any

import gradio as gr

from app import toasts
from app.buttons import QUIET
from app.controls import Form
from app.numbers import in_range
from app.runs import Runs
from app.series import RunSeries
from backend.methods import methods
from backend.settings import MAX_TARGET

# So many more are enough to finish a thought.
WRAP_UP = {"tokens": 15, "words": 12, "characters": 70}


def steering(form: Form, wrap: gr.Button, runs: Runs, place: str) -> None:
    """Lets a form change the visitor's run of a place while it streams. wrap: the button that ends it soon."""

    def retarget(request: gr.Request, goal: float | None) -> None:
        run = runs.of(request.session_hash, place)
        if not run or not run.view or not goal or not 1 <= goal <= MAX_TARGET:
            return
        if methods[run.view.series.settings.method].retargets:
            run.control.retarget(int(goal))

    def wrap_up(request: gr.Request) -> list[Any]:
        run = runs.of(request.session_hash, place)
        if not run or not run.view:
            return [gr.skip()] * 2
        series = run.view.series
        if words := unwrapped(series):
            toasts.inform(words)
            return [gr.skip()] * 2
        goal = series.produced[-1] + WRAP_UP[series.settings.unit]
        retarget(request, goal)
        shown = [goal, gr.skip()]
        return shown[::-1] if series.settings.limited else shown

    def watch(request: gr.Request, layer: int, head: int) -> None:
        if run := runs.of(request.session_hash, place):
            run.control.watch(layer, head)

    quiet = QUIET | {"queue": False}
    for slider in (form.target, form.limit):
        events = [slider.input, slider.release]
        gr.on(events, retarget, [slider], None, trigger_mode="always_last", js=in_range([slider]), **quiet)
    # Only what comes through the queue can bring a message with it.
    wrap.click(wrap_up, None, [form.target, form.limit], concurrency_limit=None, **QUIET)
    gr.on([form.layer.input, form.head.input], watch, [form.layer, form.head], None, **quiet)


def unwrapped(series: RunSeries) -> str:
    """Why a run cannot be made to end soon, in a sentence; "" where it can."""
    settings = series.settings
    if not methods[settings.method].retargets:
        return "This method cannot change its target while it writes. Choose Push the end or a countdown."
    if not len(series):
        return "Nothing is written yet. Press it again in a moment."
    target = series.target[-1] or MAX_TARGET
    left = target - series.produced[-1]
    if left < 0:
        return "It is past its target and ends as soon as it can. Stop ends it at once."
    if left <= WRAP_UP[settings.unit]:
        return f"It is about to end: its {settings.bound} is {target:,}. Stop ends it at once."
    return ""
