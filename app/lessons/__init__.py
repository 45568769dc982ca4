"""The lessons, one file of this folder each, in their order."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from app.lessons.lesson import Lesson


@cache
def lessons() -> dict[str, Lesson]:
    """By the names of their files."""
    return Lesson.folder(Path(__file__).parent)
