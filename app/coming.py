"""How far a model has come that a page waits for: `/lab/coming?model=…&precision=…`, asked while it is being loaded."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from backend.models.pool import Coming, Models

LOADED = "The model is being loaded …"


def words(coming: Coming) -> str:
    """What a page says of a model that is being loaded."""
    if coming.memory:
        return f"The model is being loaded: {coming.memory / 1e9:.1f} GB of memory …"
    if coming.size:
        return f"The model is being fetched: {coming.fetched / 1e9:.1f} of {coming.size / 1e9:.1f} GB …"
    return LOADED


def route(models: Callable[[], Models]) -> Route:
    """Where a page asks: words, or null where no such model is being loaded in this process."""

    def respond(request: Request) -> Response:
        asked = request.query_params
        coming = models().coming(asked.get("model", ""), asked.get("precision", ""))
        return JSONResponse(words(coming) if coming else None, headers={"Cache-Control": "no-store"})

    return Route("/lab/coming", respond)
