"""What was measured, as Markdown: assets/results/README.md from the JSON beside it, and the headlines of README.md.

    python -m backend report

Every figure is computed of the files alone, so that the same files give the same text. A difference is printed with its
interval (95 %) and what it rests on, or not at all. A section is the card of an experiment, in the registry's order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from backend.evaluation.card import PROMPTS, Card, Figure
from backend.evaluation.experiment import Experiment, Results
from backend.evaluation.experiments import experiments
from backend.evaluation.markdown import UNKNOWN, listed, table
from backend.record.results import RESULTS
from backend.refused import Refused

README = RESULTS.parents[1] / "README.md"
BEGIN, END = "<!-- headlines: written by `python -m backend report` -->", "<!-- end of headlines -->"
AGAIN = "Withdrawn: being measured again"
HEAD = """# Measured

Made by `python -m backend report` of the files in this folder; not to be edited. The model is SmolLM2-135M-Instruct
(135 million parameters, trained on 8,192 tokens) unless a section says otherwise. Intervals hold 95 % of draws of
prompts or texts (percentile bootstrap, paired), or of a share are Wilson's. Where an interval holds the value of no
difference, the rows are not distinguished. What does not rest on at least 100 prompts, or on six long texts, is no
headline. A command is printed as it was given then; some
have other names now. What went wrong is in [LOG.md](LOG.md).
"""


class Section(NamedTuple):
    """name: for links. text: Markdown below the title."""

    name: str
    title: str
    text: str
    figures: Sequence[Figure] = ()


class Shown(NamedTuple):
    """An experiment with the result files of it that are there, its card, and what else is to be said of it.

    card: None without files, or where they cannot be shown.
    """

    experiment: Experiment
    results: Results
    card: Card | None
    notes: Sequence[str]


def read(folder: Path = RESULTS) -> dict[str, Any]:
    """The result files by path within the folder; of one that is no JSON object, None."""
    return {file.relative_to(folder).as_posix(): _read(file) for file in sorted(folder.rglob("*.json"))}


def sections(folder: Path = RESULTS, link: str = "") -> list[Section]:
    """Every section. link: what stands before a file's name where it is linked to."""
    results = read(folder)
    found = [_shown(each, results) for each in experiments if not each.withdrawn]
    others = [name for name in results if not any(_of(each, name) for each in experiments)]
    return [
        Section("headlines", "Headlines", _headlines(found)),
        *(_section(each, link) for each in found),
        Section("withdrawn", AGAIN, _withdrawn(results, link)),
        *([Section("others", "Other files", _links(others, link))] if others else []),
    ]


def headlines(folder: Path = RESULTS) -> str:
    """What the lab shows, in a table, and in words what rests on too few prompts for it."""
    return sections(folder)[0].text


def text(folder: Path = RESULTS) -> str:
    """The whole report."""
    return _text(sections(folder))


def write(folder: Path = RESULTS, readme: Path = README) -> None:
    """Write the report beside its files, and its headlines between their markers in the README."""
    found = sections(folder)
    (folder / "README.md").write_text(_text(found), "utf-8")
    before, _, rest = readme.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise Refused(f"{readme} has no place for headlines: put {BEGIN} and {END} into it")
    readme.write_text(f"{before}{BEGIN}\n{found[0].text.strip()}\n{end}{after}", "utf-8")


def _text(found: Sequence[Section]) -> str:
    return "\n".join([HEAD, *(f"## {section.title}\n\n{section.text.strip()}\n" for section in found)])


def _read(file: Path) -> Any:
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _of(experiment: Experiment, name: str) -> bool:
    return any(PurePath(name).match(pattern) for pattern in experiment.files)


def _shown(experiment: Experiment, results: Results) -> Shown:
    # In the order of the patterns, which is that of the rows.
    names = dict.fromkeys(n for pattern in experiment.files for n in results if PurePath(n).match(pattern))
    there = {name: results[name] for name in names if results[name]}
    again = f"`{experiment.command}` makes it again."
    notes = [f"{name} cannot be read: {again}" for name in names if results[name] is None]
    if not there:
        return Shown(experiment, there, None, notes or [f"Not measured yet: `{experiment.command}`"])
    try:
        return Shown(experiment, there, experiment.card(there), notes)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
        words = f"{', '.join(there)} cannot be shown ({type(error).__name__}): {again}"
        return Shown(experiment, there, None, [words, *notes])


def _section(shown: Shown, link: str) -> Section:
    experiment, results, card, notes = shown
    parts = [f"*{experiment.question}*", *([card.text.strip()] if card else []), *notes]
    figures = card.figures if card else ()
    return Section(
        experiment.name, experiment.title, "\n\n".join(filter(None, [*parts, _sources(results, link)])), figures
    )


def _headlines(found: Sequence[Shown]) -> str:
    cards = [(each.experiment, each.card) for each in found if each.card]
    rows = [
        [what, much, f"`{experiment.command}`"]
        for experiment, card in cards
        for what, much in card.headlines
        if much != UNKNOWN
    ]
    shown = table(["what", "how much (95 %)", "command"], rows)
    few = "\n".join(f"- {card.few}" for _, card in cards if card.few)
    return f"{shown}\n\nNo headlines, as they rest on fewer than {PROMPTS} prompts:\n\n{few}" if few else shown


def _sources(files: Results, link: str) -> str:
    """What made the files: a line for each command, with the files that it alone made."""
    made: dict[str, list[str]] = {}
    for name, found in files.items():
        made.setdefault(_source(found), []).append(name)
    return "\n".join(f"- {_links(names, link)}: {line}" for line, names in made.items())


def _source(found: Mapping[str, Any]) -> str:
    """What made a file: command, commit, date, machine."""
    machine = found.get("machine") or {}
    where = machine.get("gpu") or machine.get("processor") or ""
    line = (str(found.get("commit", ""))[:10], str(found.get("date", ""))[:10], where)
    earlier = ", resumed" if found.get("resumed_from") else ""
    return f"`{found.get('command', '')}` ({', '.join(filter(None, line))}{earlier})"


def _withdrawn(results: Results, link: str) -> str:
    """Each withdrawn table: what it showed, that it is being measured again and why, and its files."""
    rows = [
        [
            each.title, f"being measured again: {each.withdrawn}",
            _links((name for name in results if _of(each, name)), link) or UNKNOWN,
        ]
        for each in experiments
        if each.withdrawn
    ]  # fmt: skip
    words = "The figures of these tables are not shown until they are measured anew; their files stay, to be checked."
    return f"{words}\n\n{listed(['table', 'why it is not shown', 'files'], rows)}"


def _links(names: Iterable[str], link: str) -> str:
    return ", ".join(f"[{name}]({link}{name})" for name in names)
