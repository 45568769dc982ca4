"""Whether an adapter costs a model what it knows: multiple choice with and without the countdown (000 fig. 4), or with
and without the position ids that an adapter for long texts was trained under (004 fig. 3).

    python -m backend evaluate multiple_choice --method ldpe --data FOLDER
    python -m backend evaluate multiple_choice --method ldpe --task mmlu hellaswag
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from backend.evaluation.card import Card
from backend.evaluation.experiment import Case, Experiment, ModelFlags, Plan, Results, Row, Say
from backend.evaluation.markdown import UNKNOWN, estimate, figure, percent, points, table, verdict
from backend.measures.bootstrap import Bounded, difference
from backend.methods import methods
from backend.record.results import counted
from backend.refused import Refused
from backend.settings import Method

if TYPE_CHECKING:
    from backend.evaluation.signalled import Subject
    from backend.models.pool import Models

# Of the harness: right by the sum of log-likelihoods, and by that over the characters of the choice.
MEASURES = ("acc", "acc_norm")
WORDS = """
Summaries: of four one-sentence summaries, which is that of the abstract? Chance is 25 %. With the countdown each choice
is read with its own length as the target, as it would be written. The second accuracy is by log-likelihood over
characters; the verdict is by that. Points are beside the model itself on the same questions.
""".strip()
SHIPPED = "backend evaluate multiple_choice --data {data} --method"


class MultipleChoice(Experiment):
    name = "multiple_choice"
    title = "What adapters cost in multiple choice"
    question = "Does an adapter cost a model what it knows?"
    paper = "000 figure 4, 004 figure 3"
    files = ("harness*.json",)
    rows = "accuracy"
    key = ("model",)
    needs = ("lm_eval",)
    recipe = (f"{SHIPPED} ldpe {{more}}",)

    class Options(ModelFlags):
        method: tuple[Method, ...] = Field(description="whose adapters")
        task: tuple[str, ...] = Field((), description="tasks of lm-evaluation-harness")
        data: Path | None = Field(None, description="folder of the data sets, for the task 'summaries'")
        limit: int | None = Field(None, ge=1, description="documents of each task, or all")
        shots: int = Field(0, ge=0, description="answered questions before each")

    def file(self, options: Options) -> str:
        long = any(methods[method].compression for method in options.method)
        return "harness_pic_sft.json" if long else "harness.json"

    def plan(self, options: Options, say: Say) -> Plan:
        from backend.evaluation.signalled import CHOICES, subjects, tuned

        if not options.task and options.data is None:
            raise Refused("nothing to run: give --data FOLDER, or --task NAME")
        if options.data and options.limit is not None and options.limit < CHOICES:
            raise Refused(f"--limit {options.limit}: give at least {CHOICES}")
        adapters = [tuned(method, options.model) for method in options.method]
        own = ["summaries"] if options.data else []
        common = {
            "model": options.model, "tasks": [*own, *options.task], "limit": options.limit, "shots": options.shots,
        }  # fmt: skip
        models = options.lab().models
        asked = subjects(adapters)
        return Plan(common, [Case((each.name,), partial(_accuracies, options, models, each, say)) for each in asked])

    def card(self, results: Results) -> Card:
        rows = []
        for result in results.values():
            base: dict[str, Row] = {}
            rows += [_line(row, base.setdefault(row["task"], row)) for row in result["accuracy"]]
        columns = [
            "model", "task", "questions", "accuracy", "points more", "accuracy by length", "points more by length",
            "distinguished",
        ]  # fmt: skip

        return Card(f"{WORDS}\n\n{table(columns, rows)}")


def _line(row: Row, base: Row) -> list[str]:
    """A row of the card: both accuracies, and each beside the model itself, which is the first of its task."""
    cells = [row["model"], row["task"], figure(row["documents"])]
    gains = [_gain(row, base, measure) for measure in MEASURES]
    for measure, gain in zip(MEASURES, gains, strict=True):
        cells += [percent(row.get(measure)), estimate(gain, row["documents"], "questions", partial(points, places=1))]
    return [*cells, verdict(gains[-1], "more", "fewer", 0.0) if gains[-1].known else UNKNOWN]


def _gain(row: Row, base: Row, measure: str) -> Bounded:
    ours, theirs = (list(map(int, each.get(f"right_{measure}", ""))) for each in (row, base))
    known = row is not base and len(ours) == len(theirs)
    return difference(ours, theirs) if known else Bounded(None)


def _accuracies(options: MultipleChoice.Options, models: Models, subject: Subject, say: Say) -> Iterator[Row]:
    """A row a task of one model to ask; which of its questions it got right, in their order, as '1' and '0'."""
    from lm_eval import simple_evaluate

    from backend.evaluation.signalled import summaries

    with tempfile.TemporaryDirectory() as scratch:
        own = [summaries(options.data, options.limit, Path(scratch) / "t.json")] if options.data else []
        found = simple_evaluate(
            subject.load(models, options.model), tasks=[*own, *options.task], limit=options.limit,
            num_fewshot=options.shots, apply_chat_template=True, bootstrap_iters=0, log_samples=True,
        )  # fmt: skip
    assert found is not None
    for task, measures in found["results"].items():
        kept = {key.split(",")[0]: round(v, 4) for key, v in measures.items() if isinstance(v, float)}
        asked = sorted(found["samples"][task], key=lambda sample: sample["doc_id"])
        right = {
            f"right_{measure}": "".join(str(int(sample[measure])) for sample in asked)
            for measure in MEASURES if measure in kept
        }  # fmt: skip
        documents = found["n-samples"][task]
        row = {"model": subject.name, "task": task, "documents": documents["effective"], **kept}
        say(json.dumps(row))
        why = f"past --limit {options.limit}"
        say(counted(f"{subject.name}, {task}", "documents", documents["original"], documents["effective"], why))
        yield row | right
