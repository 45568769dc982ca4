"""The README names every folder, and shows the headlines of the results as they are."""

from pathlib import Path

from backend.evaluation.headlines import headlines
from backend.evaluation.report import BEGIN, END, read

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def test_every_folder_of_code_is_named():
    folders = [path for top in ("app", "backend") for path in (ROOT / top).iterdir() if path.is_dir()]
    assert all(f"`{path.relative_to(ROOT)}/`" in README for path in folders if path.name[0] not in "._")


def test_the_headlines_are_those_of_the_results():
    assert README.partition(BEGIN)[2].partition(END)[0].strip() == headlines(read()).strip()
