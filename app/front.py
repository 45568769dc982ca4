"""The lab's front door: what every request passes before Gradio sees it, and what every answer says to the browser."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from gradio.route_utils import FnIndexInferError
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.bodies import UPLOAD, Bodies
from app.limits import Limits
from app.sites import SAFE, Sites

# How Gradio's code fails on a request that does not fit what it names. What a run fails on, its events tell.
UNFIT = (LookupError, TypeError, ValueError, AttributeError, FnIndexInferError)
log = logging.getLogger("length_lab")


class Front:
    """ASGI around an app."""

    def __init__(self, app: ASGIApp, sites: Sites, limits: Limits) -> None:
        self.app = app
        self.sites = sites
        self.bodies = Bodies(limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        send = self._telling(send)
        headers = Headers(scope=scope)
        try:
            if refused := self.sites.refusal(scope["method"], headers):
                raise HTTPException(*refused)
            await self._pass(scope, receive, send, headers)
        except HTTPException as error:
            await JSONResponse({"detail": error.detail}, error.status_code)(scope, receive, send)

    async def _pass(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        if scope["method"] in SAFE:
            await self.app(scope, receive, send)
            return
        upload = scope["path"].rstrip("/") == UPLOAD
        self.bodies.announced(headers.get("content-length"), upload)
        if upload:
            await self.app(scope, self.bodies.pieces(receive), send)
            return
        with self.bodies.holding() as body:
            if await self.bodies.gather(receive, body):
                self.bodies.check(body)
                await self.app(scope, _again(bytes(body), receive), send)

    def _telling(self, send: Send) -> Send:
        async def answering(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                for name, value in self.sites.headers.items():
                    answer[name] = value
            await send(message)

        return answering


def standing(sites: Sites, limits: Limits) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    """A lifespan that puts the front before an app, outside of all middleware, before the first request."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        inner = app.middleware_stack
        assert inner is not None
        app.middleware_stack = Front(inner, sites, limits)
        yield
        app.middleware_stack = inner

    return lifespan


def unfit(request: Request, error: Exception) -> Response:
    """Refuses a request that Gradio's code fails on, and logs how it failed."""
    if request.method in SAFE:
        raise error
    log.warning("a request to %.80s could not be read", request.url.path, exc_info=error)
    return JSONResponse({"detail": "The request does not fit this lab: see /gradio_api/info for what does."}, 400)


def _again(body: bytes, receive: Receive) -> Receive:
    """A body that was read already, then what comes after it."""
    left = [body]

    async def given() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return given
