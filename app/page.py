"""The whole page: header, tabs, and what happens when it opens and closes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from app import coming, completions, embed, kept, languages, live, metrics, presence, veil
from app.admission import Admission
from app.api import described, endpoint
from app.buttons import QUIET
from app.classroom import joining, screen
from app.classroom.room import Room
from app.freed import Freed
from app.orphans import Orphans
from app.packed import Packed
from app.presence import Presence
from app.present import playable
from app.results import route
from app.runs import Runs
from app.sessions import Sessions
from app.shares import Shares
from app.stage import Stage
from app.store import Store, Uploads
from app.tabs import compare, evidence, generate, lessons, long_context, sweep, try_it
from app.tabs.generate import Adapters
from app.taking_up import Place, taking_up
from app.visitors import Cookies
from backend.engine import Lab
from backend.serving.backend import EngineBackend
from backend.serving.local import LocalBackend

TITLE = "Length Lab"
DEEP_LINK = "/gradio_api/deep_link"
# The tab of a form.
TABS = {try_it.PLACE: "try", compare.PLACE: "compare", long_context.PLACE: "far"}
COPIES = (600, 3600)  # Seconds between looks for Gradio's copies of exported and opened files, and their greatest age.
HEADER = f"""
<header class="ll-header"><div><h1>Length Lab</h1>
<p>Steer how long a language model writes and how far it reads, and watch inside.</p></div>
<p class="ll-acts">{languages.chooser()}<button type="button" class="ll-start" data-present aria-keyshortcuts="P"
title="Full screen, for an audience: key P">Present</button>
<button type="button" class="ll-theme" aria-label="Switch between light and dark">
<svg viewBox="0 0 24 24" width="18" height="18" aria-hidden="true"><circle cx="12" cy="12" r="8" fill="none"
stroke="currentColor" stroke-width="2"/><path d="M12 4a8 8 0 0 1 0 16z" fill="currentColor"/></svg></button></p>
</header><p class="ll-heard sr-only" role="status"></p>
<div class="ll-lost" role="alert" hidden><p>The lab does not answer: what you entered and see stays here, and the page
goes on by itself once it answers again.</p><button type="button">Save the text</button></div>"""
THEME_SWITCH = """element.querySelector('.ll-theme').addEventListener('click', () =>
  LengthLab.setTheme(document.body.classList.contains('dark') ? 'light' : 'dark'));
LengthLab.keptTheme();
LengthLab.speaks(element.querySelector('.ll-language'));
LengthLab.tabs('lab');
element.querySelector('.ll-lost button').addEventListener('click', LengthLab.saveTexts);"""


class Page(gr.Blocks):
    """Gradio's page, where its scripts and frames come from, and what all its requests pass through."""

    routes: Sequence[Route] = ()
    middleware: Sequence[Middleware] = ()
    # Whatever only waits is no thread, but a run: these serve beside the runs.
    threads = 40
    store: Store
    orphans: Orphans
    # Where lessons run.
    stages: Mapping[str, Stage]
    # Where students reach it, once it is served.
    reached = ""
    _queue: Admission
    _sessions: Sessions

    def admits(self, runs: Runs, store: Store, orphans: Orphans, shares: Shares, concurrency: int) -> None:
        """Puts a queue with limits in the place of Gradio's."""
        self.store, self.orphans, self._sessions = store, orphans, Sessions()
        runs.orphaned, freed = orphans.keep, Freed(runs)

        def tidies(owners: set[str]) -> None:
            store.tidy(owners)
            orphans.tidy()
            freed.tidy()

        self.queue(api_open=False)
        self._queue = Admission(self, shares, concurrency, runs, self._sessions.forget, tidies)
        self.middleware = [
            Middleware(Packed),
            Middleware(Cookies),
            Middleware(Presence, watched=self._queue),
            Middleware(Uploads, store=store, shares=shares),
        ]
        self.threads += concurrency

    def get_config_file(self) -> Any:
        """Gradio's, without the connection that each page would hold open for good: see static/connection.js.

        For what opens the page no output is marked: the page would go through all of them at each step of each event.
        """
        config: Any = super().get_config_file() | {"connect_heartbeat": False}
        for event in config["dependencies"]:
            if any(trigger == "load" for _, trigger in event["targets"]):
                event["show_progress_on"] = []
        return config

    def run_startup_events(self) -> None:
        """Begins to serve."""
        self.app.state_holder = self._sessions
        self._sessions.set_blocks(self)
        super().run_startup_events()

    async def process_api(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Notes whose request it is that is answered."""
        if kwargs.get("session_hash"):
            self._queue.saw(kwargs["session_hash"])
        return await super().process_api(*args, **kwargs)

    @property
    def admission(self) -> Admission:
        """The queue that all requests go through."""
        return self._queue

    def unread(self, session: str | None) -> bool:
        """Whether a session has updates of its run that it has not read."""
        return self._queue.unread(session)


def build(
    lab: Lab,
    adapters: Adapters,
    runs: Runs,
    concurrency: int = 1,
    shares: Shares | None = None,
    backend: EngineBackend | None = None,
    room: Room | None = None,
) -> Page:
    """The app around a lab, which writes what is running into `runs`.

    adapters: why a length method cannot be used on a model, or None. concurrency: runs at the same time. backend: what
    writes the runs, where the lab does not; long texts are read by the lab. room: of the class that uses the lab, which
    hears of the runs.
    """
    shares, backend = shares or Shares(), backend or LocalBackend(lab)
    store, orphans = Store(shares), Orphans(shares.trace_seconds)
    with Page(title=TITLE, analytics_enabled=False, fill_width=True, delete_cache=COPIES) as demo:
        gr.HTML(
            html_template=HEADER, js_on_load=THEME_SWITCH, head=live.HEAD, apply_default_css=False, elem_classes=["ll"]
        )
        live.present(playable())
        if room:
            joining.build(room, demo.load)
        with gr.Tabs() as tabs:
            with gr.Tab("Try it", id="try"):
                tried = try_it.build(backend, runs, adapters)
            with gr.Tab("Lessons", id="lessons"):
                lessons.build()
            with gr.Tab("Compare", id="compare"):
                way, (compared, compares), (swept, sweeps) = _comparing(backend, runs, adapters, store, demo)
            with gr.Tab("Read far", id="far"), gr.Column(elem_id=veil.root(long_context.PLACE)):
                read, reads = long_context.build(lab, runs, demo.load)
            with gr.Tab("Lab", id="lab"):
                parts = generate.build(backend, runs, adapters, store, demo.load)
                compare.leads_on(parts.form, compared, adapters, way, tabs)
            try_it.leads_on(tried, parts.form, adapters, tabs)
            with gr.Tab("Evidence", id="evidence") as opened:
                evidence.build(opened)
        forms = {try_it.PLACE: tried.form, compare.PLACE: compared, long_context.PLACE: read}
        boxes = forms | {compare.PLACE: {"way": way} | compared}
        shows = {try_it.PLACE: tried.place, compare.PLACE: compares, long_context.PLACE: reads}
        demo.stages = {place: Stage(boxes[place], TABS[place], shows[place]) for place in forms}
        lessons.panel(tabs, demo.stages, lambda: demo.admission.waits("model"), *([room.predicts] if room else []))
        _answering(backend, runs, demo)
        _keeping(demo, parts, {generate.PLACE: parts.form.parts, sweep.PLACE: swept} | forms)
        _taking_up(demo, runs, orphans, {
            **shows, generate.PLACE: generate.place(parts), sweep.PLACE: sweeps,
        })
    demo.admits(runs, store, orphans, shares, concurrency)
    demo.routes = [
        *live.routes(), *presence.routes(demo.admission), runs.streams.route, route(), embed.route(), languages.route(),
        coming.route(lambda: lab.models), Route(DEEP_LINK, _no_link),
        *completions.routes(lambda: lab.models.names(), demo.admission),
        metrics.route(lambda: backend.status(), lambda: len(demo.admission.present.sessions)),
        *(screen.routes(room, lambda: demo.reached) if room else []),
    ]  # fmt: skip
    return demo


def _answering(backend: EngineBackend, runs: Runs, demo: Page) -> None:
    """What programs ask for a run by."""
    generated = endpoint(backend, runs, demo.unread)
    gr.api(generated, api_name="generate", api_description=described(generated), concurrency_id="model")
    written = completions.endpoint(backend, runs, demo.unread)
    gr.api(written, api_name=completions.EVENT, api_visibility="private", concurrency_id="model")


def _comparing(
    backend: EngineBackend, runs: Runs, adapters: Adapters, store: Store, demo: Page
) -> tuple[gr.Radio, tuple[dict[str, Any], Place], tuple[dict[str, Any], Place]]:
    """Settings side by side, and a sweep, of which one shows: what chooses it, the parts of each form by their names,
    and where it shows runs."""
    way = sweep.ways()
    with gr.Column(elem_id=veil.root(compare.PLACE), elem_classes=["ll-compared"]):
        compared, compares = compare.build(backend, runs, adapters, store, demo.load)
    with gr.Column(elem_id=veil.root(sweep.PLACE), elem_classes=["ll-swept"]):
        swept = sweep.build(backend, runs, adapters, demo.load)
    return way, (compared, compares), swept


def _keeping(demo: Page, parts: generate.Parts, forms: kept.Forms) -> None:
    """Lets the browser keep the forms and the last run, and gives them back when the page opens."""

    def open_forms(request: gr.Request, text: str) -> list[Any]:
        found, words = kept.read(text), ""
        values = {place: kept.given_back(form, found.get(place, {})) for place, form in forms.items()}
        if generate.PLACE not in found:
            linked, words = generate.restored(parts.form, dict(request.query_params))
            values |= {generate.PLACE: linked} if words else {}
        given = [value for form in values.values() for value in form]
        return [*given, live.fill(message=words) if words else gr.skip()]

    kept.follow(forms)
    inputs = [part for form in forms.values() for part in form.values()]
    opened = kept.opens(demo.load, f"keptForms('{generate.PLACE}', {[*forms]})", open_forms, [*inputs, parts.figures])
    for ended in (opened.then, opened.failure):
        ended(None, None, None, js="() => LengthLab.keeps()", **QUIET)
    run = gr.Textbox(visible="hidden")
    made = [parts.trace, parts.past, parts.kept]
    shown = parts.trace.change(kept.packed, made, [run], concurrency_limit=None, **QUIET)
    shown.success(None, [run], None, js="(run) => LengthLab.keepRun(run, 'run')", **QUIET)
    before = kept.opens(demo.load, "keptRun()", generate.shown_again, [*parts.left, parts.stream])
    # A run that still goes on is taken up after those before it are there: it would give way to them.
    for ended in (before.then, before.failure):
        ended(None, None, None, js="() => document.querySelector('#take-up').click()", **QUIET)
    # A server that has begun anew knows nothing of the run that the page still shows.
    again = gr.Button(visible="hidden", elem_id="hand-over")
    kept.opens(again.click, "keptRun()", lambda text: generate.shown_again(text)[:-1], parts.left)


def _taking_up(demo: Page, runs: Runs, orphans: Orphans, places: Mapping[str, Place]) -> None:
    """Lets a page that is loaded anew, or was cut off, go on with the run that it followed."""
    again = gr.Button(visible="hidden", elem_id="take-up")
    shown = [part for place in places.values() for part in (place.stream, *place.buttons.all, *place.left)]
    take_up = taking_up(runs, orphans, places, lambda before, now: demo.admission.taken_up(before, now))
    kept.opens(again.click, "underWay()", take_up, shown)


async def _no_link(request: Request) -> JSONResponse:
    """Gradio's links keep a file each; this page's own carry their settings."""
    return JSONResponse({"detail": "There are no such links here: press Copy link on the page."}, 404)
