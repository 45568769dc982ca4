"""The project with one more file, for tests of what one file adds."""
from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]


def tree(folder: Path, room: str, name: str, text: str) -> dict[str, str]:
    """The project as links in `folder`, with a file of that name and text in `backend/<room>/`, in the place of its own
    if there is one; the environment of programs that run there."""
    for part in ("app", "assets", "tests", "pyproject.toml"):
        (folder / part).symlink_to(ROOT / part)
    for place, inside in (("backend", room), (f"backend/{room}", None)):
        (folder / place).mkdir()
        for each in (ROOT / place).iterdir():
            if each.name not in (inside, name):
                (folder / place / each.name).symlink_to(each)
    (folder / "backend" / room / name).write_text(text, "utf-8")
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
