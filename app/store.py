"""Files of visitors: what they upload and what is made for them. Each has owners, a bound and an end."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import orjson
from gradio.processing_utils import save_bytes_to_cache
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.bodies import UPLOAD
from app.limits import MB
from app.shares import Shares
from app.visitors import visitor

# Bytes that a file counts for beside what it holds.
LEAST = 16_000
# How many visitors' files there is room for; seconds after which a file that is nobody's goes.
VISITORS, OLD = 8, 3600


@cache
def folder() -> Path:
    """Where Gradio keeps the files of this process, and of no other; gone when the process ends."""
    given = os.environ.get("GRADIO_TEMP_DIR")
    if given:
        Path(given).mkdir(parents=True, exist_ok=True)
    made = tempfile.mkdtemp(prefix="length-lab-", dir=given)
    os.environ["GRADIO_TEMP_DIR"] = made
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


class Store:
    """Whose files lie where. Files are named by their content, so that several visitors can own one."""

    def __init__(self, shares: Shares) -> None:
        self.folder = folder()
        self.shares = shares
        self._owned: dict[str, dict[Path, float]] = {}
        self._lock = threading.Lock()

    def write(self, name: str, text: str, owner: str) -> str:
        """Keeps a text for its owner and returns its path, which tells nothing but its content. OSError as of files."""
        path = save_bytes_to_cache(text.encode(), name, str(self.folder))
        self.own(Path(path), owner)
        return path

    def own(self, path: Path, owner: str) -> None:
        """Makes a file the owner's; the oldest of theirs go where it is too much."""
        with self._lock:
            self._owned.setdefault(owner, {})[path] = time.monotonic()
            self._bound()

    def tidy(self, there: set[str]) -> None:
        """Removes the files of owners who are not there, and what is nobody's and old."""
        now = time.monotonic()
        with self._lock:
            for owner, files in list(self._owned.items()):
                if owner not in there and now - max(files.values()) > self.shares.kept_seconds:
                    for path in list(files):
                        self._let_go(owner, path)
            owned = self._paths()
            for path, written in self._found():
                if path not in owned and time.time() - written > OLD:
                    path.unlink(missing_ok=True)

    def _bound(self) -> None:
        most = self.shares.visitor_mb * MB
        for owner in list(self._owned):
            self._oldest_go([(owner, path) for path in self._owned[owner]], most)
        self._oldest_go([(owner, path) for owner, files in self._owned.items() for path in files], most * VISITORS)

    def _oldest_go(self, files: list[tuple[str, Path]], most: int) -> None:
        """Keeps the newest of these files, as many as fit; the very newest always."""
        files.sort(key=lambda file: self._owned[file[0]][file[1]], reverse=True)
        held = 0
        for place, (owner, path) in enumerate(files):
            held += _size(path)
            if place and held > most:
                self._let_go(owner, path)

    def _let_go(self, owner: str, path: Path) -> None:
        del self._owned[owner][path]
        if not self._owned[owner]:
            del self._owned[owner]
        if path not in self._paths():
            path.unlink(missing_ok=True)
            with suppress(OSError):
                path.parent.rmdir()

    def _paths(self) -> set[Path]:
        return {path for files in self._owned.values() for path in files}

    def _found(self) -> Iterator[tuple[Path, float]]:
        for path in self.folder.rglob("*"):
            with suppress(OSError):
                if path.is_file():
                    yield path, path.stat().st_ctime


class Uploads:
    """Makes what is uploaded its sender's, and refuses what is more than a visitor may keep; ASGI."""

    def __init__(self, app: ASGIApp, store: Store, shares: Shares) -> None:
        self.app = app
        self.store = store
        self.most = shares.visitor_mb

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].endswith(UPLOAD):
            return await self.app(scope, receive, send)
        length = Headers(scope=scope).get("content-length", "0")
        if length.isdecimal() and int(length) > self.most * MB:
            words = f"The upload is larger than {self.most} MB: send less at a time."
            return await JSONResponse({"detail": words}, 413)(scope, receive, send)
        body = bytearray()

        async def seen(message: Message) -> None:
            if message["type"] == "http.response.body":
                body.extend(message.get("body", b""))
                if not message.get("more_body", False):
                    self._own(bytes(body), visitor(scope).owner)
            await send(message)

        await self.app(scope, receive, seen)

    def _own(self, answer: bytes, owner: str) -> None:
        """answer: the paths as JSON, or why nothing was taken."""
        with suppress(orjson.JSONDecodeError):
            paths = orjson.loads(answer)
            for path in paths if isinstance(paths, list) else ():
                self.store.own(Path(path), owner)


def _size(path: Path) -> int:
    """What a file counts for: empty ones take room as well."""
    try:
        return LEAST + path.stat().st_size
    except OSError:
        return LEAST
