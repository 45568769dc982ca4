"""A long reading kept on its way, so that a call goes on from where an earlier one was stopped."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from backend.models.embedded import cache


def place(*what: object) -> Path:
    """The file for what is distinguished by these."""
    name = hashlib.sha256(repr(what).encode()).hexdigest()[:16]
    return cache() / "readings" / f"{name}.pt"


def save(file: Path, state: dict[str, Any]) -> None:
    """Write numbers and tensors, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    scratch = file.with_suffix(f".{os.getpid()}.new")
    torch.save(state, scratch)
    scratch.replace(file)


def load(file: Path) -> dict[str, Any] | None:
    """What was saved; None where nothing was, or nothing that can be read."""
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, EOFError, LookupError, RuntimeError, ValueError, UnpicklingError):
        return None
