"""One scene or one recorded run alone, for a frame in another site's page: no tabs and no forms, nothing of Gradio.

Which sites may show it is said by `app.sites`.
"""

from __future__ import annotations

from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from app import live, player, presets
from app.charts.palette import PALETTES
from app.present import playable

PATH = "/lab/embed/{name}"
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Length Lab: {title}</title>
<style>{style}</style>
{library}
</head>
<body>
<main class="ll ll-embed"><h1>{title}</h1><div class="ll-scene"></div><p class="ll-look">{look}</p>
<footer><button type="button">Play again</button><a href="../../" target="_blank">Open Length Lab</a></footer></main>
<script>window.LENGTH_LAB_PALETTES={palettes};
{script}
LengthLab.embed(document.querySelector(".ll-embed"), {scene});</script>
</body>
</html>
"""
LIBRARY = '<script src="../plotly.js"></script>'


def route() -> Route:
    """Where a scene or a recorded run is shown, by its name."""
    return Route(PATH, _respond)


def page(scene: dict[str, Any]) -> str:
    """The page of a scene as `app.present.playable` makes it."""
    return PAGE.format(
        title=escape(scene["title"]), look=escape(scene["look"]), palettes=live.inline(PALETTES),
        style=live.style(live.STATIC / "embed.css"), script=live.script(), scene=live.inline(scene),
        library=LIBRARY if "chart" in scene else "",
    )  # fmt: skip


def found(name: str) -> dict[str, Any] | None:
    """The scene of that name, or else the recorded run of that name as one."""
    for scene in playable():
        if scene["name"] == name:
            return scene
    runs = {preset.name: presets.recorded().get(preset.title) for preset in presets.PRESETS}
    trace = runs.get(name)
    return player.scene(trace) if trace else None


async def _respond(request: Request) -> Response:
    scene = found(request.path_params["name"])
    if scene is None:
        return JSONResponse({"detail": "No recorded run has this name: copy the embed code from the page again."}, 404)
    return HTMLResponse(page(scene))
