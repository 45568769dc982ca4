"""Who a visitor is: a browser by its signed cookie, a program by its session, and both by their address."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "length-lab"
KEY = "length_lab.visitor"
# Servers that share visitors share a secret; another's cookie is as good as none.
SECRET = os.environ.get("LENGTH_LAB_SECRET", "").encode() or secrets.token_bytes(32)


class Visitor(NamedTuple):
    """name: of the browser, "" for what has no cookie. address: where it asks from."""

    name: str
    address: str

    def alone(self, session: str | None) -> tuple[str, ...]:
        """What tells this visitor from others at the same address."""
        return (self.name,) if self.name else (self.address, session or "")

    @property
    def owner(self) -> str:
        """Whose the uploaded and exported files are."""
        return self.name or self.address


def visitor(scope: Scope) -> Visitor:
    """Who asks."""
    if KEY not in scope:
        address = (scope.get("client") or ("", 0))[0]
        scope[KEY] = Visitor(_name(Headers(scope=scope).get("cookie", "")), address)
    return scope[KEY]


class Cookies:
    """Gives each browser that opens the page a cookie; ASGI."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or visitor(scope).name:
            return await self.app(scope, receive, send)

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if headers.get("content-type", "").startswith("text/html"):
                    headers.append("set-cookie", _cookie(scope["scheme"] == "https"))
            await send(message)

        await self.app(scope, receive, named)


def _cookie(secure: bool) -> str:
    name = secrets.token_urlsafe(12)
    return f"{COOKIE}={name}.{_signature(name)}; Path=/; HttpOnly; SameSite=Lax" + "; Secure" * secure


def _signature(name: str) -> str:
    return hmac.new(SECRET, name.encode(), hashlib.sha256).hexdigest()


def _name(cookies: str) -> str:
    """The name in a request's cookies, where this lab signed it."""
    try:
        given = SimpleCookie(cookies).get(COOKIE)
    except CookieError:
        return ""
    name, _, signature = given.value.partition(".") if given else ("", "", "")
    return name if name and hmac.compare_digest(signature.encode(), _signature(name).encode()) else ""
