"""A training's folder, which one training has at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from backend.refused import Refused


@contextmanager
def sole(folder: Path) -> Iterator[None]:
    """The folder for one training alone, of however many processes. ValueError where another has it."""
    from accelerate import Accelerator

    if not Accelerator().is_main_process:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(folder / "lock").acquire(timeout=0)
    except Timeout as error:
        raise Refused(f"another training writes to {folder}: wait for its end, or give another --out") from error
    with lock:
        yield
