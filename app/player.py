"""A run as one HTML file that plays itself without a server: for slides and learning platforms."""

from __future__ import annotations

from html import escape
from typing import Any

from app import live
from app.charts.palette import PALETTES
from app.languages import ENGLISH, direction, words
from app.model import called
from app.present import played
from app.series import RunSeries
from app.view import View
from backend.record.trace import Trace
from backend.refused import Refused
from backend.settings import RunSettings, Turn, counted

# Characters of a prompt that stand above the run.
TITLE = 160
SPEAKERS = {"system": "System prompt:", "user": "Question:", "assistant": "Answer:"}
PAGE = """<!doctype html>
<html lang="{language}" dir="{direction}">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>
{style}
* {{ box-sizing: border-box; }}
body {{ margin: 0; padding: 24px; font: 16px/1.6 system-ui, sans-serif; color: var(--ll-ink); }}
body {{ background: var(--ll-soft); }}
main {{ max-width: 46rem; margin: 0 auto; }}
.prompt, .answer {{ white-space: pre-wrap; overflow-wrap: anywhere; }}
</style>
</head>
<body>
<main><h1>Length Lab</h1>{talk}<p class="prompt" dir="auto" translate="no">{prompt}</p><p>{about}</p>
<p class="answer" dir="auto" translate="no">{answer}</p><p><button type="button" data-present>Play</button></p></main>
<div class="ll" id="player">{screen}</div>
<script>window.LENGTH_LAB_PALETTES={palettes};
document.body.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
{script}
LengthLab.speak("{language}", {words});
LengthLab.present(document.querySelector("#player"), {{ scenes: [{scene}] }});
document.querySelector("[data-present]").click();</script>
</body>
</html>
"""


def scene(trace: Trace) -> dict[str, Any]:
    """A run as a scene of one lane. ValueError for one that has written nothing or has not ended."""
    return _scene(View.of(trace).series)


def _scene(run: RunSeries) -> dict[str, Any]:
    if not len(run) or run.finish is None:
        raise Refused("the run has written nothing that could be played: press Generate")
    prompt = run.settings.prompt.strip()
    title = prompt if len(prompt) <= TITLE else f"{prompt[:TITLE].rstrip()} …"
    return {"name": "run", "title": title, "look": _about(run.settings, run.finish.tokens)} | played([run])


def page(trace: Trace, language: str = ENGLISH) -> str:
    """The file, in one of `LANGUAGES`. ValueError for a run that has written nothing or has not ended."""
    run = View.of(trace).series
    shown = _scene(run)
    return PAGE.format(
        title=escape(f"Length Lab: {shown['title']}"), talk="".join(map(_said, trace.settings.earlier)),
        prompt=escape(trace.settings.prompt.strip()), about=escape(shown["look"]), answer=escape(run.answer),
        style=live.style(), screen=live.SCREEN, language=language, direction=direction(language),
        words=live.inline(words(language)), palettes=live.inline(PALETTES), script=live.script(),
        scene=live.inline(shown),
    )  # fmt: skip


def _said(turn: Turn) -> str:
    """A message before the prompt, as HTML."""
    said = f'<span translate="no">{escape(turn.content)}</span>'
    return f'<p class="prompt" dir="auto"><b>{SPEAKERS[turn.role]}</b> {said}</p>\n'


def _about(settings: RunSettings, tokens: int) -> str:
    """What was asked for, in a sentence."""
    wrote = f"{called(settings.model)} wrote {counted(tokens, 'tokens')}"
    if not settings.steered:
        return f"{wrote}; no length was asked for."
    return f"{wrote}; asked for {counted(settings.goal, settings.unit)} by the method {settings.method}."
