"""The measures of `evaluate` that read long texts: recall, perplexity, computation and diagnoses."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backend.record.results import RESULTS, keep, resumed, writable
from backend.refused import Refused
from backend.terminal import say

if TYPE_CHECKING:
    from backend.engine import Lab


def add_recall(command: argparse.ArgumentParser) -> None:
    """Add what `evaluate recall` takes to its parser."""
    command.set_defaults(run=_recall)
    _add_texts(command, documents=6, longest=8192)
    command.add_argument("--only", choices=("continuations", "passkeys"), help="measure one part, keep the other")
    command.add_argument("--keys", type=int, default=6, help="numbers hidden at each depth (6)")
    command.add_argument("--out", type=Path, default=RESULTS / "recall.json", help="file to write")


def _recall(options: argparse.Namespace) -> int:
    from backend.evaluation.recall import LENGTHS, earlier, evaluate

    if options.keys < 1:
        raise Refused(f"--keys {options.keys}: give at least 1")
    lengths = {part: _lengths(options, LENGTHS[part], 64) for part in ([options.only] if options.only else LENGTHS)}
    writable(options.out)
    before = resumed(options.out, earlier)
    lab, texts = _texts(options)
    for result in evaluate(lab, options.model, texts, lengths, options.longest, options.keys, before, say):
        keep(options.out, result)
    return 0


def add_perplexity(command: argparse.ArgumentParser) -> None:
    """Add what `evaluate perplexity` takes to its parser."""
    command.set_defaults(run=_perplexity)
    _add_texts(command, documents=3, longest=32768)
    command.add_argument("--policy", action="append", help="may repeat (all)")
    command.add_argument("--ablation", action="store_true", help="compare the parts of Λ in the place of policies")
    command.add_argument("--out", type=Path, help="file to write or go on with (perplexity.json or ablation.json)")


def _perplexity(options: argparse.Namespace) -> int:
    from backend.evaluation.fluency import ABLATION, LENGTHS, POLICIES, TAIL, earlier, evaluate
    from backend.inference.chunks import CHUNK

    policies = chosen_policies(options, ABLATION if options.ablation else POLICIES)
    out = options.out or RESULTS / ("ablation.json" if options.ablation else "perplexity.json")
    lengths = _lengths(options, LENGTHS, TAIL)
    if odd := next((length for length in lengths if length % CHUNK), None):
        raise Refused(f"--lengths {odd}: give multiples of {CHUNK}, by which a text is read")
    writable(out)
    lab, texts = _texts(options)
    before = resumed(out, lambda found: earlier(found, options.model))
    result = None
    for result in evaluate(lab, options.model, texts, policies, lengths, options.longest, before, say):
        keep(out, result)
    if result is None:
        raise Refused("nothing to measure: give longer texts, smaller --lengths or a larger --longest")
    for row in [*result["perplexity"], *result["same_tokens"]]:
        say(json.dumps(row, ensure_ascii=False))
    return 0


def add_computation(command: argparse.ArgumentParser) -> None:
    """Add what `evaluate computation` takes to its parser."""
    command.set_defaults(run=_computation)
    command.add_argument("--model", default="embedded")
    command.add_argument("--data", type=Path, help="folder with *.txt, in the place of Python's documentation")
    command.add_argument("--documents", type=int, default=6, help="texts of the folder to read (6)")
    command.add_argument("--windows", type=int, nargs="+", help="tokens of context (256, 512, …)")
    command.add_argument("--out", type=Path, default=RESULTS / "computation.json", help="file to write or go on with")


def _computation(options: argparse.Namespace) -> int:
    from backend.evaluation.computation import STOP, WINDOWS, earlier, evaluate

    windows = options.windows or WINDOWS
    if odd := next((window for window in windows if window < 4 or window > STOP), None):
        raise Refused(f"--windows {odd}: give 4 to {STOP:,}")
    writable(options.out)
    before = resumed(options.out, lambda found: earlier(found, options.model))
    lab, texts = _texts(options)
    result = before
    for result in evaluate(lab, options.model, texts, windows, before, say):
        keep(options.out, result)
    if result is None:
        raise Refused(f"nothing to measure: give texts of at least {STOP:,} tokens")
    return 0


def add_diagnoses(command: argparse.ArgumentParser) -> None:
    """Add what `evaluate diagnoses` takes to its parser."""
    command.set_defaults(run=_diagnoses)
    command.add_argument("--model", default="embedded")
    command.add_argument("--data", type=Path, help="folder with *.txt, in the place of Python's documentation")
    command.add_argument("--documents", type=int, default=3, help="texts of the folder to read (3)")
    command.add_argument("--length", type=int, default=16384, help="tokens of each text (16384)")
    command.add_argument("--head", type=int, default=0, help="whose logits are kept, of every layer (0)")
    command.add_argument("--out", type=Path, default=RESULTS / "diagnoses.json", help="file to write")


def _diagnoses(options: argparse.Namespace) -> int:
    from backend.engine import Lab
    from backend.evaluation.diagnoses import evaluate
    from backend.evaluation.fluency import documents
    from backend.models.pool import Models, allowed

    for name, least in (("documents", 1), ("length", 64), ("head", 0)):
        if getattr(options, name) < least:
            raise Refused(f"--{name} {getattr(options, name)}: give at least {least}")
    writable(options.out)
    lab, texts = Lab(Models(allowed(more=[options.model]))), documents(options.data, options.documents)
    for result in evaluate(lab, options.model, texts, options.length, options.head, say):
        keep(options.out, result)
    return 0


def _add_texts(command: argparse.ArgumentParser, documents: int, longest: int) -> None:
    """What both measures of long texts ask for. documents, longest: their defaults."""
    command.add_argument("--model", default="embedded")
    command.add_argument("--data", type=Path, help="folder with *.txt, in the place of Python's documentation")
    command.add_argument(
        "--documents", type=int, default=documents, help=f"texts of the folder to read ({documents})"
    )
    command.add_argument("--lengths", type=int, nargs="+", help="tokens after which to measure (2048, 4096, …)")
    command.add_argument(
        "--longest", type=int, default=longest, help=f"where plain attention stops, and what costs as much ({longest})"
    )


def _lengths(options: argparse.Namespace, usual: Sequence[int], shortest: int) -> list[int]:
    """The lengths asked for, or the usual ones, ascending. ValueError for one below the shortest."""
    chosen = sorted(options.lengths or usual)
    if chosen[0] < shortest:
        raise Refused(f"--lengths {chosen[0]}: give lengths from {shortest:,}")
    return chosen


def _texts(options: argparse.Namespace) -> tuple[Lab, dict[str, str]]:
    """A lab, and the texts by name."""
    from backend.engine import Lab
    from backend.evaluation.fluency import documents
    from backend.models.pool import Models, allowed

    if options.documents < 1:
        raise Refused(f"--documents {options.documents}: give at least 1")
    return Lab(Models(allowed(more=[options.model]))), documents(options.data, options.documents)


def chosen_policies(options: argparse.Namespace, known: Collection[str]) -> list[str]:
    """The policies asked for, or all that are known."""
    chosen = options.policy or list(known)
    if wrong := [name for name in chosen if name not in known]:
        raise Refused(f"there is no policy {wrong[0]!r}: choose of {', '.join(known)}")
    return chosen
