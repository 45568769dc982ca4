"""What the lab does now, as Prometheus reads it: GET /lab/metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import fields

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from backend.serving.backend import Status

# What each number of a status is, and whether it only grows.
SERIES = {
    "writing": ("gauge", "runs that write"),
    "waiting": ("gauge", "runs without a token yet"),
    "tokens": ("counter", "tokens written"),
    "memory_bytes": ("gauge", "memory of the engine's process"),
    "cpu_seconds": ("counter", "processor time of the engine's process"),
}


def route(status: Callable[[], Sequence[Status]], visitors: Callable[[], int]) -> Route:
    """status: of the engines. visitors: sessions that are there."""

    async def metrics(request: Request) -> Response:
        try:
            engines = await asyncio.to_thread(status)
        except Exception:
            return PlainTextResponse("The engines do not answer: ask again in a minute.\n", 503)
        return PlainTextResponse(written(engines, visitors()), media_type="text/plain; version=0.0.4")

    return Route("/lab/metrics", metrics)


def written(engines: Sequence[Status], visitors: int) -> str:
    """In Prometheus' text format."""
    lines = []
    for name in (each.name for each in fields(Status) if each.name in SERIES):
        kind, about = SERIES[name]
        full = f"length_lab_{name}" + "_total" * (kind == "counter")
        lines += [f"# HELP {full} {about}", f"# TYPE {full} {kind}"]
        lines += [f'{full}{{engine="{engine.name}"}} {getattr(engine, name)}' for engine in engines]
    visiting = "length_lab_visitors"
    lines += [f"# HELP {visiting} sessions that are there", f"# TYPE {visiting} gauge", f"{visiting} {visitors}"]
    return "\n".join(lines) + "\n"
