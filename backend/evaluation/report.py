"""What was measured, as Markdown: assets/results/README.md from the JSON beside it, and the headlines of README.md.

    python -m backend report

Every figure is computed of the files alone, so that the same files give the same text. A difference is printed with its
interval (95 %) and what it rests on, or not at all. A section is a function from the files to Markdown, in SECTIONS.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from backend.evaluation import report_joint, report_reading, report_speed, report_writing
from backend.evaluation.headlines import headlines
from backend.evaluation.markdown import UNKNOWN, Part, Results, listed
from backend.record.results import RESULTS
from backend.refused import Refused

README = RESULTS.parents[1] / "README.md"
BEGIN, END = "<!-- headlines: written by `python -m backend report` -->", "<!-- end of headlines -->"
AGAIN = "Withdrawn: being measured again"
TRAINED = "methods were trained on unequal numbers of texts and from unequal starts"
# Tables whose figures are not shown, by patterns of their files: what they showed, and why.
WITHDRAWN = {
    "length/*.json": ("How near length methods end to their targets", TRAINED),
    "pic_sft*.json": ("Long answers after training on long texts (PIC-SFT)", TRAINED),
    "longbench_write_long.json": ("Answers to prompts for more than 2,000 words, after PIC-SFT", TRAINED),
    "harness*.json": ("What adapters cost in multiple choice", f"{TRAINED}, and at most 80 questions were asked"),
    "shapes.json": ("Which LoRA to ship", "24 answers, of which only the mean was kept, so that it has no interval"),
}
HEAD = """# Measured

Made by `python -m backend report` of the files in this folder; not to be edited. The model is SmolLM2-135M-Instruct
(135 million parameters, trained on 8,192 tokens) unless a section says otherwise. Intervals hold 95 % of draws of
prompts or texts (percentile bootstrap, paired), or of a share are Wilson's. Where an interval holds the value of no
difference, the rows are not distinguished. What does not rest on at least 100 prompts, or on six long texts, is no
headline. What went wrong is in [LOG.md](LOG.md).
"""


class Section(NamedTuple):
    """name: for links. text: Markdown below the title."""

    name: str
    title: str
    text: str


# A further measure needs a function from its files to Markdown; what most readers ask first stands in ORDER.
PARTS: dict[str, Part] = {
    **report_joint.PARTS,
    **report_writing.PARTS,
    **report_reading.PARTS,
    **report_speed.PARTS,
}
ORDER = ("joint", "long-answers", "perplexity", "computation", "flatness", "speed", "endmark", "recall")
SECTIONS = {name: PARTS[name] for name in dict.fromkeys((*ORDER, *PARTS))}


def read(folder: Path = RESULTS) -> dict[str, Any]:
    """The result files by path within the folder; of one that is no JSON object, None."""
    return {file.relative_to(folder).as_posix(): _read(file) for file in sorted(folder.rglob("*.json"))}


def sections(folder: Path = RESULTS, link: str = "") -> list[Section]:
    """Every section. link: what stands before a file's name where it is linked to."""
    results = read(folder)
    found = [Section("headlines", "Headlines", headlines(results))]
    found += [Section(name, part.title, _section(part, results, link)) for name, part in SECTIONS.items()]
    found.append(Section("withdrawn", AGAIN, _withdrawn(folder, link)))
    shown = {file for part in SECTIONS.values() for file in part.files}
    others = [name for name in results if name not in shown and not _withdrawn_file(name)]
    return [*found, Section("others", "Other files", _links(others, link))] if others else found


def text(folder: Path = RESULTS) -> str:
    """The whole report."""
    parts = (f"## {section.title}\n\n{section.text.strip()}\n" for section in sections(folder))
    return "\n".join([HEAD, *parts])


def write(folder: Path = RESULTS, readme: Path = README) -> None:
    """Write the report beside its files, and its headlines between their markers in the README."""
    (folder / "README.md").write_text(text(folder), "utf-8")
    before, _, rest = readme.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise Refused(f"{readme} has no place for headlines: put {BEGIN} and {END} into it")
    lines = headlines(read(folder)).strip()
    readme.write_text(f"{before}{BEGIN}\n{lines}\n{end}{after}", "utf-8")


def _read(file: Path) -> Any:
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _section(part: Part, results: Results, link: str) -> str:
    there = {name: results[name] for name in part.files if results.get(name)}
    broken = (name for name in part.files if name in results and results[name] is None)
    damaged = [f"{name} cannot be read: `{part.command}` makes it again." for name in broken]
    if not there:
        return "\n\n".join(damaged or [f"Not measured yet: `{part.command}`"])
    try:
        words = part.text(there)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
        words = f"{', '.join(there)} cannot be shown ({type(error).__name__}): `{part.command}` makes it again."
    return "\n\n".join([words.strip(), *damaged, _sources(there, link)])


def _sources(files: Results, link: str) -> str:
    """What made the files: a line for each command, with the files that it alone made."""
    made: dict[str, list[str]] = {}
    for name, found in files.items():
        for line in _source(found):
            made.setdefault(line, []).append(name)
    return "\n".join(f"- {_links(dict.fromkeys(names), link)}: {line}" for line, names in made.items())


def _source(found: Mapping[str, Any]) -> Iterable[str]:
    """What made a file, or each part of it: command, commit, date, machine."""
    parts = [found] if "command" in found else [part for part in found.values() if isinstance(part, dict)]
    for part in parts:
        machine = part.get("machine") or {}
        where = machine.get("gpu") or machine.get("processor") or ""
        line = (str(part.get("commit", ""))[:10], str(part.get("date", ""))[:10], where)
        earlier = ", resumed" if part.get("resumed_from") else ""
        yield f"`{part.get('command', '')}` ({', '.join(filter(None, line))}{earlier})"


def _withdrawn(folder: Path, link: str) -> str:
    """Each withdrawn table: what it showed, that it is being measured again and why, and its files."""
    rows = []
    for pattern, (what, why) in WITHDRAWN.items():
        names = sorted(file.relative_to(folder).as_posix() for file in folder.glob(pattern))
        rows.append([what, f"being measured again: {why}", _links(names, link) or UNKNOWN])
    words = "The figures of these tables are not shown until they are measured anew; their files stay, to be checked."
    return f"{words}\n\n{listed(['table', 'why it is not shown', 'files'], rows)}"


def _withdrawn_file(name: str) -> bool:
    return any(Path(name).match(pattern) for pattern in WITHDRAWN)


def _links(names: Iterable[str], link: str) -> str:
    return ", ".join(f"[{name}]({link}{name})" for name in names)
