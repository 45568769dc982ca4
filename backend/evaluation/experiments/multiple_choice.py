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

from backend.evaluation.card import UNEQUAL, Card
from backend.evaluation.experiment import Case, Experiment, ModelFlags, Plan, Results, Row, Say
from backend.evaluation.markdown import figure, listed, percent
from backend.methods import methods
from backend.record.results import counted
from backend.refused import Refused
from backend.settings import Method

if TYPE_CHECKING:
    from backend.evaluation.signalled import Subject
    from backend.models.pool import Models

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
    withdrawn = f"{UNEQUAL}, and at most 80 questions were asked"
    recipe = (
        f"{SHIPPED} ldpe orpe pre --limit 24 {{more}}",
        f"{SHIPPED} sft sft_ntk sft_dynamic --limit 24 {{more}}",
        f"{SHIPPED} sft sft_ntk sft_dynamic --limit 80 --shots 5 --out assets/results/harness_pic_sft_shots.json "
        "{more}",
    )

    class Options(ModelFlags):
        method: tuple[Method, ...] = Field(description="whose adapters")
        task: tuple[str, ...] = Field((), description="tasks of lm-evaluation-harness")
        data: Path | None = Field(None, description="folder with scitldr_test.jsonl, for the task 'summaries'")
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
        common = {"methods": options.method, "model": options.model, "tasks": [*own, *options.task]} | {
            "limit": options.limit, "shots": options.shots,
        }  # fmt: skip
        models = options.lab().models
        asked = subjects(adapters)
        return Plan(common, [Case((each.name,), partial(_accuracies, options, models, each, say)) for each in asked])

    def card(self, results: Results) -> Card:
        rows = [
            [row["model"], row["task"], figure(row["documents"]), percent(row.get("acc"))]
            for result in results.values()
            for row in result["accuracy"]
        ]
        return Card(listed(["model", "task", "documents", "accuracy"], rows))


def _accuracies(options: MultipleChoice.Options, models: Models, subject: Subject, say: Say) -> Iterator[Row]:
    """A row a task of one model to ask."""
    from lm_eval import simple_evaluate

    from backend.evaluation.signalled import summaries

    with tempfile.TemporaryDirectory() as scratch:
        own = [summaries(options.data, options.limit or 200, Path(scratch) / "t.json")] if options.data else []
        found = simple_evaluate(
            subject.load(models, options.model), tasks=[*own, *options.task], limit=options.limit,
            num_fewshot=options.shots, apply_chat_template=True, bootstrap_iters=0,
        )  # fmt: skip
    assert found is not None
    for task, measures in found["results"].items():
        kept = {key.split(",")[0]: round(v, 4) for key, v in measures.items() if isinstance(v, float)}
        documents = found["n-samples"][task]
        row = {"model": subject.name, "task": task, "documents": documents["effective"], **kept}
        say(json.dumps(row))
        why = f"past --limit {options.limit}"
        say(counted(f"{subject.name}, {task}", "documents", documents["original"], documents["effective"], why))
        yield row
