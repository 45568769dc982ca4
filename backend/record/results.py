"""Files of results: read to go on from, and written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backend.refused import Refused

RESULTS = Path(__file__).parents[2] / "assets" / "results"


def resumed(file: Path, checked: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any] | None:
    """The result to go on from, None where there is no file. ValueError for one that cannot be gone on from."""
    if not file.exists():
        return None
    try:
        return checked(json.loads(file.read_text("utf-8")))
    except json.JSONDecodeError as error:
        raise Refused(f"{file} cannot be gone on from, it is no JSON: give another --out, or delete it") from error
    except (OSError, ValueError) as error:
        raise Refused(f"{file} cannot be gone on from, {error}: give another --out, or delete it") from error


def writable(file: Path) -> None:
    """Make room for a result file. ValueError with a sentence where it cannot be written, before it is measured."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{file} cannot be written ({error.strerror}): give another --out") from error
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise Refused(f"{file} cannot be written (no permission): give another --out")
    if file.is_dir():
        raise Refused(f"{file} is a folder: give a file as --out")


def keep(file: Path, result: dict[str, Any]) -> None:
    """Write a result file, whole or not at all. ValueError with a sentence where it cannot be written."""
    scratch = file.with_suffix(".new")
    try:
        scratch.write_text(json.dumps(_rounded(result), separators=(",", ":")), "utf-8")
        scratch.replace(file)
    except OSError as error:
        raise Refused(f"{file} cannot be written ({error.strerror}): give another --out") from error


def as_kept(value: Any) -> Any:
    """A value as a file gives it back."""
    return json.loads(json.dumps(_rounded(value)))


def counted(name: str, what: str, asked: int, count: int, why: str) -> str:
    """How many of a summary were asked for and how many counted, and why the others, if any, did not."""
    left = f"; {asked - count:,} not: {why}" if count < asked else ""
    return f"{name}: {asked:,} {what} asked for, {count:,} counted{left}"


def _rounded(value: Any) -> Any:
    """Floats in it to six significant digits, which is more than a measurement tells: files stay small."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value
