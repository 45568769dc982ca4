"""The page's own components: each is one gr.HTML with a template that never changes, alive through static/page/.

`gr.Plot` builds its chart anew at each change. Here the template holds no `${value}`, so Gradio leaves the DOM alone
when the value changes; the script watches the value and updates what it made once.

What a run shows travels in frames (see app.frames), which the script of one `stream` hands to the other components.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gradio as gr
import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.charts import PREFIXES, shown
from app.charts.base import Tab, encode
from app.charts.palette import PALETTES
from app.frames import Frame
from app.series import RunSeries

STATIC = Path(__file__).parent / "static"
# Of plotly.js what draws on two axes, a third of the whole on the wire: `npm pack plotly.js-cartesian-dist-min`.
PLOTLY = STATIC / "plotly.js"
PAGE = STATIC / "page"
STYLES = tuple(STATIC / f"{name}.css" for name in ("style", "sight", "sweep", "scenes", "forced_colors"))
# In this order: a part may use at once what those before it define.
PARTS = (
    "loading", "palette", "stream", "drawing", "chart", "table", "response", "clipboard", "figures", "sight", "choice",
    "waiting", "coming", "conversation", "branches", "runway", "lesson", "scene", "embed", "present", "measurements",
    "base", "theme", "address", "tabs", "kept", "made", "finished", "dictionary", "language",
)
# What the components and the page's events call.
NAMES = (
    "chart", "table", "stream", "deliver", "response", "figures", "answers", "sight", "choice", "inRange", "waits",
    "gone", "refused", "setTheme", "keptTheme", "share", "veil", "tabs", "keep", "keeps", "keptForms", "keepRun",
    "keptRun", "underWay", "saveTexts", "runway", "lesson", "runLesson", "asksFor", "present", "embed", "embeds",
    "measurements", "presses", "conversation", "speak", "speaks", "titled", "worded", "shareForm", "sweeps",
    "coming", "branches", "formAsks", "formPressed",
)
# The least target that the flag of a runway can be moved to.
LEAST = 5
SELDOM = "data-seldom hidden"
SCRIPTS = ("plotly.js", "charts.js")
HEAD = "".join(f'<script src="lab/{name}"></script>' for name in SCRIPTS)


def page_head() -> str:
    """What the page's <head> needs before any component runs: palettes, connections, presses. No foreign address."""
    first = "\n".join((STATIC / f"{name}.js").read_text("utf-8") for name in ("connection", "early"))
    return f"<script>window.LENGTH_LAB_PALETTES={json.dumps(PALETTES)};\n{first}</script>"


def routes() -> list[Route]:
    """Routes that serve the page's scripts from this machine."""
    return [Route(f"/lab/{name}", _script, name=name) for name in SCRIPTS]


def charts(tab: Tab, runs: Sequence[RunSeries], preview: bool | None = None, **kwargs: Any) -> list[gr.HTML]:
    """The live charts of a tab, in order; those of settings show the runs' and are returned.

    preview: those of settings alone, or the others alone.
    """
    previews = []
    for each in shown(tab):
        if preview not in (None, each.preview):
            continue
        value = encode(each.draw(runs)) if each.preview else None
        part = chart(PREFIXES[tab] + each.name, each.title, each.tabs[tab], value, each.preview, each.seldom, **kwargs)
        if each.preview:
            previews.append(part)
    return previews


def chart(
    name: str, title: str, hint: str, value: str | None = None, preview: bool = False, seldom: bool = False,
    **kwargs: Any,
) -> gr.HTML:
    """A chart. Its value is what `app.charts.base.encode` makes; a preview is not of the run that is shown; one that is
    seldom there is out of sight while it has nothing to show."""
    template = f"""
<div class="ll-chart{" ll-preview" * preview}" data-name="{escape(name)}" role="group"
  aria-label="{escape(title)}" {SELDOM * seldom}>
  <header><h3>{escape(title)}</h3>
    <button type="button" data-act="table" aria-pressed="false" aria-label="Table of {escape(title)}">Table</button>
    <button type="button" data-act="expand" aria-pressed="false" aria-label="Enlarge {escape(title)}">Enlarge</button>
    <details><summary aria-label="Save {escape(title)}">Save</summary><div>
      <button type="button" data-act="png">PNG</button><button type="button" data-act="svg">SVG</button>
      <button type="button" data-act="html">HTML</button></div></details>
  </header>
  <p class="ll-hint">{escape(hint)}</p>
  <div class="ll-plot"></div>
  <p class="ll-words"></p><p class="ll-spoken sr-only" aria-live="polite"></p>
  <table class="ll-table" hidden><thead></thead><tbody></tbody></table>
</div>"""
    script = "LengthLab.chart(element, props, watch)"
    return _html(template, script, value, f"chart-{name}", classes=["ll-cell"], **kwargs)


def response(name: str, title: str, branches: bool = False) -> gr.HTML:
    """Streaming text in which every token can be asked for its numbers. Frames carry what `app.text.pieces` makes.

    branches: whether another token can be chosen in the place of one; its value then says which, as JSON.
    """
    template = f"""
<section class="ll-response empty" data-name="text-{escape(name)}" aria-label="{escape(title)}">
  <header><h3>{escape(title)}</h3>
    <label>Tint <select aria-label="Tint of the tokens"><option value="">off</option>
      <option value="p">probability</option><option value="h">entropy</option></select></label>
    <button type="button" data-act="copy">Copy</button></header>
  <div class="ll-text" tabindex="0" role="textbox" aria-readonly="true" aria-multiline="true"
    aria-label="{escape(title)}: arrow keys walk through the tokens"></div>
  <div class="ll-tip" role="status" hidden></div>
</section>"""
    script = "LengthLab.response(element, props, trigger) // 'input'" if branches else "LengthLab.response(element)"
    return _html(template, script, None, f"text-{name}")


def figures(name: str, fields: Sequence[tuple[str, str]], about: Mapping[str, str] = MappingProxyType({})) -> gr.HTML:
    """A strip of named figures, a progress bar and a message. fields: (key, label); the value is what `fill` makes.
    about: by key, what a press on the label says of it."""
    boxes = "".join(
        f'<div><dt>{_explained(f"{name}-{key}", label, about.get(key, ""))}</dt>'
        f'<dd data-field="{escape(key)}">–</dd></div>'
        for key, label in fields
    )
    template = f"""
<section class="ll-figures" data-name="{escape(name)}"><dl>{boxes}</dl><div class="ll-progress"><i></i></div>
<p class="ll-message" role="status" aria-live="polite"></p>
<p class="ll-unkept" role="status"><span hidden>This run is too large to be kept: after a reload it is gone.</span></p>
</section>"""
    return _html(template, "LengthLab.figures(element, props, watch)", None, f"figures-{name}")


def _explained(name: str, label: str, about: str) -> str:
    """A label; with words about it, a button that shows them to mouse, finger and keys alike."""
    if not about:
        return escape(label)
    place, words = escape(f"about-{name}"), escape(about)
    return (
        f'<button type="button" class="ll-explains" popovertarget="{place}" title="{words}">{escape(label)}</button>'
        f'<span class="ll-explained" id="{place}" popover role="note">{words}</span>'
    )


def answers(name: str, title: str, hint: str, written: bool = True) -> gr.HTML:
    """A text of each of several ways. Frames carry rows of [name, text, verdict]; the hint shows where none is.

    written: whether a model wrote the texts, so that they stay as they are in every language.
    """
    template = f"""
<section class="ll-answers{" ll-written" * written}" data-name="{escape(name)}" aria-label="{escape(title)}">
<h2>{escape(title)}</h2><p class="ll-hint">{escape(hint)}</p><dl></dl></section>"""
    return _html(template, "LengthLab.answers(element, props, watch)", None, f"answers-{name}")


def sight(name: str, title: str, hint: str) -> gr.HTML:
    """A text as several ways of reading leave it, out of sight before one is read. Frames carry `app.sight.Sight`s."""
    template = f"""
<section class="ll-answers ll-written ll-sight" data-name="{escape(name)}" aria-label="{escape(title)}" hidden>
<h2>{escape(title)}</h2><p class="ll-hint">{escape(hint)}</p><dl></dl></section>"""
    return _html(template, "LengthLab.sight(element, props, watch)", None, f"sight-{name}")


def table(name: str, title: str, columns: Sequence[str], file: str) -> gr.HTML:
    """Rows that come one by one, which can be saved as a CSV named `file`. Frames carry what `app.swept.pieces`
    makes."""
    heads = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    template = f"""
<section class="ll-rows empty" data-name="{escape(name)}" aria-label="{escape(title)}"><header><h3>{escape(title)}</h3>
<button type="button" data-act="csv" data-file="{escape(file)}" disabled>Download CSV</button></header>
<div class="ll-scroll" tabindex="0" role="region" aria-label="{escape(title)}"><table><thead><tr>{heads}</tr></thead>
<tbody></tbody></table></div></section>"""
    return _html(template, "LengthLab.table(element)", None, f"table-{name}")


def runway(name: str, title: str, target: int) -> gr.HTML:
    """Lanes from nothing to beyond a target, whose flag can be moved. Frames carry what `app.runway.encode` makes; the
    value is the target."""
    template = f"""
<section class="ll-runway" data-name="{escape(name)}" aria-label="{escape(title)}">
<div class="ll-track"><div class="ll-runs"></div>
<div class="ll-flag" role="slider" tabindex="0" aria-label="Target" aria-valuemin="{LEAST}"><b></b></div></div>
<div class="ll-scale" aria-hidden="true"></div>
<p class="ll-hint">Move the flag while it writes. Notches are ends of sentences; the line below each lane is the chance
that the answer ends there.</p>
<details class="ll-whys" hidden><summary>Why does it end here? The endings it tried</summary><ol></ol></details>
<p class="ll-spoken sr-only" aria-live="polite"></p></section>"""
    return _html(template, "LengthLab.runway(element, props, trigger, watch) // 'input'", target, f"runway-{name}")


def lesson(lessons: Sequence[dict[str, Any]], patience: int) -> gr.HTML:
    """The panel of the lesson that is open. lessons: as `app.tabs.lessons.shows` has them, with the selectors of the
    buttons that start and stop each. patience: seconds of waiting after which the recorded run of one is shown."""
    template = """
<aside class="ll-lesson" aria-label="Lesson" hidden><header><h2 tabindex="-1"></h2>
<button type="button" data-act="close" aria-label="Close the lesson">×</button></header>
<div class="ll-steps"></div></aside>"""
    script = "LengthLab.lesson(element, props, trigger) // 'input'"
    return _html(template, script, "", "lesson", lessons=list(lessons), patience=patience)


def branches() -> gr.HTML:
    """Answers that branch from one another, of which one can be chosen to be shown; out of sight while there are none.
    Its value is what `app.branches.shown` makes."""
    template = """
<fieldset class="ll-branches" hidden><legend>Branches</legend>
<p class="ll-hint">Choose a token of the answer, and another in its place, to go on from there.</p><ul></ul>
</fieldset>"""
    return _html(template, "LengthLab.branches(element, props, trigger, watch) // 'input'", "", "branches")


# The screen that plays scenes, over the whole page.
SCREEN = """
<dialog class="ll-present" aria-labelledby="present-title" tabindex="-1">
<div class="ll-top"><p class="ll-place"></p>
<button type="button" data-act="embed" title="For a page of your own: shows this scene">Copy embed code</button>
<button type="button" data-act="close">Close</button></div>
<h2 id="present-title" aria-live="polite"></h2><div class="ll-scene"></div><p class="ll-look"></p>
<nav aria-label="Scenes"><button type="button" data-act="previous">Previous</button>
<button type="button" data-act="again">Play again</button><button type="button" data-act="next">Next</button></nav>
</dialog>"""


def present(scenes: Sequence[dict[str, Any]]) -> gr.HTML:
    """The screen. scenes: as `app.present.playable` makes them."""
    return _html(SCREEN, "LengthLab.present(element, props)", "", "present", scenes=list(scenes))


def measurements(named: Sequence[tuple[str, str]]) -> gr.HTML:
    """A box that searches the measurements of the page, and links to them. named: their names and titles."""
    links = "".join(f'<a href="#results-{escape(name)}">{escape(title)}</a>' for name, title in named)
    template = f"""
<section class="ll-search"><h2>All measurements</h2><p>Made by the commands that stand below each, not by this page; the
papers used other models and other data.</p>
<label>Search <input type="search" placeholder="perplexity, int4, prompts …" autocomplete="off"></label>
<p role="status"></p><nav class="ll-contents" aria-label="Measurements">{links}</nav></section>"""
    return _html(template, "LengthLab.measurements(element)", None, "measurements")


def fill(**values: Any) -> str:
    """The value of `figures`."""
    return orjson.dumps(values).decode()


def inline(value: Any) -> str:
    """JSON that may stand in a script of a page."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def stream(frame: Frame | None = None, keeps: Mapping[str, Any] | None = None) -> gr.HTML:
    """Out of sight: hands frames to the charts, figures and texts they name. Its value is an encoded frame, or the
    invitation to a stream of them. keeps: how the browser keeps the last run, as `app.kept.frames` says it."""
    value = frame.encode() if frame else None
    # Properties of its own would be lost where something else is changed before its tab is opened.
    script = f"LengthLab.stream(element, props, watch, {inline(dict(keeps or {}))})"
    return _html("<i></i>", script, value, None, classes=["ll-unseen"])


def choice(
    name: str, title: str, about: str, options: list[dict[str, str]], value: str, **kwargs: Any
) -> gr.HTML:
    """Radio buttons of which single ones can be off. about: what is chosen. options: {id, label, hint, off: reason or
    ""}; value: the id."""
    template = f"""
<fieldset class="ll-choice" aria-describedby="about-{escape(name)}"><legend>{escape(title)}</legend>
<p class="ll-hint" id="about-{escape(name)}">{escape(about)}</p><div></div>
<p class="ll-reason" aria-live="polite"></p>
<details class="ll-reasons" hidden><summary>Why each is off</summary><ul></ul></details></fieldset>"""
    script = "LengthLab.choice(element, props, trigger, watch) // 'change'"
    return _html(template, script, value, f"choice-{name}", options=options, **kwargs)


def conversation(value: str) -> gr.HTML:
    """Questions and answers, out of sight while there are none. value: as `app.conversation.written` makes it."""
    template = """
<section class="ll-talk" aria-label="Conversation" hidden><header><h2>Conversation</h2>
<button type="button" data-act="clear">New conversation</button></header>
<ol tabindex="0" aria-label="Earlier turns"></ol></section>"""
    script = "LengthLab.conversation(element, props, trigger, watch) // 'change'"
    return _html(template, script, value, "conversation")


def heading(title: str, words: str) -> gr.HTML:
    """The head of a panel."""
    return gr.HTML(
        f"<h2>{escape(title)}</h2><p>{escape(words)}</p>", apply_default_css=False, elem_classes=["ll", "ll-heading"]
    )


def note(value: str = "", state: str = "", **kwargs: Any) -> gr.HTML:
    """A line of text that changes seldom; its value is what `noted` makes."""
    return gr.HTML(noted(value, state), apply_default_css=False, elem_classes=["ll", "ll-note"], **kwargs)


def noted(words: str, state: str = "") -> str:
    """The value of `note`, escaped. state: "", "busy", "good" or "bad"."""
    return f'<p role="status" data-state="{escape(state)}">{escape(words)}</p>' if words else ""


def _html(
    template: str, script: str, value: Any, elem_id: str | None, classes: Sequence[str] = (), **kwargs: Any
) -> gr.HTML:
    return gr.HTML(
        value,
        html_template=template,
        js_on_load=script,
        head=HEAD,
        apply_default_css=False,
        elem_id=elem_id,
        elem_classes=["ll", *classes],
        **kwargs,
    )


@cache
def _packed(name: str) -> bytes:
    return gzip.compress(PLOTLY.read_bytes() if name == "plotly.js" else script().encode(), 6)


def script() -> str:
    """The parts as one script: several would come in any order, and Gradio runs the components when it likes.

    A component's function is given the element of one gr.HTML, and `watch` by which values arrive.
    """
    parts = "\n".join((PAGE / f"{part}.js").read_text("utf-8") for part in PARTS)
    return f'window.LengthLab = (() => {{\n"use strict";\n{parts}\nreturn {{ {", ".join(NAMES)} }};\n}})();\n'


def style(*more: Path) -> str:
    """STYLES, and more, as one sheet."""
    return "".join(file.read_text("utf-8") for file in (*STYLES, *more))


async def _script(request: Request) -> Response:
    name = request.url.path.rsplit("/", 1)[-1]
    return Response(
        _packed(name),
        media_type="text/javascript",
        headers={"Content-Encoding": "gzip", "Cache-Control": "no-cache"},
    )
