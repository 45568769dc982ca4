"""The whole page: header, tabs, and what happens when it opens and closes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr
from starlette.routing import Route

from app import controls, live
from app.api import described, endpoint
from app.buttons import QUIET
from app.results import route
from app.runs import Runs
from app.tabs import compare, generate, learn, long_context, results
from app.tabs.generate import Adapters
from app.view import sentence

TITLE = "Length Lab"
QUEUE_PERIOD = 0.03
HEADER = """
<header class="ll-header"><div><h1>Length Lab</h1>
<p>Steer how long a language model writes and how far it reads, and watch inside.</p></div>
<button type="button" class="ll-theme" aria-label="Switch between light and dark">
<svg viewBox="0 0 24 24" width="18" height="18" aria-hidden="true"><circle cx="12" cy="12" r="8" fill="none"
stroke="currentColor" stroke-width="2"/><path d="M12 4a8 8 0 0 1 0 16z" fill="currentColor"/></svg></button></header>"""
THEME_SWITCH = """element.querySelector('.ll-theme').addEventListener('click', () =>
  LengthLab.setTheme(document.body.classList.contains('dark') ? 'light' : 'dark'))"""


class Page(gr.Blocks):
    """Gradio's page, and where its scripts and frames come from."""

    routes: Sequence[Route] = ()


def build(lab: Any, adapters: Adapters, runs: Runs, concurrency: int = 1) -> Page:
    """The app around a lab, which writes what is running into `runs`.

    adapters: why a length method cannot be used on a model, or None. concurrency: runs at the same time.
    """
    with Page(title=TITLE, analytics_enabled=False, fill_width=True) as demo:
        gr.HTML(
            html_template=HEADER, js_on_load=THEME_SWITCH, head=live.HEAD, apply_default_css=False, elem_classes=["ll"]
        )
        with gr.Row(elem_classes=["ll-model"]):
            model = live.note("The model is being loaded …", "busy", elem_id="model-state")
            again = gr.Button("Try again", size="sm", visible=False, elem_id="again", min_width=90)
        with gr.Tabs():
            with gr.Tab("Generate", id="generate"):
                parts = generate.build(lab, runs, adapters)
            with gr.Tab("Compare", id="compare"):
                compare.build(lab, runs, adapters)
            with gr.Tab("Long context", id="long"):
                long_context.build(lab, runs)
            with gr.Tab("Results", id="results") as opened:
                results.build(opened)
            with gr.Tab("Learn", id="learn"):
                learn.build()
        generated = endpoint(lab, runs)
        gr.api(generated, api_name="generate", api_description=described(generated), concurrency_id="model")
        _opening(demo, lab, adapters, parts, model, again)
        demo.unload(_closing(runs))
    demo.routes = [*live.routes(), runs.streams.route, route()]
    demo.queue(default_concurrency_limit=concurrency, max_size=64)
    # Gradio looks into its queue a thousand times a second, and each look takes the interpreter's lock from the run.
    demo._queue.sleep_when_free = demo._queue.progress_update_sleep_when_free = QUEUE_PERIOD
    return demo


def _opening(
    demo: gr.Blocks, lab: Any, adapters: Adapters, parts: generate.Parts, model: gr.HTML, again: gr.Button
) -> None:
    """Restores a link and says what the model can do, at first and whenever another is chosen."""
    form = parts.form

    def open_page(request: gr.Request) -> list[Any]:
        values, words = generate.restored(form, dict(request.query_params))
        return [*values, live.fill(message=words) if words else gr.skip()]

    def describe(name: str, precision: str) -> dict[Any, Any]:
        try:
            can = lab.capabilities(name, precision)
        except Exception as error:
            return {model: live.noted(sentence(error), "bad"), again: gr.update(visible=True)}
        why = can.unsupported.get("model")
        trained = f"trained for {can.training_length:,} tokens" if can.training_length else "training length unknown"
        words = (
            f"{_called(can)} · {can.layers} layers of {can.heads} heads · {trained} · {can.precision} on {can.device}"
        )
        return {
            model: live.noted(why or words, "bad" if why else "good"),
            again: gr.update(visible=False),
            **controls.gates(form, can, adapters(name)),
        }

    gated = [
        model,
        again,
        form.limit,
        form.method,
        form.pic,
        form.precision,
        form.windowed,
        form.window,
        form.layer,
        form.head,
    ]
    demo.load(open_page, None, [*form.inputs, parts.figures], **QUIET)
    gr.on(
        [demo.load, form.model.input, form.precision.change, again.click],
        describe,
        [form.model, form.precision],
        gated,
        concurrency_limit=None,
        trigger_mode="always_last",
        **QUIET,
    )


def _closing(runs: Runs) -> Callable[[gr.Request], None]:
    def closed(request: gr.Request) -> None:
        runs.stop(request.session_hash)

    return closed


def _called(can: Any) -> str:
    name = "SmolLM2-135M-Instruct" if can.model == "embedded" else can.model
    return f"{name}, {can.parameters / 1e6:,.0f} M parameters"
