"""The README's map of the code leaves nothing out."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("folder", ["app", "backend"])
def test_the_map_names_every_module_and_folder(folder):
    drawn = (ROOT / "README.md").read_text("utf-8").partition("## Map of the code")[2].partition("## Test and")[0]
    # Each folder's part begins with its name at the start of a line and ends where the next one begins.
    part = drawn.partition(f"\n{folder}/ ")[2].partition("\nassets/")[0].partition("\napp/")[0].split()
    names = {entry.name for entry in (ROOT / folder).iterdir() if entry.suffix == ".py"} - {"__init__.py"}
    names |= {f"{entry.name}/" for entry in (ROOT / folder).iterdir() if entry.is_dir() and entry.name[0] not in "._"}
    assert names <= set(part)
