"""What was measured, as Markdown: assets/results/README.md from the JSON beside it, and the headlines of README.md,
whose methods and policies are those of the registries.

    python -m backend report

Every figure is computed of the files alone, so that the same files give the same text. A difference is printed with its
interval (95 %) and what it rests on, or not at all. A section is the card of an experiment, in the registry's order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from backend.evaluation.card import PROMPTS, Card
from backend.evaluation.experiment import Experiment, Results
from backend.evaluation.experiments import experiments
from backend.evaluation.markdown import UNKNOWN, listed, table
from backend.methods import methods
from backend.positions import policies
from backend.record.results import RESULTS
from backend.refused import Refused

README = RESULTS.parents[1] / "README.md"
BEGIN, END = "<!-- {}: written by `python -m backend report` -->", "<!-- end of {} -->"
HEADLINES, METHODS = "headlines", "methods and policies"
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
    """name: for links. text: Markdown below the title. card: of an experiment whose results are there and can be shown.
    command: what measures it."""

    name: str
    title: str
    text: str
    card: Card | None = None
    command: str = ""


def read(folder: Path = RESULTS, only: Experiment | None = None) -> dict[str, Any]:
    """The result files by path within the folder, or those of one experiment; of one that is no JSON object, None."""
    files = {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob("*.json"))}
    return {name: _read(file) for name, file in files.items() if only is None or _of(only, name)}


def sections(folder: Path = RESULTS, link: str = "") -> list[Section]:
    """Every section. link: what stands before a file's name where it is linked to."""
    results = read(folder)
    found = [_section(each, results, link) for each in experiments if not each.withdrawn]
    others = [name for name in results if not any(_of(each, name) for each in experiments)]
    return [
        Section("headlines", "Headlines", _headlines(found)),
        *found,
        Section("withdrawn", AGAIN, _withdrawn(results, link)),
        *([Section("others", "Other files", _links(others, link))] if others else []),
    ]


def section(name: str, folder: Path = RESULTS, link: str = "") -> Section:
    """That of one experiment, whose module has its name; the others are not imported."""
    experiment = experiments.alone(name)
    return _section(experiment, read(folder, experiment), link)


def text(found: Sequence[Section]) -> str:
    """The report of these sections."""
    return "\n".join([HEAD, *(f"## {section.title}\n\n{section.text.strip()}\n" for section in found)])


def write(folder: Path = RESULTS, readme: Path = README) -> None:
    """Write the report beside its files, and in the README its headlines, the methods and the policies."""
    found = sections(folder)
    (folder / "README.md").write_text(text(found), "utf-8")
    whole = readme.read_text("utf-8")
    for name, written in ((HEADLINES, found[0].text), (METHODS, registered())):
        before, _, after = place(whole, name, str(readme))
        whole = f"{before}{BEGIN.format(name)}\n{written.strip()}\n{END.format(name)}{after}"
    readme.write_text(whole, "utf-8")


def place(whole: str, name: str, file: str = "the text") -> tuple[str, str, str]:
    """What stands before, between and after the markers of a part that is written by the report."""
    begin, end = BEGIN.format(name), END.format(name)
    before, _, rest = whole.partition(begin)
    between, found, after = rest.partition(end)
    if not found:
        raise Refused(f"{file} has no place for {name}: put {begin} and {end} into it")
    return before, between, after


def registered() -> str:
    """Every length method and every position policy with its sentence, a line for those of a kind."""
    found: list[tuple[str, Iterable[Any]]] = [
        ("Methods", (method for method in methods if method.causal)),
        ("Methods for encoder-decoders alone", (method for method in methods if not method.causal)),
        ("Position policies", policies),
    ]
    return "\n".join(f"- {name}: {' '.join(map(_sentence, each))}" for name, each in found)


def _sentence(one: Any) -> str:
    paper = f" ({one.paper})" if one.paper else ""
    return f"`{one.name}`{paper} – {one.summary}"


def _read(file: Path) -> Any:
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _of(experiment: Experiment, name: str) -> bool:
    return any(PurePath(name).match(pattern) for pattern in experiment.files)


def _section(experiment: Experiment, results: Results, link: str) -> Section:
    # In the order of the patterns, which is that of the rows.
    names = dict.fromkeys(n for pattern in experiment.files for n in results if PurePath(n).match(pattern))
    there = {name: results[name] for name in names if results[name]}
    again = f"`{experiment.command}` makes it again."
    notes = [f"{name} cannot be read: {again}" for name in names if results[name] is None]
    card = None
    if not there:
        notes = notes or [f"Not measured yet: `{experiment.command}`"]
    else:
        try:
            card = experiment.card(there)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
            notes.insert(0, f"{', '.join(there)} cannot be shown ({type(error).__name__}): {again}")
    parts = [f"*{experiment.question}*", card.text.strip() if card else "", *notes, _sources(there, link)]
    return Section(experiment.name, experiment.title, "\n\n".join(filter(None, parts)), card, experiment.command)


def _headlines(found: Sequence[Section]) -> str:
    cards = [(each.command, each.card) for each in found if each.card]
    rows = [
        [what, much, f"`{command}`"] for command, card in cards for what, much in card.headlines if much != UNKNOWN
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
