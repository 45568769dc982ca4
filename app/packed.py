"""The page on the wire, packed where the browser takes it so: else it is seven times as large.

Nothing else is packed here: streams are to arrive piece by piece, and scripts are packed beforehand.
"""

from __future__ import annotations

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

# The page, and what makes it.
PATHS = ("/", "/config")
LEVEL = 6


class Packed:
    """ASGI around an app."""

    def __init__(self, app: ASGIApp) -> None:
        self.app, self._packed = app, GZipMiddleware(app, compresslevel=LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = scope["type"] == "http" and scope["path"] in PATHS
        await (self._packed if page else self.app)(scope, receive, send)
