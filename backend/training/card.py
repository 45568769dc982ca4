"""The model card of a trained adapter: what it is, from what it was made and how it was measured.

    python -m backend.training.card

makes the cards of the adapters in assets/adapters anew, from their training.json and from what assets/results holds by
now. Where their texts are from stays as it stands in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from backend.methods import methods
from backend.models import adapters
from backend.models.adapters import Adapter
from backend.record import jsonlines
from backend.record.results import RESULTS
from backend.training.budget import UNRECORDED, Budget, budgets, trainings

TEXTS, MEASURED = "## Texts\n", "## Measured\n"


def card(adapter: Adapter, sources: Mapping[str, int], note: str) -> str:
    """Markdown with the front matter of the hub. sources: texts by where they are from; note: on their licences."""
    from_ = [f"- {name}: {count:,}" for name, count in sources.items()]
    texts = "\n".join(["", *from_, "", note or "Their licences were not stated.", "", ""])
    return _head(adapter) + TEXTS + texts + _measured(adapter.method, False)


def renewed(card: str, adapter: Adapter, results: Path = RESULTS) -> str:
    """The card with what its adapter's training.json and a folder of results tell by now."""
    return _head(adapter) + TEXTS + measured(card.partition(TEXTS)[2], adapter.method, results)


def _head(adapter: Adapter) -> str:
    about, *before = trainings(adapter.path)
    settings, result, machine = about["settings"], about["result"], about["machine"]
    last = jsonlines.read(adapter.path / "training.jsonl")[-1]
    lines = [
        "---",
        "library_name: peft",
        f"base_model: {adapter.base}",
        "license: apache-2.0",
        "---",
        f"# {adapter.method}: a length adapter for {adapter.base}",
        "",
        f"A LoRA (rank {settings['rank']}, alpha {settings['alpha']:g}, {settings['targets']}) {_purpose(adapter)}",
        "",
        "| | |",
        "|---|---|",
        f"| Samples, optimiser steps | {result['samples']:,}, {result['step']:,} |",
        *_budget(adapter.path),
        f"| Time | {result['seconds'] / 60:.0f} min on {machine['gpu'] or machine['processor']}, "
        f"{machine['threads']} of {machine['cores']} threads |",
        f"| Loss at the end: EOS, text | {last['loss_end']:.3f}, {last['loss_text']:.3f} |",
        f"| Longest response | {settings['longest']} tokens |",
        *_variants(adapter),
        f"| Went on from | {_start(about)} |",
        *(f"| Before that | {row} |" for row in map(_stage, before)),
        *([f"| Before that | {UNRECORDED} |"] if [about, *before][-1]["settings"]["start"] else []),
        f"| Command | `{about['command']}` |",
        f"| Commit | {about['commit']} |",
        "",
        "",
    ]
    return "\n".join(lines)


def _budget(adapter: Path) -> Iterator[str]:
    last, *_ = found = budgets(adapter)
    yield f"| Label tokens | {_number(last.labels)} |"
    if len(found) > 1:
        labels = [each.labels for each in found]
        known = sum(number for number in labels if number is not None)
        yield f"| Label tokens of all trainings | {known:,}{' and an unrecorded number' if None in labels else ''} |"
    yield f"| Distinct texts | {_number(last.texts)} |"
    yield f"| SHA-256 of the set of texts | {last.texts_sha256 or UNRECORDED} |"


def _number(value: int | None) -> str:
    return UNRECORDED if value is None else f"{value:,}"


def _variants(adapter: Adapter) -> Iterator[str]:
    """Which of the papers' ways and of the lab's own the signal was trained with."""
    if (signal := adapter.settings) is None:
        return
    by = "each prompt's embeddings (000 eq. 5)" if signal.scale == "sequence" else "the whole table (the lab's own)"
    yield f"| Scale of the signal | by {by} |"
    for place, about in enumerate(trainings(adapter.path)):
        if methods[about["settings"]["method"]].bound == "limit":
            when = "Shifts of the counts" if not place else "Shifts before that"
            yield f"| {when} | {_rounded(about['settings'].get('mnt_nearest'))} |"


def _rounded(nearest: bool | None) -> str:
    if nearest is None:
        return f"{UNRECORDED} whether to the nearest number or up"
    return "to the nearest number (000 eq. 7)" if nearest else "up (the lab's own: none is 0)"


def _start(about: Mapping[str, Any]) -> str:
    if not about["settings"]["start"]:
        return "the base model"
    checksum = Budget.recorded(about).start
    return f"{Path(about['settings']['start']).name} (SHA-256 {checksum or UNRECORDED})"


def measured(card: str, method: str, results: Path = RESULTS) -> str:
    """The card with what a folder of results tells of the method."""
    return card.partition(MEASURED)[0] + _measured(method, (results / _file(method)).exists())


def _file(method: str) -> str:
    return "pic_sft.json" if methods[method].compression else f"length/{method}.json"


def _measured(method: str, before: bool) -> str:
    """before: whether figures of it were recorded, which are withdrawn."""
    command = "pic_sft" if methods[method].compression else f"length_control --method {method}"
    command_line = f"{MEASURED}\n`python -m backend evaluate {command}`"
    if not before:
        return f"{command_line}: not yet.\n"
    return (
        f"{command_line}: being measured again. What `assets/results/{_file(method)}` holds compares methods\n"
        "that were trained on unequal budgets, and is withdrawn.\n"
    )


def _stage(training: Mapping[str, Any]) -> str:
    budget, minutes = Budget.recorded(training), training["result"]["seconds"] / 60
    texts = f"an {UNRECORDED} number of" if budget.texts is None else f"{budget.texts:,}"
    given = f"{_number(budget.samples)} samples of {texts} texts, {_number(budget.labels)} label tokens"
    return f"{given}, {minutes:.0f} min: `{training['command']}`"


def _purpose(adapter: Adapter) -> str:
    if (found := adapter.longform) is None:
        signal = adapter.settings
        source = f"a signal of gain {signal.gain:g} on the input embeddings" if signal else "the prompt"
        return f"that reads the length\nmethod `{adapter.method}` from {source}."
    if found.kind == "none":
        return "that writes long texts."
    parts = f", {found.initial} initial and {found.recent} recent tokens left alone" if found.kind == "dynamic" else ""
    return f"that writes long texts\nunder {found.kind} position-id compression by {found.ratio:g}{parts} (004 §3.2)."


def main() -> None:
    for method in methods:
        file = adapters.ROOT / method.name / "README.md"
        if file.exists():
            file.write_text(renewed(file.read_text("utf-8"), Adapter.load(file.parent)), "utf-8")


if __name__ == "__main__":
    main()
