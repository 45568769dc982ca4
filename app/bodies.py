"""Requests' bodies, bounded before anything is made of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from app.limits import MB, Limits

Arrived = TypeVar("Arrived")
UPLOAD = "/gradio_api/upload"
# What an upload has around the file.
AROUND = 1 * MB
# One that nothing ends is a string too, or each of its escaped quotes would be tried as the beginning of another.
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_NOT_BRACKETS = re.compile(rb"[^][{}]+")


class Bodies:
    """Reads what visitors send; raises HTTPException for what is too much."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held = 0

    def announced(self, length: str | None, upload: bool) -> None:
        """Refuses a body by its Content-Length, before any of it has come."""
        if length is not None and not re.fullmatch(r"\d{1,18}", length):
            raise HTTPException(400, "The request's Content-Length is no number.")
        self._fits(int(length or 0), upload)

    def pieces(self, receive: Receive) -> Receive:
        """An upload as it comes, counted."""
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await self._within(receive())
            size += len(message.get("body", b""))
            self._fits(size, upload=True)
            return message

        return counted

    @contextmanager
    def holding(self) -> Iterator[bytearray]:
        """Where a body is gathered; it counts among those held until the block ends."""
        body = bytearray()
        try:
            yield body
        finally:
            self._held -= len(body)

    async def gather(self, receive: Receive, body: bytearray) -> bool:
        """Reads a whole body that is JSON, if anything. False: the visitor left."""
        return await self._within(self._gather(receive, body))

    async def _gather(self, receive: Receive, body: bytearray) -> bool:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return False
            piece = message.get("body", b"")
            self._fits(len(body) + len(piece), upload=False)
            if self._held + len(piece) > self._limits.bodies_mb * MB:
                raise HTTPException(429, "Too many large requests come at the same time: try again in a moment.")
            body += piece
            self._held += len(piece)
            more = message.get("more_body", False)
        return True

    def check(self, body: bytes | bytearray) -> None:
        """Refuses JSON that is small to send and large to hold; any other text passes."""
        if 0 in body:
            raise HTTPException(400, "The request has bytes of value 0: send JSON as UTF-8.")
        frame = _STRINGS.sub(b"", body)
        brackets = _NOT_BRACKETS.sub(b"", frame)
        values = frame.count(b",") + len(brackets) // 2
        if values > self._limits.json_values:
            raise HTTPException(
                413, f"The request has {values:,} values, more than {self._limits.json_values:,.0f}: send fewer."
            )
        depth = deepest = 0
        for bracket in brackets:
            depth += 1 if bracket in b"[{" else -1
            deepest = max(deepest, depth)
        if deepest > self._limits.json_depth:
            raise HTTPException(
                400, f"The request's lists are nested {deepest:,} deep, more than {self._limits.json_depth:,.0f}."
            )

    def _fits(self, size: int, upload: bool) -> None:
        most, kind = (self._limits.upload_mb, "upload") if upload else (self._limits.json_mb, "request")
        if size > most * MB + (AROUND if upload else 0):
            raise HTTPException(413, f"The {kind} has more than {most:,g} MB: send less.")

    async def _within(self, arrival: Awaitable[Arrived]) -> Arrived:
        try:
            return await asyncio.wait_for(arrival, self._limits.body_seconds)
        except TimeoutError:
            raise HTTPException(408, "The request did not arrive in time: send it again.") from None
