"""Recorded measurements: where result files lie, their charts' frame, and how they are downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from app.charts.base import Chart
from backend.evaluation.markdown import table
from backend.record.results import RESULTS

FOLDER = RESULTS
# Where a file is downloaded: what stands before its name.
LINK = "lab/results/"
# The papers' own figures: other models and other data.
PUBLISHED = RESULTS.parent / "published"


class Figure(NamedTuple):
    """A chart under its heading and hint."""

    title: str
    hint: str
    chart: Chart


def content(name: str) -> dict[str, Any]:
    """What a file of the folder holds; nothing where it is missing or no JSON object."""
    try:
        found = json.loads((FOLDER / name).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def published(folder: Path = PUBLISHED) -> str:
    """The papers' tables as Markdown."""
    papers = [json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*.json"))]
    return "\n\n".join(
        f"**{each['caption']}**\n\n{table(each['columns'], each['rows'])}"
        for paper in papers
        for each in paper["tables"]
    )


def names() -> list[str]:
    """Every result file that is there, as a path within the folder."""
    return sorted(file.relative_to(FOLDER).as_posix() for file in FOLDER.rglob("*.json"))


def route() -> Route:
    """Where result files are downloaded."""
    return Route(f"/{LINK}{{name:path}}", _download)


async def _download(request: Request) -> Response:
    name = request.path_params["name"]
    return FileResponse(FOLDER / name) if name in names() else Response(status_code=404)
