"""LIFEBench's English tasks: a number of words that the prompt asks for, by a benchmark that others made.

    python -m backend evaluate lifebench --data FOLDER
    python -m backend evaluate lifebench --data FOLDER --row none ldpe

FOLDER holds lifebench_lite_en.jsonl. Every method that aims at a length is a row, and so is the model alone, which
reads the number in the prompt as all rows do. Greedy decoding, each answer as a person's run writes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from pydantic import Field

from backend.engine import Lab
from backend.evaluation.card import Card
from backend.evaluation.experiment import Case, Experiment, ModelFlags, Plan, Results, Row, Say, chosen
from backend.evaluation.joint import Answer, answer, share_of
from backend.evaluation.markdown import UNKNOWN, estimate, figure, percent, table, verdict
from backend.inference.side_by_side import side_by_side
from backend.measures.bootstrap import Bounded, difference, share
from backend.measures.length_error import Control, length_deviation, length_score
from backend.methods import methods
from backend.models.pool import Loaded
from backend.record import jsonlines
from backend.record.results import counted
from backend.settings import Method, RunSettings, Watch
from backend.splits import Prompt
from backend.text.prompt import token_ids
from backend.text.units import in_tokens, tolerance, words

FILE = "lifebench_lite_en.jsonl"
WORDS = (16, 32, 64, 128, 256, 512)
# One cap for all answers, in tokens: 512 words are about 720.
CAP = 1024
LANDING = 8
BASE, AT_MOST = "none", "none, at most"


class Way(NamedTuple):
    """How a row asks: its method, what the prompt says of the number, and the endings that are tried near it."""

    method: Method
    control: Control = "equal to"
    landing: int = 0


def ways() -> dict[str, Way]:
    """All rows by name: the model alone, each method that aims at a length, and landing where the page offers it."""
    aims = [method for method in methods if method.causal and method.bound]
    plain = {method.name: Way(method.name) for method in aims if method.bound == "target"}
    limits = {method.name: Way(method.name, "at most") for method in aims if method.bound == "limit"}
    return {
        BASE: Way("none"), **plain, "ldpe, landing": Way("ldpe", landing=LANDING),
        AT_MOST: Way("none", "at most"), **limits, "mnt_orpe, landing": Way("mnt_orpe", "at most", LANDING),
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
    room = loaded.model.config.max_position_embeddings - CAP
    fit = [task for task in known if len(token_ids(RunSettings(prompt=task.text), loaded.tokenizer)) <= room]
    say(counted("lifebench", "tasks", len(known), len(fit), f"whose input has more than {room:,} tokens"))
    return fit


def settings_of(way: Way, prompt: str, count: int, model: str) -> RunSettings:
    """One run. A limit counts tokens, so that a limit in words is as many tokens as these are expected to take."""
    limited = methods[way.method].bound == "limit"
    return RunSettings(
        prompt=prompt, method=way.method, target=count, limit=in_tokens(count, "words"), landing=way.landing,
        unit="tokens" if limited else "words", model=model, max_new_tokens=CAP, watch=Watch(enabled=False),
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
        fit = tasks(options.data, lab.models.load(options.model), say)
        common = {"model": options.model, "cap": CAP, "landing": LANDING, "tasks": [task.id for task in fit]}
        return Plan(
            common,
            (
                Case((name, count), partial(_answers, lab, options.model, name, known[name], count, fit, say))
                for name in chosen(options.row, known)
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
        count, cap = len(result["tasks"]), result["cap"]
        text = (
            f"{count} of 30 English tasks of LIFEBench, those whose input the model can read, each for "
            f"{', '.join(map(str, WORDS))} words. Its prompts say the number to every row: 'equal to' it, or 'at most' "
            "where a method has a limit. Length score: of 100, which falls with e^(−5·d) for what is too short by the "
            "share d and with e^(−2·d) for what is too long; deviation: the mean of d. Every answer counts; one that "
            f"still goes on at {cap:,} tokens is cut there. The score says nothing of ends. Ended well: the model "
            "ended by EOS where a sentence ends as the model alone would end it. Met and ended well: these, within 5 % "
            "of the number and at least a word, or below the limit. Points are of the score, beside the model alone "
            "asked in the same words; intervals are over tasks."
        )
        return Card(
            "\n\n".join([text, _rows(found, known, count), "Length score by words asked for:", _by_words(found)]),
        )


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


def _score(row: Row) -> float:
    return length_score([(row["produced"], row["words"])], row["control"])


def _by_task(rows: Iterable[Row]) -> list[float]:
    """The mean length score of each task, in the order of their numbers."""
    scores: dict[int, list[float]] = {}
    for row in rows:
        scores.setdefault(row["task"], []).append(_score(row))
    return [fmean(scores[task]) for task in sorted(scores)]


def _rows(found: Mapping[str, Sequence[Row]], known: Mapping[str, Way], count: int) -> str:
    lines = []
    for name, rows in found.items():
        base = found.get(BASE if known[name].control == "equal to" else AT_MOST)
        whole = base is not None and rows is not base and len(rows) == len(base)
        gain = difference(_by_task(rows), _by_task(base)) if base and whole else Bounded(None)
        ended = [row["own_end"] and row["real_end"] for row in rows]
        both = [well and _met(row) for well, row in zip(ended, rows, strict=True)]
        lines.append(
            [
                name.replace("_", " "), known[name].control, figure(len(rows)), figure(fmean(map(_score, rows))),
                estimate(gain, count, "tasks", figure), verdict(gain, "nearer", "farther", 0.0) if whole else UNKNOWN,
                percent(length_deviation([(row["produced"], row["words"]) for row in rows])),
                *(share_of(share(sum(each), len(rows))) for each in (ended, both)),
                percent(fmean(row["reason"] == "cap" for row in rows)),
            ]
        )  # fmt: skip
    columns = [
        "method", "the prompt says", "answers", "length score", "points more", "distinguished", "deviation",
        "ended well", "met and ended well", "cut",
    ]  # fmt: skip
    return table(columns, lines)


def _met(row: Row) -> bool:
    if row["control"] == "at most":
        return bool(row["produced"] <= row["words"])
    return bool(abs(row["produced"] - row["words"]) <= tolerance(row["words"], "words"))


def _by_words(found: Mapping[str, Sequence[Row]]) -> str:
    lines = []
    for name, rows in found.items():
        scores = [[_score(row) for row in rows if row["words"] == count] for count in WORDS]
        lines.append([name.replace("_", " "), *(figure(fmean(each) if each else math.nan) for each in scores)])
    return table(["method", *map(str, WORDS)], lines)
