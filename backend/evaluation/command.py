"""The command `evaluate`: measurements whose results are kept as JSON."""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from backend.evaluation.command_long_texts import (
    add_computation,
    add_diagnoses,
    add_perplexity,
    add_recall,
    chosen_policies,
)
from backend.methods import methods
from backend.record.results import RESULTS, keep, resumed, writable
from backend.refused import Refused
from backend.settings import MAX_LANDING, Unit
from backend.terminal import say

if TYPE_CHECKING:
    pass

RANGES = ("range", "beyond", "words", "characters", "changed", "summaries")


def add(commands: Any) -> None:
    """Add it to the subparsers of `python -m backend`."""
    evaluate = commands.add_parser("evaluate", help="measure, and keep the result", allow_abbrev=False)
    kinds = evaluate.add_subparsers(dest="kind", required=True)
    length = kinds.add_parser("length", help="how well a method keeps to a length", allow_abbrev=False)
    length.set_defaults(run=_length)
    length.add_argument("--method", choices=methods.names(), action="append", required=True, help="may repeat")
    length.add_argument("--model", default="embedded")
    length.add_argument("--data", type=Path, help="folder with scitldr_test.jsonl and hellobench_ht.jsonl")
    length.add_argument("--adapter", type=Path, help="an adapter's folder, in the place of the lab's own")
    length.add_argument("--prompts", type=int, default=12, help="prompts of each kind (12)")
    length.add_argument(
        "--ranges", nargs="+", choices=RANGES, default=RANGES, help="targets to ask for; others are kept (all)"
    )
    length.add_argument("--landing", type=int, default=0, help="endings to try near the target (0)")
    length.add_argument("--out", type=Path, default=RESULTS / "length", help="folder for <method>[_landing].json")
    _add_joint_rate(kinds.add_parser("joint_rate", help="answers of the length asked for that end as a reader accepts"))
    _add_harness(kinds.add_parser("harness", help="what an adapter costs in multiple-choice tasks"))
    add_recall(kinds.add_parser("recall", help="what a model makes of a long text"))
    add_perplexity(kinds.add_parser("perplexity", help="how fluent a model stays as a text goes on"))
    add_computation(kinds.add_parser("computation", help="what Λ and truncation make of the same computation"))
    add_diagnoses(kinds.add_parser("diagnoses", help="what breaks inside a model far into a text"))
    _add_longform(kinds.add_parser("longform", help="what position policies do to long answers"))
    _add_endmark(kinds.add_parser("endmark", help="whether a signal alone tells where a response ends"))
    _add_shapes(kinds.add_parser("shapes", help="which layers and rank of a LoRA to ship"))


def _add_joint_rate(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=_joint_rate)
    command.add_argument("--method", choices=methods.names(), required=True, help="'none' first: the base model")
    command.add_argument("--model", default="embedded")
    command.add_argument("--data", type=Path, help="folder of the data sets; without it the lab's own prompts alone")
    command.add_argument("--set", choices=("validation", "test"), default="validation", help="prompts (validation)")
    command.add_argument("--unit", choices=get_args(Unit), default="tokens", help="what targets count (tokens)")
    command.add_argument("--landing", type=int, default=0, help="endings to try near the target (0)")
    command.add_argument("--prompts", type=int, help="how many of the set to ask (all)")
    command.add_argument("--blind", type=Path, help="write texts to be read blind to this file, as JSON lines")
    command.add_argument("--out", type=Path, help="file to write or go on with (joint_rate/<method>[_landing].json)")


def _joint_rate(options: argparse.Namespace) -> int:
    from backend.engine import Lab
    from backend.evaluation import joint_rate
    from backend.models.pool import Models, allowed
    from backend.record import jsonlines

    if not 0 <= options.landing <= MAX_LANDING:
        raise Refused(f"--landing {options.landing}: give 0 to {MAX_LANDING}")
    out = options.out or joint_rate.file_of(options.method, options.set, options.unit, options.landing)
    writable(out)
    cases = joint_rate.asked(options.set, options.data, options.unit)[: options.prompts]
    lab, before = Lab(Models(allowed(more=[options.model]))), resumed(out, dict)
    result = None
    for result in joint_rate.evaluate(
        lab, options.method, options.model, cases, options.set, options.unit, options.landing, before, say
    ):
        keep(out, result)
    if result is None:
        raise Refused("nothing was asked: give --prompts of at least 1")
    base = joint_rate.file_of("none", options.set, "tokens", 0)
    reference = result if options.method == "none" else resumed(base, dict)
    if reference is None:
        raise Refused("the answers are kept; to sum them up, measure the base model too: --method none")
    compared = joint_rate.Compared(lab.models.load(options.model), reference, {p.text for p, _ in cases})
    result |= {"summary": {options.set: compared.summary(result)}}
    keep(out, result)
    say(f"{options.method}: {len(cases)} answers asked for, {len(result['answers'])} counted, none left out")
    say(json.dumps(result["summary"][options.set], ensure_ascii=False))
    if options.blind:
        options.blind.unlink(missing_ok=True)
        jsonlines.append(options.blind, compared.blind(result))
    return 0


def _add_harness(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=_harness)
    command.add_argument("--method", choices=methods.names(), action="append", required=True, help="may repeat")
    command.add_argument("--model", default="embedded")
    command.add_argument("--task", action="append", default=[], help="a task of lm-evaluation-harness; may repeat")
    command.add_argument("--data", type=Path, help="folder with scitldr_test.jsonl, for the task 'summaries'")
    command.add_argument("--limit", type=int, help="documents of each task (all)")
    command.add_argument("--shots", type=int, default=0, help="answered questions before each (0)")
    command.add_argument("--out", type=Path, help="file to write (harness.json or harness_pic_sft.json)")


def _harness(options: argparse.Namespace) -> int:
    try:
        from backend.evaluation.harness import CHOICES, evaluate, summaries
    except ImportError as error:
        raise Refused(f"{error.name} is not installed: pip install -r requirements-dev.txt") from error
    from backend.models.pool import Models, allowed

    if not options.task and options.data is None:
        raise Refused("nothing to run: give --data FOLDER, or --task NAME")
    least = CHOICES if options.data else 1
    if options.limit is not None and options.limit < least:
        raise Refused(f"--limit {options.limit}: give at least {least}")
    if options.shots < 0:
        raise Refused(f"--shots {options.shots}: give at least 0")
    long = any(methods[method].compression for method in options.method)
    out = options.out or RESULTS / ("harness_pic_sft.json" if long else "harness.json")
    writable(out)
    with tempfile.TemporaryDirectory() as scratch:
        own = [summaries(options.data, options.limit or 200, Path(scratch) / "t.json")] if options.data else []
        models = Models(allowed(more=[options.model]))
        asked, before = [*own, *options.task], resumed(out, dict)
        for result in evaluate(models, options.model, options.method, asked, options.limit, say, options.shots, before):
            keep(out, result)
    return 0


def _add_endmark(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=_endmark)
    command.add_argument("--model", default="embedded")
    command.add_argument("--gain", type=float, default=0.5, help="strength of the signals (0.5)")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--out", type=Path, default=RESULTS / "endmark.json", help="file to write")


def _endmark(options: argparse.Namespace) -> int:
    from backend.evaluation.endmark import evaluate
    from backend.models.pool import Models, allowed

    if not 0 < options.gain < math.inf:
        raise Refused(f"--gain {options.gain}: give a number above 0")
    writable(options.out)
    for result in evaluate(Models(allowed(more=[options.model])), options.model, options.gain, options.seed, say):
        keep(options.out, result)
    return 0


def _add_shapes(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=_shapes)
    command.add_argument("--model", default="embedded")
    command.add_argument("--data", type=Path, required=True, help="a corpus of `python -m backend distill`")
    command.add_argument("--samples", type=int, default=2500, help="responses that each is trained on (2500)")
    command.add_argument("--prompts", type=int, default=6, help="questions that each is measured with (6)")
    command.add_argument("--work", type=Path, default=Path(".cache/shapes"), help="folder for adapters")
    command.add_argument("--out", type=Path, default=RESULTS / "shapes.json", help="file to write or go on with")


def _shapes(options: argparse.Namespace) -> int:
    from backend.evaluation.shapes import earlier, evaluate, made
    from backend.models.pool import Models, allowed
    from backend.training.data import corpus, samples
    from backend.training.settings import TrainSettings

    settings = TrainSettings(method="ldpe", model=options.model, samples=options.samples, longest_prompt=76)
    read = corpus([options.data])
    writable(options.out)
    models = partial(Models, allowed(more=[options.model]))
    found = samples(read, models().load(options.model).tokenizer, settings.longest_prompt, settings.longest)
    common = made(settings, found, options.prompts)
    before = resumed(options.out, lambda result: earlier(result, common))
    for result in evaluate(models, found, settings, options.work, options.prompts, before, say):
        keep(options.out, result)
    return 0


def _add_longform(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=_longform)
    command.add_argument("--model", default="embedded")
    command.add_argument("--data", type=Path, help="JSON lines with prompt, and length in words where one is asked for")
    command.add_argument("--prompts", type=int, default=12, help="prompts to ask (12; 6 without --data)")
    command.add_argument("--wanted", type=int, default=0, help="words that a prompt must ask for at least (0)")
    command.add_argument("--policy", action="append", help="may repeat (all)")
    command.add_argument("--cap", type=int, default=1024, help="hard cap on tokens (1024)")
    command.add_argument("--trained", action="store_true", help="compare PIC-SFT in the place of policies")
    command.add_argument(
        "--recount", type=Path, nargs="+", metavar="FILE", help="make the summaries of files anew; write no answers"
    )
    command.add_argument("--recent", type=int, default=200, help="dynamic PIC: recent tokens uncompressed (200)")
    command.add_argument("--repetition-penalty", type=float, default=1.0, help="1 is off (1)")
    command.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (0)")
    command.add_argument("--top-p", type=float, default=1.0, help="1 is off (1)")
    command.add_argument("--judge", metavar="MODULE:FUNCTION", help="scores (prompt, response) → number")
    command.add_argument("--out", type=Path, help="file to write or go on with (longform.json or pic_sft.json)")


def _longform(options: argparse.Namespace) -> int:
    from backend.engine import Lab
    from backend.evaluation.longform import asked, earlier, evaluate, judge, policies, recount, trained
    from backend.models.pool import Models, allowed

    for file in options.recount or ():
        writable(file)
        if (found := resumed(file, earlier)) is None:
            raise Refused(f"--recount {file}: there is no such file")
        keep(file, recount(found, say))
    if options.recount:
        return 0
    known = trained() if options.trained else policies()
    compared = {name: known[name] for name in chosen_policies(options, known)}
    out = options.out or RESULTS / ("pic_sft.json" if options.trained else "longform.json")
    for name in ("prompts", "cap"):
        if getattr(options, name) < 1:
            raise Refused(f"--{name} {getattr(options, name)}: give at least 1")
    common = {
        "model": options.model,
        "max_new_tokens": options.cap,
        "recent": options.recent,
        "repetition_penalty": options.repetition_penalty,
        "temperature": options.temperature,
        "top_p": options.top_p,
    }
    writable(out)
    before = resumed(out, earlier)
    score = judge(options.judge) if options.judge else None
    prompts = asked(options.data, options.prompts, options.wanted)
    for result in evaluate(Lab(Models(allowed(more=[options.model]))), prompts, compared, common, before, score, say):
        keep(out, result)
    return 0


def _length(options: argparse.Namespace) -> int:
    from backend.evaluation.length import evaluate
    from backend.evaluation.quality import packages
    from backend.models.pool import Models, allowed

    if options.prompts < 1:
        raise Refused(f"--prompts {options.prompts}: give at least 1")
    if not 0 <= options.landing <= MAX_LANDING:
        raise Refused(f"--landing {options.landing}: give 0 to {MAX_LANDING}")
    try:
        packages()
    except ImportError as error:
        raise Refused(str(error)) from error
    writable(options.out / "length.json")
    models = Models(allowed(more=[options.model]))
    for method in options.method:
        out = options.out / (f"{method}_landing.json" if options.landing else f"{method}.json")
        result = evaluate(
            models, options.model, method, options.prompts, options.ranges, options.data, options.adapter, say,
            options.landing, resumed(out, dict),
        )
        keep(out, result)
        for name, found in result["summary"].items():
            say(f"{method:14} {name:20} " + "  ".join(f"{key} {value:.3g}" for key, value in found.items()))
        say(f"{method:14} quality {json.dumps(result['quality'])}")
    return 0
