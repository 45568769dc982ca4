"""Connections that are open: how many, of whom, and for how long without a request.

Who waits gives way: where there are too many, one whose request has not come yet is closed for the newcomer, so half a
request keeps nobody out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import h11
from uvicorn import Server
from uvicorn.config import LOOP_FACTORIES
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.limits import Limits

MOST_FILES = 8_192
# Connections that wait to be accepted, which the loop then does all at once.
BACKLOG = 256
# Seconds that answers have to end by themselves once the server is closed.
GRACE = 2
# Seconds that a connection may rest between two requests: longer than HTTP libraries (5) and most proxies (60) keep
# theirs, or they would send the next request into one that is just being closed.
REST = 75


class Connections:
    """Those of one server, by address, oldest first."""

    def __init__(self, limits: Limits) -> None:
        self.head_seconds = limits.head_seconds
        # Half of the files that the system lets a process open are left to the lab, or to what comes at once.
        self.most = max(1, min(int(limits.connections), _files() // 2))
        self.of_address = min(int(limits.address_connections), self.most)
        self._open: dict[str, dict[Connection, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def enter(self, one: Connection) -> bool:
        """Lets a connection in, if need be for another one that waits. False: there is no place."""
        own = self._open.get(one.address, {})
        if len(own) >= self.of_address and not self._give_way([own]):
            return False
        if len(self) >= self.most and not self._give_way(sorted(self._open.values(), key=len, reverse=True)):
            return False
        self._open.setdefault(one.address, {})[one] = None
        return True

    def leave(self, one: Connection) -> None:
        """Forgets a connection, which may be gone already."""
        own = self._open.get(one.address, {})
        own.pop(one, None)
        if not own:
            self._open.pop(one.address, None)

    def _give_way(self, groups: Iterable[dict[Connection, None]]) -> bool:
        waiting = next((one for group in groups for one in group if one.waits), None)
        if waiting is None:
            return False
        self.leave(waiting)
        waiting.transport.abort()
        return True


class Connection(H11Protocol):
    """uvicorn's, with a place among the others and a time for each request's head."""

    def __init__(self, others: Connections, **given: Any) -> None:
        super().__init__(**given)
        self.others = others
        self.address = ""
        self._late: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether it has no request that is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if self.others.enter(self):
            self._time()
        else:
            transport.write(_full())
            transport.close()

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            super().data_received(data)
            self._time()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # What still comes of an answered request is not waited for as a next one is.
        if self.conn.their_state is h11.SEND_BODY:
            self._time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timing()
        self.others.leave(self)
        super().connection_lost(exc)

    def _time(self) -> None:
        """Gives the next request's head, or what still comes of an answered one, its time."""
        if not self.waits:
            self._stop_timing()
        elif self._late is None:
            self._late = self.loop.call_later(self.others.head_seconds, self.transport.abort)

    def _stop_timing(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def on_asyncio() -> None:
    """Lets servers that begin from now on run on asyncio's own loop, which can be bounded; where uvloop is installed,
    they would take that."""
    LOOP_FACTORIES["auto"] = LOOP_FACTORIES["asyncio"]


def bound(server: Server, limits: Limits) -> None:
    """Bounds the connections of a server that has begun, from its next one on."""
    connections = Connections(limits)
    server.config.http_protocol_class = partial(Connection, connections)  # type: ignore[assignment]
    server.config.timeout_graceful_shutdown = GRACE
    server.config.timeout_keep_alive = REST
    for listening in server.servers:
        listening.get_loop().call_soon_threadsafe(_listen, listening, min(BACKLOG, max(1, connections.most // 4)))


def _listen(listening: Any, most: int) -> None:
    """Takes so many connections at a time, which is also how many wait: each is a file before it can be refused."""
    listening._backlog, listening._serving = most, False
    listening._start_serving()


def _full() -> bytes:
    words = json.dumps({"detail": "Too many connections are open: close other pages of the lab, or try again later."})
    head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {len(words)}\r\n"
    return f"{head}Retry-After: 10\r\nConnection: close\r\n\r\n{words}".encode()


def _files() -> int:
    """How many files this process may have open, after raising that as far as it may."""
    try:
        import resource
    except ImportError:  # Windows has no such bound.
        return MOST_FILES
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if most == resource.RLIM_INFINITY else min(most, MOST_FILES)
    if wanted > now != resource.RLIM_INFINITY:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
            now = wanted
    return MOST_FILES if now == resource.RLIM_INFINITY else now
