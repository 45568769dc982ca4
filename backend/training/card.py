"""The model card of a trained adapter: what it is, from what it was made and how it was measured.

    python -m backend.training.card

makes the cards of the adapters in assets/adapters anew, from their training.json and from what assets/results holds by
now. Where their texts are from stays as it stands in them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from backend import adapters, jsonlines
from backend.adapters import Adapter
from backend.evaluation.files import RESULTS
from backend.settings import ADAPTER_METHODS, LIMIT_METHODS, LONG_METHODS
from backend.training.budget import UNRECORDED, Budget, budgets, trainings

TEXTS, MEASURED = "## Texts\n", "## Measured\n"
RANGES = ("10-200", "300-1000", "words", "characters", "changed", "summaries")


def card(adapter: Adapter, sources: Mapping[str, int], note: str) -> str:
    """Markdown with the front matter of the hub. sources: texts by where they are from; note: on their licences."""
    from_ = [f"- {name}: {count:,}" for name, count in sources.items()]
    texts = "\n".join(["", *from_, "", note or "Their licences were not stated.", "", ""])
    return _head(adapter) + TEXTS + texts + _measured(adapter.method, None)


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
        f"| Loss at the end: end mark, text | {last['loss_end']:.3f}, {last['loss_text']:.3f} |",
        f"| Longest response | {settings['longest']} tokens |",
        *_variants(adapter),
        f"| Went on from | {_start(about)} |",
        *(f"| Before that | {row} |" for row in map(_told, before)),
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
        if about["settings"]["method"] in LIMIT_METHODS:
            when = "Shifts of the counts" if not place else "Shifts before that"
            yield f"| {when} | {_rounded(about['settings'].get('mnt_nearest'))} |"


def _rounded(nearest: bool | None) -> str:
    if nearest is None:
        return f"{UNRECORDED} whether to the nearest number or up"
    return "to the nearest number (000 eq. 7)" if nearest else "up (the lab's own: none is 0)"


def _start(about: Mapping[str, Any]) -> str:
    if not about["settings"]["start"]:
        return "the base model"
    checksum = Budget.told(about).start
    return f"{Path(about['settings']['start']).name} (SHA-256 {checksum or UNRECORDED})"


def measured(card: str, method: str, results: Path = RESULTS) -> str:
    """The card with what a folder of results tells of the method."""
    file = results / _file(method)
    return card.partition(MEASURED)[0] + _measured(method, json.loads(file.read_text()) if file.exists() else None)


def _file(method: str) -> str:
    return "pic_sft.json" if method in LONG_METHODS else f"length/{method}.json"


def _measured(method: str, result: Mapping[str, Any] | None) -> str:
    command = "longform --trained" if method in LONG_METHODS else f"length --method {method}"
    told = f"`python -m backend evaluate {command}`; `assets/results/{_file(method)}`, on the lab's Results tab"
    if result is None:
        return f"{MEASURED}\n{told}: not yet.\n"
    rows = _long_rows(method, result) if method in LONG_METHODS else _length_rows(result)
    return "\n".join([MEASURED, f"{told}:", "", *rows]) + "\n"


def _length_rows(result: Mapping[str, Any]) -> Iterator[str]:
    yield "| targets | answers | mean error | more than 20 off | longer than asked | ended by the model |"
    yield "|---|---|---|---|---|---|"
    for name in RANGES:
        if row := result["summary"].get(name):
            unit = name if name in ("words", "characters") else "tokens"
            yield (
                f"| {name} | {row['answers']} | {row['mae']:.2f} {unit} | {row['outliers']:.1%} "
                f"| {row['over']:.1%} | {row['ended']:.1%} |"
            )
    if quality := result.get("quality"):
        yield ""
        yield (
            f"The untouched model finds the answers to questions {quality['perplexity_ratio']:.2f} times as perplexing "
            "as its own of the same lengths."
        )


def _long_rows(method: str, result: Mapping[str, Any]) -> Iterator[str]:
    named = {"sft": "SFT, ", "sft_ntk": "NTK PIC-SFT, ", "sft_dynamic": "dynamic PIC-SFT, "}[method]
    yield "| read | answers | words | corrupted | perplexity by the model itself |"
    yield "|---|---|---|---|---|"
    before = adapters.outdated(result.get("measured", {}), "embedded")
    for name, row in result["summary"].items():
        if name.startswith(named) or name.startswith("w/o"):
            read = name.removeprefix(named) + (" (before its last training)" if name in before else "")
            yield (
                f"| {read} | {row['responses']} | {row['words_mean']:,.0f} | {row['corrupted']:.1%} "
                f"| {row['perplexity']:.1f} |"
            )


def _told(training: Mapping[str, Any]) -> str:
    budget, minutes = Budget.told(training), training["result"]["seconds"] / 60
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
    for method in ADAPTER_METHODS:
        file = adapters.ROOT / method / "README.md"
        if file.exists():
            file.write_text(renewed(file.read_text("utf-8"), Adapter.load(file.parent)), "utf-8")


if __name__ == "__main__":
    main()
