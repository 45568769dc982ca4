"""`python -m backend evaluate NAME`: an experiment run from its flags, gone on with, and kept with its provenance."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from backend.evaluation.experiment import Experiment
from backend.record.provenance import provenance
from backend.record.results import RESULTS, keep, resumed, writable
from backend.refused import Refused
from backend.terminal import say


def add(evaluate: argparse.ArgumentParser, experiments: Iterable[Experiment]) -> None:
    """Give the command `evaluate` one of its own for each experiment, with its options as flags."""
    names = evaluate.add_subparsers(dest="experiment", required=True, parser_class=type(evaluate))
    for experiment in experiments:
        paper = f" ({experiment.paper})" if experiment.paper else ""
        command = names.add_parser(
            experiment.name, help=experiment.title, description=experiment.question + paper, allow_abbrev=False
        )
        command.set_defaults(run=lambda given, experiment=experiment: _run(experiment, given))
        for name, field in experiment.Options.model_fields.items():
            add_flag(command, name, field)


def add_flag(command: argparse.ArgumentParser, name: str, field: FieldInfo) -> None:
    """A flag for a field; what is given stays text, which the model reads. Several values may follow a tuple's."""
    flag, kind = f"--{name.replace('_', '-')}", field.annotation
    default = field.get_default(call_default_factory=True)
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
    usual = "" if field.is_required() or default in (None, (), False) else f" ({shown})"
    meaning = f"{field.description or name.replace('_', ' ')}{usual}".replace("%", "%%")
    if kind is bool:
        command.add_argument(flag, dest=name, action="store_true", default=argparse.SUPPRESS, help=meaning)
        return
    many: dict[str, Any] = {"nargs": "+", "action": "extend"} if get_origin(kind) is tuple else {}
    one = get_args(kind)[0] if many else kind
    choices = "|".join(get_args(one)) if get_origin(one) is Literal else name.upper()
    command.add_argument(
        flag, dest=name, required=field.is_required(), metavar=choices, default=argparse.SUPPRESS, help=meaning, **many
    )


def _run(experiment: Experiment, given: argparse.Namespace) -> int:
    fields = experiment.Options.model_fields
    options = experiment.Options(**{name: value for name, value in vars(given).items() if name in fields})
    if lacking := next((name for name in experiment.needs if find_spec(name) is None), None):
        raise Refused(f"{lacking} is not installed: pip install -r requirements-dev.txt")
    measure(experiment, options)
    return 0


def measure(experiment: Experiment, options: Any) -> None:
    """Measure what a result lacks, and keep it with where it was measured after each case, whole or not at all."""
    out = options.out or RESULTS / experiment.file(options)
    writable(out)
    before = resumed(out, dict) if experiment.resumes else None
    head, document = provenance(getattr(options, "seed", 0), before), before
    for document in experiment.measure(options, before, say):
        keep(out, head | document)
    if document is None:
        raise Refused("nothing to measure: see what the texts, prompts and lengths asked for have in common")
