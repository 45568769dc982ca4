"""Visitors of a page that is served: what a browser or a program sends and reads, without a browser."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
from held import Held

from app import __main__ as app
from app import page
from app.runs import Runs
from app.shares import Shares
from backend.models.adapters import available

PATIENCE = 120
API = "/gradio_api"


class Served:
    """A page over a held lab, on a port of its own."""

    def __init__(self, lab: Held, shares: Shares | None = None, concurrency: int = 1) -> None:
        self.lab, self.runs = lab, Runs()
        self.page = page.build(lab, available, self.runs, concurrency, shares)
        self.queue, self.store = self.page._queue, self.page.store
        self.address = app.serve(self.page).rstrip("/")

    def close(self) -> None:
        """Ends the server, and what rests for a page that does not come back."""
        self.lab.free()
        self.runs.close()
        self.page.close()


@contextmanager
def serving(lab: Held, shares: Shares | None = None, concurrency: int = 1) -> Iterator[Served]:
    """A page for as long as the block runs."""
    served = Served(lab, shares, concurrency)
    try:
        yield served
    finally:
        served.close()


def eventually(true: Callable[[], Any], what: str = "it") -> None:
    """Waits until something is so."""
    until = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < until, f"{what} never came to be"
        time.sleep(0.05)


class Visitor:
    """One who asks. session: of its page, or "" for a program that sends none. cookie: whether it opened the page."""

    def __init__(self, served: Served, session: str | None = None, cookie: bool = False) -> None:
        self.served = served
        self.session = uuid.uuid4().hex[:11] if session is None else session
        self.http = httpx.Client(base_url=served.address, timeout=PATIENCE)
        if cookie:
            self.http.get("/")

    def presses(self, name: str, data: Sequence[Any] = (), session: Any = ..., tab: int = 0) -> httpx.Response:
        """Asks for the event of that function's name; tab: of which of the tabs that have one, in their order."""
        functions = self.served.page.fns.values()
        number = [function._id for function in functions if name in (function.name, function.api_name)][tab]
        given = self.session if session is ... else session
        return self.http.post(
            f"{API}/queue/join", json={"fn_index": number, "data": list(data), "session_hash": given}
        )

    def calls(self, **settings: Any) -> httpx.Response:
        """Asks for a run by the documented endpoint."""
        return self.http.post(f"{API}/call/v2/generate", json={"prompt": "Why is the sky blue?", **settings})

    def asks(self, **settings: Any) -> httpx.Response:
        """Asks for a run in this session."""
        described = self.http.get(f"{API}/info").json()["named_endpoints"]["/generate"]["parameters"]
        given = {"prompt": "Why is the sky blue?", **settings}
        return self.presses("generate", [given.get(p["parameter_name"], p.get("parameter_default")) for p in described])

    @contextmanager
    def reading(self, event: str | None = None) -> Iterator[Iterator[Any]]:
        """What the session, or one event of the documented endpoint, gets to read; gone with the block."""
        where, query = (f"call/generate/{event}", {}) if event else ("queue/data", {"session_hash": self.session})
        with (
            httpx.Client(base_url=self.served.address, timeout=PATIENCE) as http,
            http.stream("GET", f"{API}/{where}", params=query) as stream,
        ):
            yield (json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: "))

    @contextmanager
    def open(self) -> Iterator[None]:
        """The visitor's page is open for as long as the block runs."""
        with (
            httpx.Client(base_url=self.served.address, timeout=PATIENCE) as http,
            http.stream("GET", f"{API}/heartbeat/{self.session}"),
        ):
            yield

    def answered(self, name: str, data: Sequence[Any] = ()) -> bool:
        """Whether a press is answered as it should be."""
        assert self.presses(name, data).status_code == 200
        with self.reading() as messages:
            return next(each["success"] for each in messages if each["msg"] == "process_completed")
