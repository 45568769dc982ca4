"""The whole page: header, tabs, and what happens when it opens and closes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr
from starlette.routing import Route

from app import live
from app.api import described, endpoint
from app.buttons import QUIET
from app.results import route
from app.runs import Runs
from app.tabs import compare, generate, learn, long_context, results
from app.tabs.generate import Adapters

TITLE = "Length Lab"
QUEUE_PERIOD = 0.03
COPIES = (600, 3600)  # Seconds between looks for Gradio's copies of exported and opened files, and their greatest age.
HEADER = """
<header class="ll-header"><div><h1>Length Lab</h1>
<p>Steer how long a language model writes and how far it reads, and watch inside.</p></div>
<button type="button" class="ll-theme" aria-label="Switch between light and dark">
<svg viewBox="0 0 24 24" width="18" height="18" aria-hidden="true"><circle cx="12" cy="12" r="8" fill="none"
stroke="currentColor" stroke-width="2"/><path d="M12 4a8 8 0 0 1 0 16z" fill="currentColor"/></svg></button></header>"""
THEME_SWITCH = """element.querySelector('.ll-theme').addEventListener('click', () =>
  LengthLab.setTheme(document.body.classList.contains('dark') ? 'light' : 'dark'));
LengthLab.keptTheme();"""


class Page(gr.Blocks):
    """Gradio's page, and where its scripts and frames come from."""

    routes: Sequence[Route] = ()


def build(lab: Any, adapters: Adapters, runs: Runs, concurrency: int = 1) -> Page:
    """The app around a lab, which writes what is running into `runs`.

    adapters: why a length method cannot be used on a model, or None. concurrency: runs at the same time.
    """
    with Page(title=TITLE, analytics_enabled=False, fill_width=True, delete_cache=COPIES) as demo:
        gr.HTML(
            html_template=HEADER, js_on_load=THEME_SWITCH, head=live.HEAD, apply_default_css=False, elem_classes=["ll"]
        )
        with gr.Tabs():
            with gr.Tab("Generate", id="generate"):
                parts = generate.build(lab, runs, adapters, demo.load)
            with gr.Tab("Compare", id="compare"):
                compare.build(lab, runs, adapters, demo.load)
            with gr.Tab("Long context", id="long"):
                long_context.build(lab, runs, demo.load)
            with gr.Tab("Results", id="results") as opened:
                results.build(opened)
            with gr.Tab("Learn", id="learn"):
                learn.build()
        generated = endpoint(lab, runs)
        gr.api(generated, api_name="generate", api_description=described(generated), concurrency_id="model")
        demo.load(_restoring(parts), None, [*parts.form.inputs, parts.figures], **QUIET)
        demo.unload(_closing(runs))
    demo.routes = [*live.routes(), runs.streams.route, route()]
    demo.queue(default_concurrency_limit=concurrency, max_size=64)
    # Gradio looks into its queue a thousand times a second, and each look takes the interpreter's lock from the run.
    demo._queue.sleep_when_free = demo._queue.progress_update_sleep_when_free = QUEUE_PERIOD
    return demo


def _restoring(parts: generate.Parts) -> Callable[[gr.Request], list[Any]]:
    def open_page(request: gr.Request) -> list[Any]:
        values, words = generate.restored(parts.form, dict(request.query_params))
        return [*values, live.fill(message=words) if words else gr.skip()]

    return open_page


def _closing(runs: Runs) -> Callable[[gr.Request], None]:
    def closed(request: gr.Request) -> None:
        runs.stop(request.session_hash)

    return closed
