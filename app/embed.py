"""One scene or one recorded run alone, for a frame in another site's page: no tabs and no forms, nothing of Gradio.

Which sites may show it is said by `app.sites`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import gradio as gr
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from app import live, player, presets, toasts
from app.buttons import QUIET
from app.charts.palette import PALETTES
from app.languages import LANGUAGES
from app.present import playable
from app.scenes import scenes
from backend.record.trace import Trace

PATH = "/lab/embed/{name}"
PAGE = """<!doctype html>
<html lang="en" dir="ltr">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Length Lab: {title}</title>
<style>{style}</style>
{library}
</head>
<body>
<main class="ll ll-embed"><h1>{heading}</h1><div class="ll-scene"></div>
<p class="ll-look">{look}</p>
<footer><button type="button">Play again</button><a href="../../" target="_blank">Open Length Lab</a></footer></main>
<script>window.LENGTH_LAB_PALETTES={palettes};</script>
<script src="../charts.js"></script>
<script>LengthLab.embed(document.querySelector(".ll-embed"), {scene}, {languages});</script>
</body>
</html>
"""
OWN = (
    "Only runs that came with the lab have an address to be shown from. Save yours in the Lab with HTML: that file "
    "plays it on any site."
)
LIBRARY = '<script src="../plotly.js"></script>'


def route() -> Route:
    """Where a scene or a recorded run is shown, by its name."""
    return Route(PATH, _respond)


def page(scene: dict[str, Any]) -> str:
    """The page of a scene as `app.present.playable` makes it."""
    return PAGE.format(
        title=escape(scene["title"]), look=escape(scene["look"]), palettes=live.inline(PALETTES),
        style=live.style(live.STATIC / "embed.css"), scene=live.inline(scene), languages=live.inline([*LANGUAGES]),
        library=LIBRARY if "chart" in scene else "", heading=_heading(scene),
    )  # fmt: skip


def _heading(scene: dict[str, Any]) -> str:
    """Its title; a run's is its prompt, which stays as it was typed."""
    title = escape(scene["title"])
    return title if scene.get("embeds") else f'<span translate="no">{title}</span>'


def found(name: str) -> dict[str, Any] | None:
    """The scene of that name, or else the recorded run of that name as one."""
    for scene in playable():
        if scene["name"] == name:
            return scene
    runs = {preset.name: presets.recorded().get(preset.title) for preset in presets.PRESETS}
    trace = runs.get(name)
    return player.scene(trace) if trace else None


def of_pair(runs: Sequence[str]) -> str:
    """The name of the scene that plays these recorded runs and no others, or ""."""
    return next((scene.name for scene in scenes().values() if [lane.run for lane in scene.lanes] == [*runs]), "")


def of_run(trace: Trace | None) -> str:
    """The name of the recorded run that this is, or ""."""
    for preset in presets.PRESETS:
        run = presets.recorded().get(preset.title)
        if run and trace and run.settings == trace.settings and _answer(run) == _answer(trace):
            return preset.name
    return ""


def _answer(trace: Trace) -> str | None:
    return trace.finish.text if trace.finish else None


def offers(button: gr.Button, shown: Sequence[Any], named: Callable[..., str], js: str | None = None) -> None:
    """Lets a button copy the code that shows a recorded run on another site. named: its name, by the values of `shown`
    or what `js` gives, or "" for a run of the visitor's own, which has no address."""
    taken = gr.Textbox(visible="hidden")

    def asked(*given: Any) -> str:
        name = named(*given)
        scene = found(name)
        if scene is None:
            raise toasts.refusal(OWN, "There is no code for this run")
        return json.dumps({"name": name, "title": scene["title"]})

    made = button.click(asked, [*shown], [taken], js=js, **QUIET)
    copies = f"(scene) => LengthLab.embeds('#{button.elem_id}', JSON.parse(scene))"
    made.success(None, [taken], None, js=copies, **QUIET)


async def _respond(request: Request) -> Response:
    scene = found(request.path_params["name"])
    if scene is None:
        return JSONResponse({"detail": "No recorded run has this name: copy the embed code from the page again."}, 404)
    return HTMLResponse(page(scene))
