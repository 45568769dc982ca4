"""The command `evaluate`: measurements whose results are kept as JSON."""

from __future__ import annotations

import argparse
import json
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
