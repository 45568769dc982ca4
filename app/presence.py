"""Who is there: connections on which the events of a session are read, or its page tells that it is open."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.visitors import visitor

READS = re.compile(r"/gradio_api/(?:queue/data|call/(?:v2/)?[^/]+/(?P<event>[^/]+))$")
BEATS = re.compile(r"/gradio_api/heartbeat/(?P<session>.+)$")


class Present:
    """Counts of open connections by session and by owner."""

    def __init__(self) -> None:
        self.readers: Counter[str] = Counter()
        self.pages: Counter[str] = Counter()
        self.owners: Counter[str] = Counter()

    @property
    def sessions(self) -> set[str]:
        """The sessions that are there."""
        return {*self.readers, *self.pages}

    def __contains__(self, session: str) -> bool:
        return session in self.readers or session in self.pages


class Watched(Protocol):
    """What the connections are of: see app.admission.Admission."""

    present: Present

    def session_of(self, event: str) -> str: ...
    def knows(self, session: str) -> bool: ...
    def came(self, session: str) -> None: ...
    def closed(self, session: str) -> None: ...
    def left(self, session: str, whole: bool) -> None: ...


class Presence:
    """Keeps the counts while connections are open, and tells `watched` of each session whose last reader is gone, and
    whether that was at the stream's own end; ASGI."""

    def __init__(self, app: ASGIApp, watched: Watched) -> None:
        self.app = app
        self.watched = watched

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        read, beats = _asks(scope, READS), _asks(scope, BEATS)
        if not read and not beats:
            return await self.app(scope, receive, send)
        present = self.watched.present
        if beats:
            with counted(present.pages, beats["session"]), counted(present.owners, visitor(scope).owner):
                return await self.app(scope, receive, send)
        event, whole, gone = read["event"], False, False  # type: ignore[index]
        session = self.watched.session_of(event) if event else _queried(scope)

        async def heard() -> Message:
            nonlocal gone
            message = await receive()
            # After the end every connection is declared gone.
            gone = gone or (message["type"] == "http.disconnect" and not whole)
            return message

        async def seen(message: Message) -> None:
            nonlocal whole
            await send(message)
            whole = message["type"] == "http.response.body" and not message.get("more_body", False)

        self.watched.came(session)
        try:
            with counted(present.readers, session), counted(present.owners, visitor(scope).owner):
                await self.app(scope, heard, seen)
        finally:
            # Gradio ends a stream by itself where nothing more is to come; another run may have been asked for since.
            if session not in present.readers:
                self.watched.left(session, whole and not gone)


def routes(watched: Watched) -> list[Route]:
    """Where an open page says now and then that it is there, and hears whether it is known; and that it is left."""

    async def here(request: Request) -> Response:
        return JSONResponse(watched.knows(request.path_params["session"]))

    async def left(request: Request) -> Response:
        watched.closed(request.path_params["session"])
        return Response(status_code=204)

    return [Route("/lab/here/{session}", here, methods=["POST"]), Route("/lab/left/{session}", left, methods=["POST"])]


@contextmanager
def counted(counts: Counter[str], name: str) -> Iterator[None]:
    """Counts one more of a name until the block ends."""
    counts[name] += 1
    try:
        yield
    finally:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]


def _asks(scope: Scope, path: re.Pattern[str]) -> re.Match[str] | None:
    return path.search(scope["path"]) if scope["type"] == "http" and scope["method"] == "GET" else None


def _queried(scope: Scope) -> str:
    return parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [""])[-1]
