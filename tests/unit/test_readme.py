"""The README is short, names every folder and file that it links to, and shows the headlines of the results."""

import re
from pathlib import Path

from backend.evaluation.report import HEADLINES, METHODS, place, registered, sections
from backend.methods import methods
from backend.positions import policies

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def test_every_folder_of_code_is_named():
    folders = [path for top in ("app", "backend") for path in (ROOT / top).iterdir() if path.is_dir()]
    assert all(f"`{path.relative_to(ROOT)}/`" in README for path in folders if path.name[0] not in "._")


def test_the_headlines_are_those_of_the_results():
    assert place(README, HEADLINES)[1].strip() == sections()[0].text.strip()


def test_every_method_and_policy_is_there_with_its_sentence():
    written = place(README, METHODS)[1]
    assert written.strip() == registered().strip()
    assert all(f"`{one.name}`" in written for one in (*methods, *policies))


def test_it_is_read_in_one_sitting():
    assert len(README.splitlines()) <= 160


def test_what_it_links_to_is_there():
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert len(links) >= 4 and all((ROOT / link).exists() for link in links)


def test_every_difference_stands_beside_its_interval_and_what_it_rests_on():
    rows = place(README, HEADLINES)[1].strip().splitlines()
    figures = [row.split(" | ")[1] for row in rows if row.startswith("| ")][2:]
    interval = r"[\d.]+( %)? \([\d.]+( %)? to [\d.]+( %)?; \d+ (novels|rounds|lengths|prompts)\)"
    whole = rf"([`\w]+ )?{interval}(, [`\w]+ {interval})*"
    assert len(figures) >= 6 and all(re.fullmatch(whole, each) for each in figures)
