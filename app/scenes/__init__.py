"""The scenes that Present shows, one file of this folder each, in their order."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from app.scenes.scene import Scene


@cache
def scenes() -> dict[str, Scene]:
    """By the names of their files."""
    return Scene.folder(Path(__file__).parent)
