"""The rooms of the house stand on each other: what is below imports nothing from above."""

from __future__ import annotations

import ast
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for part in ("app", "backend")
    for file in (ROOT / part).rglob("*.py")
}


def room(module: str) -> str:
    """`backend.training.train` is in `backend.training`; a module right below `backend` or `app` is its own."""
    return ".".join(module.split(".")[:2])


def imported(file: Path) -> set[str]:
    """The project's modules that a file names in its imports, those for types and inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in FILES else node.module for name in names}
    return found & set(FILES)


def test_no_rooms_import_each_other_however_far_round():
    below = defaultdict(set)
    for module, file in FILES.items():
        below[room(module)] |= {room(other) for other in imported(file)} - {room(module)}
    # The packages' own front doors name what the package offers.
    for front in ("backend", "app"):
        below.pop(front, None)
    assert list(TopologicalSorter(below).static_order())


def test_the_backend_knows_no_page():
    assert not [
        (module, other)
        for module, file in FILES.items()
        if module.startswith("backend")
        for other in imported(file)
        if other.startswith("app")
    ]
