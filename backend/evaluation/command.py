"""The command `evaluate`: measurements whose results are kept as JSON."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, get_args

from backend.settings import Method
from backend.terminal import say

RESULTS = Path(__file__).parents[2] / "assets" / "results"
RANGES = ("range", "beyond", "words", "changed")


def add(commands: Any) -> None:
    """Add it to the subparsers of `python -m backend`."""
    evaluate = commands.add_parser("evaluate", help="measure, and keep the result", allow_abbrev=False)
    kinds = evaluate.add_subparsers(dest="kind", required=True)
    length = kinds.add_parser("length", help="how well a method keeps to a length", allow_abbrev=False)
    length.set_defaults(run=_length)
    length.add_argument("--method", choices=get_args(Method), action="append", required=True, help="may repeat")
    length.add_argument("--model", default="embedded")
    length.add_argument("--data", type=Path, help="folder with scitldr_test.jsonl and hellobench_ht.jsonl")
    length.add_argument("--adapter", type=Path, help="an adapter's folder, in the place of the lab's own")
    length.add_argument("--prompts", type=int, default=12, help="prompts of each kind (12)")
    length.add_argument("--ranges", nargs="+", choices=RANGES, default=RANGES, help="targets to ask for (all)")
    length.add_argument("--landing", type=int, default=0, help="endings to try near the target (0)")
    length.add_argument("--out", type=Path, default=RESULTS / "length", help="folder for <method>[_landing].json")
    _add_harness(kinds.add_parser("harness", help="what an adapter costs in multiple-choice tasks"))
    _add_recall(kinds.add_parser("recall", help="what a model makes of a long text"))
    _add_perplexity(kinds.add_parser("perplexity", help="how fluent a model stays as a text goes on"))


def _add_harness(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=_harness)
    command.add_argument("--method", choices=get_args(Method), required=True)
    command.add_argument("--model", default="embedded")
    command.add_argument("--task", action="append", default=[], help="a task of lm-evaluation-harness; may repeat")
    command.add_argument("--data", type=Path, help="folder with scitldr_test.jsonl, for the task 'summaries'")
    command.add_argument("--limit", type=int, help="documents of each task (all)")
    command.add_argument("--out", type=Path, default=RESULTS / "harness.json", help="file to write")


def _harness(options: argparse.Namespace) -> int:
    try:
        from backend.evaluation.harness import evaluate, summaries
    except ImportError as error:
        raise ValueError(f"{error.name} is not installed: pip install -r requirements-dev.txt") from error
    from backend.models import Models, allowed

    if not options.task and options.data is None:
        raise ValueError("nothing to run: give --data FOLDER, or --task NAME")
    with tempfile.TemporaryDirectory() as scratch:
        own = [summaries(options.data, options.limit or 200, Path(scratch) / "t.json")] if options.data else []
        models = Models(allowed(more=[options.model]))
        result = evaluate(models, options.model, options.method, [*own, *options.task], options.limit, say)
    options.out.write_text(json.dumps(result, indent=1))
    return 0


def _add_recall(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=_recall)
    command.add_argument("--model", default="embedded")
    command.add_argument("--data", type=Path, help="folder with *.txt, in the place of Python's documentation")
    command.add_argument("--documents", type=int, default=6, help="texts of the folder to read (6)")
    command.add_argument("--lengths", type=int, nargs="+", help="tokens after which to go on (2048 … 32768)")
    command.add_argument("--longest", type=int, default=8192, help="where plain attention stops (8192)")
    command.add_argument("--out", type=Path, default=RESULTS / "recall.json", help="file to write")


def _recall(options: argparse.Namespace) -> int:
    from backend.engine import Lab
    from backend.evaluation.fluency import documents
    from backend.evaluation.recall import LENGTHS, evaluate
    from backend.models import Models, allowed

    lengths = sorted(options.lengths or LENGTHS)
    if lengths[0] < 64 or options.documents < 1:
        raise ValueError("give lengths from 64 and at least one document")
    lab, texts = Lab(Models(allowed(more=[options.model]))), documents(options.data, options.documents)
    for result in evaluate(lab, options.model, texts, lengths, options.longest, say):
        options.out.write_text(json.dumps(result, indent=1))
    return 0


def _add_perplexity(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=_perplexity)
    command.add_argument("--model", default="embedded")
    command.add_argument("--data", type=Path, help="folder with *.txt, in the place of Python's documentation")
    command.add_argument("--documents", type=int, default=3, help="texts of the folder to read (3)")
    command.add_argument("--policy", action="append", help="may repeat (all)")
    command.add_argument("--lengths", type=int, nargs="+", help="tokens after which to measure (2048 … 131072)")
    command.add_argument(
        "--longest", type=int, default=32768, help="where policies stop that look at everything (32768)"
    )
    command.add_argument("--out", type=Path, default=RESULTS / "perplexity.json", help="file to write or go on with")


def _perplexity(options: argparse.Namespace) -> int:
    from backend.engine import Lab
    from backend.evaluation.fluency import LENGTHS, POLICIES, TAIL, documents, evaluate
    from backend.models import Models, allowed

    policies, lengths = options.policy or list(POLICIES), sorted(options.lengths or LENGTHS)
    if wrong := [policy for policy in policies if policy not in POLICIES]:
        raise ValueError(f"there is no policy {wrong[0]!r}: choose of {', '.join(POLICIES)}")
    if lengths[0] < TAIL or options.documents < 1:
        raise ValueError(f"give lengths from {TAIL:,} and at least one document")
    earlier = json.loads(options.out.read_text("utf-8")) if options.out.exists() else None
    if earlier and earlier.get("model") != options.model:
        raise ValueError(f"{options.out} was measured on {earlier.get('model')}: give another --out")
    lab, texts = Lab(Models(allowed(more=[options.model]))), documents(options.data, options.documents)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for result in evaluate(lab, options.model, texts, policies, lengths, options.longest, earlier, say):
        scratch = options.out.with_suffix(".new")
        scratch.write_text(json.dumps(result, separators=(",", ":")))
        scratch.replace(options.out)
    for row in [*result["perplexity"], *result["same_tokens"]]:
        say(json.dumps(row, ensure_ascii=False))
    return 0


def _length(options: argparse.Namespace) -> int:
    from backend.evaluation.length import evaluate
    from backend.models import Models, allowed

    if options.prompts < 1:
        raise ValueError(f"--prompts {options.prompts}: give at least 1")
    models = Models(allowed(more=[options.model]))
    options.out.mkdir(parents=True, exist_ok=True)
    for method in options.method:
        result = evaluate(
            models, options.model, method, options.prompts, options.ranges, options.data, options.adapter, say,
            options.landing,
        )
        name = f"{method}_landing" if options.landing else method
        (options.out / f"{name}.json").write_text(json.dumps(result, indent=None, separators=(",", ":")))
        for name, found in result["summary"].items():
            say(f"{method:14} {name:20} " + "  ".join(f"{key} {value:.3g}" for key, value in found.items()))
        say(f"{method:14} quality {json.dumps(result['quality'])}")
    return 0
