"""The recorded run of a lesson: the last frame that its tab showed, and how long the run took."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from app.frames import Frame

FOLDER = Path(__file__).parents[1] / "assets" / "lessons"


class Recording(NamedTuple):
    """seconds: that the run took on two cores, which nothing else used. frame: as the page is handed it."""

    seconds: float
    frame: dict[str, Any]

    def shown(self) -> str:
        """The frame for the page, which shows it as often as it is asked to."""
        return orjson.dumps(self.frame | {"number": Frame({}).number}).decode()


def file_of(name: str) -> Path:
    """The file of a lesson's recording."""
    return FOLDER / f"{name}.json.gz"


@cache
def recorded(name: str) -> Recording | None:
    """A lesson's recording, None where it has none."""
    file = file_of(name)
    return Recording(**orjson.loads(gzip.decompress(file.read_bytes()))) if file.exists() else None


def keep(name: str, recording: Recording) -> None:
    """Writes it to its file."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    file_of(name).write_bytes(gzip.compress(orjson.dumps(recording._asdict()), 9, mtime=0))
