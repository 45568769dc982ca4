"""Frames of a run on their way to the page: a stream of their own, straight to the script that draws them.

An output of a Gradio event costs, at each update, thread changes in the server and a walk over all components in the
page: many times what a frame takes to make and to draw. So an event only tells the page which stream to follow, and at
the end hands over the last frame.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from backend.cgroup import cores

PATH = "/lab/frames/{name}"
# Seconds between frames, which cost the page's machine what they cost: with two cores the model and, often, the browser
# need both.
SLOWEST = 0.33
PERIOD = 0.2 if cores() > 2 else SLOWEST


@dataclass(frozen=True)
class Frame:
    """parts: JSON of charts and figures, by name. texts: pieces that only become more, by name.

    running: more frames will follow.
    number: its own, since Gradio does not hand the page a value that is the same as the one before.
    whole: a run's last, which shows all of it.
    """

    parts: Mapping[str, str]
    texts: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    running: bool = False
    number: int = field(default_factory=count(1).__next__)
    whole: bool = False

    def encode(self, seen: Mapping[str, int] | None = None) -> str:
        """JSON for the page; of each text as [known, more] what comes after the `seen` pieces.

        Pieces are counted, not characters: Python counts these in code points, JavaScript in UTF-16 units.
        """
        parts = ",".join(f'"{name}":{value}' for name, value in self.parts.items())
        tails = {name: (known := (seen or {}).get(name, 0), text[known:]) for name, text in self.texts.items()}
        head = {"number": self.number, "running": self.running} | ({"whole": True} if self.whole else {})
        return f'{orjson.dumps(head).decode()[:-1]},"texts":{orjson.dumps(tails).decode()},"parts":{{{parts}}}}}'


class Stream:
    """The newest frame of one run; a reader who is slow misses frames, but nothing of a text."""

    def __init__(self) -> None:
        self.name = secrets.token_urlsafe(16)
        self._frame: Frame | None = None
        self._ended = False
        self._wake: set[Callable[[], object]] = set()

    @property
    def invitation(self) -> str:
        """The value of `live.stream` that lets the page follow."""
        return orjson.dumps({"follow": self.name}).decode()

    def show(self, frame: Frame) -> None:
        """Makes a frame the newest; from any thread."""
        self._frame = frame
        self._call()

    def end(self) -> None:
        """Lets every reader go."""
        self._ended = True
        self._call()

    async def read(self) -> AsyncIterator[str]:
        """Server-sent events: the newest frame at once, and each newer one, until the end."""
        loop, fresh = asyncio.get_running_loop(), asyncio.Event()
        fresh.set()

        def wake() -> None:
            loop.call_soon_threadsafe(fresh.set)

        self._wake.add(wake)
        last: Frame | None = None
        seen: dict[str, int] = {}
        try:
            while not self._ended:
                await fresh.wait()
                fresh.clear()
                if (frame := self._frame) and frame is not last:
                    yield f"data: {frame.encode(seen)}\n\n"
                    last, seen = frame, {name: len(text) for name, text in frame.texts.items()}
        finally:
            self._wake.discard(wake)

    def _call(self) -> None:
        for wake in tuple(self._wake):
            wake()


class Streams:
    """Streams that are open. Who knows a stream's name, which cannot be guessed, may read it."""

    def __init__(self) -> None:
        self._open: dict[str, Stream] = {}

    @contextmanager
    def opened(self) -> Iterator[Stream]:
        """A stream, for as long as the block runs."""
        stream = Stream()
        self._open[stream.name] = stream
        try:
            yield stream
        finally:
            del self._open[stream.name]
            stream.end()

    @property
    def route(self) -> Route:
        """Where the page reads."""
        return Route(PATH, self._respond)

    async def _respond(self, request: Request) -> Response:
        stream = self._open.get(request.path_params["name"])
        if stream is None:
            # The run is over: by the standard of server-sent events this says not to come again, and is no error.
            return Response(status_code=204)
        return StreamingResponse(stream.read(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})
