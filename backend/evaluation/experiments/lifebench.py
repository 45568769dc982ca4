"""LIFEBench's English tasks: a number of words that the prompt asks for, by a benchmark that others made.

    python -m backend evaluate lifebench --data FOLDER
    python -m backend evaluate lifebench --data FOLDER --row none ldpe

FOLDER holds lifebench_lite_en.jsonl. Every method that aims at a length is a row, and so is the model alone, which
reads the number in the prompt as all rows do. Greedy decoding, each answer as a person's run writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from backend.engine import Lab
from backend.evaluation.card import Card
from backend.evaluation.experiment import Case, Experiment, ModelFlags, Plan, Results, Row, Say, chosen
from backend.evaluation.joint import Answer, answer
from backend.evaluation.markdown import UNKNOWN, estimate, figure, percent, table, verdict
from backend.inference.side_by_side import side_by_side
from backend.measures.bootstrap import Bounded, bounded, difference
from backend.measures.length_error import Control, Pair, length_deviation, length_score
from backend.measures.overlap import repetition
from backend.methods import methods
from backend.models.pool import Loaded
from backend.record import jsonlines
from backend.record.results import counted
from backend.refused import Refused
from backend.settings import Method, RunSettings, Watch
from backend.splits import Prompt
from backend.text.prompt import token_ids
from backend.text.units import met, words

FILE = "lifebench_lite_en.jsonl"
WORDS = (16, 32, 64, 128, 256, 512)
# One cap for all answers, in tokens: 512 words are about 720.
CAP = 1024
LANDING = 8
BASE, AT_MOST = "none", "none at most"


UNMEASURED = Bounded(None)
WORDS_OF_CARD = """
{tasks} English tasks of a selection from LIFEBench, those whose input the model can read. Each is asked for 16, 32, 64,
128, 256 and 512 words. The benchmark's own prompts say the number to every row; methods of the prompt say it once more.
Length score: of 100, which falls with e^(−5·d) for what is too short by the share d and with e^(−2·d) for what is too
long. The benchmark's published code takes d in percent, so its scores are not these. Deviation: the mean of d. Every
answer counts; one that still goes on at {cap} tokens is cut there. The score says nothing of ends. Ended well: the
model ended by EOS where a sentence ends as the model alone would end it. Met and ended well: of all answers, those that
did and have the number of words, within 5 % and at least a word. Repeated: the share of runs of four words that the
answer has had before, the mean over answers; a length is worth less where it is reached by repeating. Intervals are
over tasks. The model alone was asked in the same words.
"""
TABLES: dict[Control, str] = {
    "equal to": "The prompt says 'equal to' the number of words:",
    "at most": (
        "The prompt says 'at most'. The score takes all that is not longer as perfect, an empty answer too. A method's "
        "limit is that number of words:"
    ),
}


class Way(NamedTuple):
    """How a row asks: its method, what the prompt says of the number, and the endings that are tried near it."""

    method: Method
    control: Control = "equal to"
    landing: int = 0


def ways() -> dict[str, Way]:
    """All rows by name: the model alone, each method that aims at a length, and landing for one of a kind."""
    aims = [method for method in methods if method.causal and method.bound]
    plain = {method.name: Way(method.name) for method in aims if method.bound == "target"}
    limits = {method.name: Way(method.name, "at most") for method in aims if method.bound == "limit"}
    return {
        BASE: Way("none"), **plain, "ldpe landing": Way("ldpe", landing=LANDING),
        AT_MOST: Way("none", "at most"), **limits, "mnt_orpe landing": Way("mnt_orpe", "at most", LANDING),
    }  # fmt: skip


class Task(NamedTuple):
    """id, category: the benchmark's own. text: with places for the number and for what it means."""

    id: int
    category: str
    text: str

    def asked(self, control: Control, count: int) -> str:
        """The prompt for so many words."""
        return self.text.replace("{word_count_type}", control).replace("{word_count}", str(count))


def tasks(folder: Path, loaded: Loaded, say: Say) -> list[Task]:
    """Those whose prompt leaves room for an answer in the model's own reach."""
    rows = jsonlines.read(folder / FILE, "id", "category", "task")
    known = [Task(row["id"], row["category"], row["task"]) for row in rows]
    room = (loaded.capabilities.training_length or 0) - CAP
    fit = [task for task in known if len(token_ids(RunSettings(prompt=task.text), loaded.tokenizer)) <= room]
    if not fit:
        raise Refused(f"the model can read none of the tasks beside an answer of {CAP:,} tokens: take another")
    say(counted("lifebench", "tasks", len(known), len(fit), f"whose input has more than {room:,} tokens"))
    return fit


def settings_of(way: Way, prompt: str, count: int, model: str) -> RunSettings:
    return RunSettings(
        prompt=prompt, method=way.method, target=count, limit=count, landing=way.landing,
        unit="words", model=model, max_new_tokens=CAP, watch=Watch(enabled=False),
    )  # fmt: skip


class LifeBench(Experiment):
    name = "lifebench"
    title = "LIFEBench's tasks"
    question = "How near do answers come to a number of words, by a benchmark that others made?"
    paper = "LIFEBench"
    order = 12
    files = ("lifebench.json",)
    rows = "answers"
    key = ("row", "words")
    recipe = ("backend evaluate lifebench --data {data} {more}",)

    class Options(ModelFlags):
        data: Path = Field(description=f"folder with {FILE}")
        row: tuple[str, ...] = Field((), description="rows to measure, or all")

    def plan(self, options: Options, say: Say) -> Plan:
        lab, known = options.lab(), ways()
        names = chosen(options.row, known)
        fit = tasks(options.data, lab.models.load(options.model), say)
        common = {"model": options.model, "cap": CAP, "landing": LANDING, "tasks": [task.id for task in fit]}
        return Plan(
            common,
            (
                Case((name, count), partial(_answers, lab, options.model, name, known[name], count, fit, say))
                for name in names
                for count in WORDS
            ),
        )

    def card(self, results: Results) -> Card:
        (result,) = results.values()
        by_row: dict[str, list[Row]] = {}
        for row in result["answers"]:
            by_row.setdefault(row["row"], []).append(row)
        known = ways()
        found = {name: by_row[name] for name in known if name in by_row}
        parts = [WORDS_OF_CARD.format(tasks=len(result["tasks"]), cap=f"{result['cap']:,}").strip()]
        for control, words_of_table in TABLES.items():
            if rows := {name: each for name, each in found.items() if known[name].control == control}:
                parts += [words_of_table, _rows(rows, BASE if control == "equal to" else AT_MOST)]
        parts += ["Length score by words asked for:", _by_words(found, _score, figure)]
        return Card("\n\n".join([*parts, "Repeated by words asked for:", _by_words(found, _repeated, percent)]))


def _answers(
    lab: Lab, model: str, name: str, way: Way, count: int, asked: Sequence[Task], say: Say
) -> Iterator[Row]:
    """A row for each task at one number of words."""

    def written(task: Task) -> Answer:
        prompt = task.asked(way.control, count)
        # The kind is of the lab's own prompts; nothing here reads it.
        return answer(lab, Prompt("instructions", prompt), settings_of(way, prompt, count, model))

    rows = []
    for task, one in zip(asked, side_by_side(written, asked), strict=True):
        ends = {"own_end": one.own_end, "real_end": one.real_end(), "p_eos": round(one.p_eos, 5)}
        about = {"row": name, "words": count, "task": task.id, "category": task.category, "control": way.control}
        produced = words(one.text)
        rows.append(
            about | {"produced": produced, "tokens": len(one.ids), "reason": one.reason} | ends | {"text": one.text}
        )
    say(f"{name}, {count} words: length score {fmean(map(_score, rows)):.1f}, {len(rows)} answers, none left out")
    yield from rows


def _pairs(rows: Iterable[Row]) -> list[Pair]:
    return [(row["produced"], row["words"]) for row in rows]


def _score(row: Row) -> float:
    return length_score(_pairs([row]), row["control"])


def _by_task(rows: Iterable[Row], measure: Callable[[Row], float]) -> list[float]:
    """The mean of each task's answers, in the order of the tasks' numbers."""
    found: dict[int, list[float]] = {}
    for row in rows:
        found.setdefault(row["task"], []).append(measure(row))
    return [fmean(found[task]) for task in sorted(found)]


def _rows(found: Mapping[str, Sequence[Row]], reference: str) -> str:
    """Every row beside the reference, where both were asked for all numbers of words."""
    lines, base = [], found.get(reference, [])
    for name, rows in found.items():
        scores, whole = _by_task(rows, _score), _whole(rows)
        gain = difference(scores, _by_task(base, _score)) if whole and _whole(base) and rows is not base else UNMEASURED
        ended, both = (bounded(np.mean, _by_task(rows, measure)) for measure in (_well, _both))
        lines.append(
            [
                _shown(name), figure(len(rows)), figure(fmean(scores)) if whole else UNKNOWN,
                estimate(gain, len(scores), "tasks", figure),
                verdict(gain, "higher", "lower", 0.0) if gain.known else UNKNOWN,
                percent(length_deviation(_pairs(rows))) if whole else UNKNOWN,
                *(estimate(each, len(scores), "tasks", percent) for each in (ended, both)),
                percent(fmean(row["reason"] == "cap" for row in rows)), percent(fmean(map(_repeated, rows))),
            ]
        )  # fmt: skip
    columns = [
        "method", "answers", "length score", "more than the model alone", "distinguished", "deviation", "ended well",
        "met and ended well", "cut", "repeated",
    ]  # fmt: skip
    return table(columns, lines)


def _shown(name: str) -> str:
    return name.replace("_", " ")


def _whole(rows: Sequence[Row]) -> bool:
    return {row["words"] for row in rows} == {*WORDS}


def _repeated(row: Row) -> float:
    return repetition(row["text"].split())


def _well(row: Row) -> bool:
    return bool(row["own_end"] and row["real_end"])


def _both(row: Row) -> bool:
    return _well(row) and met(row["produced"], row["words"], "words", row["control"] == "at most")


def _by_words(found: Mapping[str, Sequence[Row]], measure: Callable[[Row], float], show: Callable[[Any], str]) -> str:
    lines = []
    for name, rows in found.items():
        values = [[measure(row) for row in rows if row["words"] == count] for count in WORDS]
        lines.append([_shown(name), *(show(fmean(each)) if each else UNKNOWN for each in values)])
    return table(["method", *map(str, WORDS)], lines)
