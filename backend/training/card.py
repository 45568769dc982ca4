"""The model card of a trained adapter: what it is, from what it was made and how it was measured.

    python -m backend.training.card

writes what assets/results holds by now into the cards of the adapters in assets/adapters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from backend import adapters, jsonlines
from backend.adapters import Adapter
from backend.evaluation.files import RESULTS
from backend.settings import ADAPTER_METHODS, LONG_METHODS

# What a training tells of itself, and of the one it went on from.
RECORD = "training.json"
MEASURED = "## Measured\n"
RANGES = ("10-200", "300-1000", "words", "characters", "changed", "summaries")


def trainings(adapter: Path) -> Iterator[dict[str, Any]]:
    """The trainings that an adapter's folder tells of, the last one first."""
    about = json.loads((adapter / RECORD).read_text("utf-8"))
    while about is not None:
        yield about
        about = about.get("went_on_from")


def card(adapter: Adapter, sources: Mapping[str, int], note: str) -> str:
    """Markdown with the front matter of the hub. sources: texts by where they are from; note: on their licences."""
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
        f"| Label tokens | {result['labels']:,} |",
        f"| Time | {result['seconds'] / 60:.0f} min on {machine['gpu'] or machine['processor']}, "
        f"{machine['threads']} threads |",
        f"| Loss at the end: end mark, text | {last['loss_end']:.3f}, {last['loss_text']:.3f} |",
        f"| Longest response | {settings['longest']} tokens |",
        f"| Went on from | {Path(settings['start']).name if settings['start'] else 'the base model'} |",
        *(f"| Before that | {row} |" for row in map(_told, before)),
        f"| Command | `{about['command']}` |",
        f"| Commit | {about['commit']} |",
        "",
        "## Texts",
        "",
        *(f"- {name}: {count:,}" for name, count in sources.items()),
        "",
        note or "Their licences were not stated.",
        "",
    ]
    return "\n".join(lines) + "\n" + _measured(adapter.method, None)


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
    samples, minutes = training["result"]["samples"], training["result"]["seconds"] / 60
    return f"{samples:,} samples, {minutes:.0f} min: `{training['command']}`"


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
            file.write_text(measured(file.read_text("utf-8"), method), "utf-8")


if __name__ == "__main__":
    main()
