"""Files of visitors: what they upload and what is made for them. Each has owners, a bound and an end."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from filelock import FileLock, Timeout
from gradio.processing_utils import hash_bytes
from gradio.route_utils import GradioMultiPartParser
from starlette.datastructures import FormData, Headers
from starlette.exceptions import HTTPException
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
PREFIX, LOCK = "length-lab-", ".lock"
# What the request that is answered has written of a form's files.
_WRITTEN: ContextVar[list[str]] = ContextVar("written")

log = logging.getLogger("length_lab")


@cache
def folder() -> Path:
    """Where Gradio keeps the files of this process, and of no other; gone when the process ends, and where it was
    killed, when the next one begins."""
    place = Path(os.environ.get("GRADIO_TEMP_DIR") or tempfile.gettempdir())
    place.mkdir(parents=True, exist_ok=True)
    for left in place.glob(f"{PREFIX}*{LOCK}"):
        with suppress(OSError, Timeout), FileLock(left, timeout=0):
            _remove(left)
    made = tempfile.mkdtemp(prefix=PREFIX, dir=place)
    held = FileLock(made + LOCK, thread_local=False)
    held.acquire()
    os.environ["GRADIO_TEMP_DIR"] = made
    atexit.register(held.release)
    atexit.register(_remove, Path(made + LOCK))
    return Path(made)


def _remove(lock: Path) -> None:
    """Takes away a folder and the lock beside it, which a process holds for as long as it lives."""
    shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
    lock.unlink(missing_ok=True)


class Store:
    """Whose files lie where. Files are named by their content, so that several visitors can own one."""

    def __init__(self, shares: Shares) -> None:
        self.folder = folder()
        self.shares = shares
        self._owned: dict[str, dict[Path, float]] = {}
        self._lock = threading.RLock()

    def write(self, name: str, text: str | bytes, owner: str) -> str:
        """Keeps a text or a packed file for its owner, whole or not at all, and returns its path, which tells nothing
        but its content. OSError as of files."""
        data = text.encode() if isinstance(text, str) else text
        path = self.folder / hash_bytes(data) / name
        with self._lock:
            # What is there may be on its way to another visitor.
            if not path.is_file():
                _put(path, data)
            self.own(path, owner)
        return str(path)

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
    """Makes what is uploaded its sender's, refuses what is more than a visitor may keep, and leaves nothing of a form
    that did not arrive; ASGI."""

    def __init__(self, app: ASGIApp, store: Store, shares: Shares) -> None:
        self.app = app
        self.store = store
        self.most = shares.visitor_mb
        self._coming: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return await self.app(scope, receive, send)
        with _scratch():
            if not scope["path"].endswith(UPLOAD):
                return await self.app(scope, receive, send)
            try:
                with self._expected(scope):
                    await self._upload(scope, receive, send)
            except HTTPException as error:
                await JSONResponse({"detail": error.detail}, error.status_code)(scope, receive, send)
            except OSError as error:
                log.error("an upload failed", exc_info=error)
                words = "The lab has no room for the file: try again in a few minutes."
                await JSONResponse({"detail": words}, 507)(scope, receive, send)

    @contextmanager
    def _expected(self, scope: Scope) -> Iterator[None]:
        """Counts an upload among those that come; one without a length may be as large as any. HTTPException where it
        is too large, or too much comes."""
        length, owner = Headers(scope=scope).get("content-length", ""), visitor(scope).owner
        size = int(length) if length.isdecimal() else self.most * MB
        if size > self.most * MB:
            raise HTTPException(413, f"The upload is larger than {self.most} MB: send less at a time.")
        if self._coming[owner] + size > self.most * MB or self._coming.total() + size > self.most * MB * VISITORS:
            raise HTTPException(429, "Too many uploads come at the same time: try again in a moment.")
        self._coming[owner] += size
        try:
            yield
        finally:
            self._coming[owner] -= size
            self._coming = +self._coming

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
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


@contextmanager
def _scratch() -> Iterator[None]:
    """Takes away what a request wrote of a form's files and did not make a visitor's."""
    written: list[str] = []
    token = _WRITTEN.set(written)
    try:
        yield
    finally:
        _WRITTEN.reset(token)
        for name in written:
            Path(name).unlink(missing_ok=True)


Parse = Callable[[GradioMultiPartParser], Coroutine[Any, Any, FormData]]


def _telling(parse: Parse) -> Parse:
    """Gradio's reading of a form, which leaves its files behind where the form is cut off or refused."""

    async def parsed(parser: GradioMultiPartParser) -> FormData:
        try:
            return await parse(parser)
        finally:
            _WRITTEN.get([]).extend(file.name for file in parser._files_to_close_on_error)

    return parsed


GradioMultiPartParser.parse = _telling(GradioMultiPartParser.parse)  # type: ignore[assignment, method-assign]


def _put(path: Path, data: bytes) -> None:
    """Writes a file whole, or leaves nothing."""
    path.parent.mkdir(exist_ok=True, parents=True)
    scratch = path.with_name(f".{path.name}")
    try:
        scratch.write_bytes(data)
        scratch.replace(path)
    except OSError:
        scratch.unlink(missing_ok=True)
        with suppress(OSError):
            path.parent.rmdir()
        raise


def _size(path: Path) -> int:
    """What a file counts for: empty ones take room as well."""
    try:
        return LEAST + path.stat().st_size
    except OSError:
        return LEAST
