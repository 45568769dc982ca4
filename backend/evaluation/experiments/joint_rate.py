"""The joint rate: the share of all answers asked for that have the length asked for *and* end as a reader would accept.

    python -m backend evaluate joint_rate --method none --data FOLDER     # the base model: what the others stand beside
    python -m backend evaluate joint_rate --method ldpe --data FOLDER
    python -m backend evaluate joint_rate --method prompted --landing 8 --data FOLDER
    python -m backend evaluate joint_rate --method ldpe --landing 8 --in-prompt --data FOLDER
    python -m backend evaluate joint_rate --method ldpe --landing 8 --unit words --data FOLDER      # `none` first, too
    python -m backend evaluate joint_rate --method ldpe --landing 8 --moved --data FOLDER

`backend.evaluation.joint` says what is counted. Answers are written one by one, as a person's are.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import zip_longest
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple

from pydantic import Field
from scipy.stats import binomtest

from backend.engine import Lab
from backend.evaluation.card import PROMPTS, Card
from backend.evaluation.experiment import Experiment, ModelFlags, Result, Results, Say, not_gone_on
from backend.evaluation.joint import Answer, Compared, Move, answer, settings_of, share_of
from backend.evaluation.joint_evidence import evidence
from backend.evaluation.joint_ranges import ranges
from backend.evaluation.markdown import UNKNOWN, decimal, estimate, figure, points, table
from backend.inference.side_by_side import side_by_side
from backend.measures.bootstrap import Bounded, difference
from backend.methods import methods
from backend.record import jsonlines
from backend.record.results import RESULTS, resumed
from backend.refused import Refused
from backend.settings import MAX_LANDING, Method, Unit
from backend.splits import TARGETS, Prompt, Split, fingerprint, prompts


def named(method: Method, landing: int, in_prompt: bool) -> str:
    """What a way to ask for answers is called in the results' files."""
    return f"{method}{'_landing' * bool(landing)}{'_in_prompt' * in_prompt}"


CAUSAL = [method.name for method in methods if method.causal]
VALIDATION: Final = "validation"
TEST: Final = "test"
# What else was asked of the validation prompts, in folders of their own.
OTHERS = {
    "validation_words": "Targets in words, 10 to 200:",
    "validation_characters": "Targets in characters, 50 to 1,000:",
    "validation_moved": "Targets that move after 20 to 60 tokens, from 60 to 200, from 300 to 120, or from 100 to 250:",
}
SETS = (VALIDATION, TEST, *OTHERS)
NAMES = [
    named(method, landing, in_prompt)
    for method in CAUSAL for landing in (0, 1) for in_prompt in (False, True)
]  # fmt: skip
# What the page opens on.
TRIED = named("ldpe", 8, True)
# Those of the headlines.
ADAPTERS = ("ldpe", "orpe")
# From one target to another, after 20 to 60 tokens, and EARLIER than the first is reached by so many.
MOVES, MOVED, EARLIER = ((60, 200), (300, 120), (100, 250)), (20, 60), 10
WORDS = """
Every answer counts; one that still goes on 60 tokens beyond its target is cut there and counts as so long. Condition 1:
the length is within 3 tokens or 5 % of the target. For an `mnt` row the target is a limit that is not passed,
which is easier, so that it has no error. 2: the model drew EOS itself. 3: the answer ends as a sentence, by a mark
that the base model, which knows of no target, gives a probability of 0.05. A row that repeats itself more than 1.1
times as much as the base model's text of as many tokens, or is less than 0.97 times as similar to the prompt, has no
joint rate: its share of 1 to 3 stands in brackets. Greedy decoding, one target from 10 to 200 a prompt, validation
prompts of four kinds; shares with their 95 % interval.
"""
COLUMNS = (
    "method", "answers", "joint rate", "1 length", "2 own EOS", "3 real end", "base model would end too", "mean error"
)  # fmt: skip
APART = 0.05


class Case(NamedTuple):
    """A prompt, the target it begins with, and another it goes on to."""

    prompt: Prompt
    target: int
    move: Move | None = None

    @property
    def goal(self) -> int:
        return self.move.target if self.move else self.target


def asked(split: Split, folder: Path | None, unit: Unit, moved: bool = False) -> list[Case]:
    """Every prompt of a set with one target, the kinds by turns: any first part of it holds all kinds and targets."""
    kinds: dict[str, list[Prompt]] = {}
    for prompt in prompts(split, folder):
        kinds.setdefault(prompt.kind, []).append(prompt)
    turns = [prompt for turn in zip_longest(*kinds.values()) for prompt in turn if prompt]
    if moved:
        draw, pairs = random.Random(0), [MOVES[place % len(MOVES)] for place in range(len(turns))]
        return [
            Case(prompt, first, Move(draw.randint(MOVED[0], min(MOVED[1], first - EARLIER)), goal))
            for prompt, (first, goal) in zip(turns, pairs, strict=True)
        ]
    scale = {"tokens": 1, "words": 1, "characters": 5}[unit]
    return [Case(prompt, scale * TARGETS[place % len(TARGETS)]) for place, prompt in enumerate(turns)]


class JointRate(Experiment):
    name = "joint_rate"
    title = "Answers that have the length asked for and end well"
    question = "How many answers have the length asked for and end as a reader would accept?"
    order = 10
    files = tuple(f"joint_rate/{each}/{name}.json" for each in SETS for name in NAMES)
    resumes = True
    recipe = (
        *(f"backend evaluate joint_rate --method {name} --data {{data}} {{more}}" for name in CAUSAL),
        *(
            f"backend evaluate joint_rate --method {name} --landing 8 --data {{data}} {{more}}"
            for name in ("prompted", *ADAPTERS, "mnt_orpe")
        ),
        "backend evaluate joint_rate --method ldpe --landing 8 --in-prompt --data {data} {more}",
        *(
            f"backend evaluate joint_rate --method {how} {what} --data {{data}} {{more}}"
            for what in ("--unit words", "--moved") for how in ("none", "ldpe --landing 8")
        ),
    )

    class Options(ModelFlags):
        method: Method = Field(description="'none' first: the base model")
        data: Path | None = Field(None, description="folder of the data sets; without it the lab's own prompts alone")
        set: Split = Field("validation", description="prompts")
        unit: Unit = Field("tokens", description="what targets count")
        landing: int = Field(0, ge=0, le=MAX_LANDING, description="endings to try near the target")
        in_prompt: bool = Field(False, description="say the wanted length in the prompt too")
        moved: bool = Field(False, description="move each target while it is written")
        prompts: int | None = Field(None, ge=1, description="how many of the set to ask, or all")
        blind: Path | None = Field(None, description="file for texts to be read blind, as JSON lines")

        @property
        def folder(self) -> str:
            """Of the results that are beside one another."""
            unit = f"_{self.unit}" if self.unit != "tokens" else ""
            return f"joint_rate/{self.set}{unit}{'_moved' * self.moved}/"

    def file(self, options: Options) -> str:
        return f"{options.folder}{named(options.method, options.landing, options.in_prompt)}.json"

    def measure(self, options: Options, before: Result | None, say: Say) -> Iterator[dict[str, Any]]:
        method, lab = options.method, options.lab()
        cases = asked(options.set, options.data, options.unit, options.moved)[: options.prompts]
        result: dict[str, Any] = {}
        for result in _answered(lab, options, cases, before, say):
            yield result
        reference = result if method == "none" else resumed(RESULTS / options.folder / "none.json", dict)
        if reference is None:
            raise Refused("the answers are kept; to sum them up, measure the base model too: --method none")
        compared = Compared(lab.models.load(options.model), reference, {case.prompt.text for case in cases})
        result |= {"summary": {options.set: compared.summary(result)}}
        say(f"{method}: {len(cases)} answers asked for, {len(result['answers'])} counted, none left out")
        say(json.dumps(result["summary"][options.set], ensure_ascii=False))
        if options.blind:
            options.blind.unlink(missing_ok=True)
            jsonlines.append(options.blind, compared.blind(result))
        yield result

    def card(self, results: Results) -> Card:
        by_name, released = _of(VALIDATION, results), _of(TEST, results)
        counted = max((found["summary"]["validation"]["counted"] for found in by_name.values()), default=0)
        few = f" Fewer than {PROMPTS} prompts were asked: none of this is a headline." if counted < PROMPTS else ""
        parts = [WORDS.strip() + few, _rows(by_name, VALIDATION), ranges(by_name, VALIDATION)]
        if released:
            words = "The same of the test set, whose prompts chose nothing:"
            parts += [words, _rows(released, TEST), ranges(released, TEST)]
        for name, words in OTHERS.items():
            if found := _of(name, results):
                parts += [words, _rows(found, "validation")]
        parts += [_ends(by_name), _pairs(by_name)]
        return Card("\n\n".join(parts), evidence=[*evidence(by_name)], headlines=[*_headlines(by_name)])


def _of(folder: str, results: Results) -> dict[str, Result]:
    """The results of one folder, by their names."""
    return {PurePath(name).stem: found for name, found in results.items() if PurePath(name).parent.name == folder}


def _rows(results: Mapping[str, Result], split: Split) -> str:
    rows = []
    for name, found in results.items():
        summary = found["summary"][split]
        shown = share_of(summary["all_three"])
        rows.append(
            [
                name.replace("_", " "),
                f"{summary['counted']} of {summary['asked']}",
                shown if summary["about_the_prompt"] else f"{UNKNOWN} ({shown})",
                *(share_of(summary[key]) for key in ("length", "own_end", "real_end", "answer_end")),
                UNKNOWN if found["answers"][0]["limit"] else decimal(summary["mae"]),
            ]
        )
    return table(COLUMNS, rows)


def _answered(
    lab: Lab, options: JointRate.Options, cases: Sequence[Case], before: Result | None, say: Say
) -> Iterator[dict[str, Any]]:
    """The result after each answer: how many were asked for, the answers so far."""
    method, unit = options.method, options.unit
    if options.landing and methods[method].bound is None:
        raise Refused(f"{method} has no target to land on: leave out --landing")
    about = options.model_dump(include={"method", "model", "set", "unit", "landing", "in_prompt", "moved"})
    if before and {"in_prompt": False, "moved": False, **before["options"]} != about:
        raise not_gone_on("it is of another method, model or set of prompts")
    answers = [Answer(**row) for row in (before or {}).get("answers", [])]
    known = {(one.prompt, one.target) for one in answers}
    result = {"options": about, "asked": len(cases)}

    def written(case: Case) -> Answer:
        text, landing, room = case.prompt.text, options.landing, max(case.target, case.goal)
        settings = settings_of(method, text, case.target, unit, landing, options.model, options.in_prompt, room)
        return answer(lab, case.prompt, settings, case.move)

    new = [case for case in cases if (fingerprint(case.prompt.text), case.goal) not in known]
    if cases and not new:
        yield result | {"answers": [asdict(one) for one in answers]}
    for one in side_by_side(written, new):
        answers.append(one)
        how = "joint" if one.joint() else one.reason
        say(f"{len(answers)} of {len(cases)}: {one.produced} of {one.target}, {how}")
        yield result | {"answers": [asdict(one) for one in answers]}


def _headlines(results: Results) -> Iterator[tuple[str, str]]:
    """Shares of the shipped adapters' answers that meet their length, and that end well too."""
    shipped = {name: results[name] for name in ADAPTERS if name in results}
    summaries = {name: found["summary"]["validation"] for name, found in shipped.items()}
    counts = {name: row["counted"] for name, row in summaries.items() if row["counted"] >= PROMPTS}
    cut = [
        "`{}` {}, ended {}".format(name, *(share_of(summaries[name][key], count) for key in ("length", "all_three")))
        for name, count in counts.items()
    ]
    if cut:
        chance = share_of(summaries[next(iter(counts))]["chance"])
        yield (
            f"Answers of the length asked for, and those that end as a reader accepts too (a cut at random: {chance})",
            ", ".join(cut),
        )
    tried = results[TRIED]["summary"]["validation"] if TRIED in results else None
    if tried and tried["counted"] >= PROMPTS and tried["about_the_prompt"]:
        yield (
            "Answers as Try it steers them (landing, the length in the prompt too) that have their length and end "
            "well, and after which the base model too would end",
            "{}, ended {}".format(*(share_of(tried[key], tried["counted"]) for key in ("all_three", "answer_end"))),
        )


class Beside(NamedTuple):
    """Conditions 1 to 3 of a row and of the base model on the same prompts.

    gain: difference of shares. only, base_only: prompts where one alone meets them. p: McNemar's exact test. prompts:
    how many.
    """

    gain: Bounded
    only: int
    base_only: int
    p: float
    prompts: int

    def apart(self, tests: int) -> str:
        """Whether the two are distinguished where so many tests are made at once (Bonferroni)."""
        if self.p * tests >= APART:
            return "not distinguished"
        return "more" if self.only > self.base_only else "fewer"


def beside(found: Result, base: Result) -> Beside:
    """A result beside the base model's, which is held to a limit where the row is."""
    theirs = {(row["prompt"], row["target"]): Answer(**row) for row in base["answers"]}
    own = [Answer(**row) for row in found["answers"]]
    both = [(one, replace(theirs[key], limit=one.limit)) for one in own if (key := (one.prompt, one.target)) in theirs]
    met = [(one.joint(), other.joint()) for one, other in both]
    only, base_only = met.count((True, False)), met.count((False, True))
    p = float(binomtest(only, only + base_only).pvalue) if only + base_only else 1.0
    ours, base_met = zip(*met, strict=True)
    return Beside(difference(ours, base_met), only, base_only, p, len(met))


def _pairs(results: Results) -> str:
    """Every row beside the base model."""
    base = results.get("none")
    others = {name: found for name, found in results.items() if found is not base}
    if not base or not others:
        return ""
    tests = len(others)
    rows = []
    for name, found in others.items():
        pair = beside(found, base)
        gain = estimate(pair.gain, pair.prompts, "prompts", points)
        counts = [f"{pair.only}", f"{pair.base_only}"]
        rows.append([name.replace("_", " "), gain, *counts, figure(pair.p), pair.apart(tests)])
    words = (
        "Conditions 1 to 3 beside `none`, the base model, on the same prompts, in points; an `mnt` row beside the base "
        f"model held to the same limit. Of {tests} tests at once a row is distinguished where McNemar's exact p is "
        f"below {APART} / {tests}. Adapters are not compared with one another: they were trained on unequal numbers of "
        "texts and from unequal starts."
    )
    columns = ["beside none", "points", "only this row", "only none", "p", "distinguished"]
    return f"{words}\n\n{table(columns, rows)}"


def _ends(results: Results) -> str:
    base = results.get("none")
    if not base:
        return ""
    summary: Result = base["summary"]["validation"]
    complete = sum(row["own_end"] for row in base["answers"])
    return (
        f"Ceiling, the base model's own complete answers that meet condition 3: {share_of(summary['ceiling'])} of the "
        f"{complete} that it ended by 60 tokens beyond the target, {share_of(summary['base_ended'])} of all "
        f"{summary['counted']}. Chance, conditions 1 and 3 at a random cut of its text: {share_of(summary['chance'])}."
    )
