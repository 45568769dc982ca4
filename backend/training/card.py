"""The model card of a trained adapter: what it is, from what it was made and how it was measured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from backend import jsonlines
from backend.adapters import Adapter
from backend.settings import LONG_METHODS


def card(adapter: Adapter, sources: Mapping[str, int], note: str) -> str:
    """Markdown with the front matter of the hub. sources: texts by where they are from; note: on their licences."""
    about = json.loads((adapter.path / "training.json").read_text())
    settings, result, machine = about["settings"], about["result"], about["machine"]
    last = jsonlines.read(adapter.path / "training.jsonl")[-1]
    made = adapter.method in LONG_METHODS
    measure = "longform --trained" if made else f"length --method {adapter.method}"
    result_file = "pic_sft.json" if made else f"length/{adapter.method}.json"
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
        *(f"| Before that | {row} |" for row in _earlier(about.get("went_on_from"))),
        f"| Command | `{about['command']}` |",
        f"| Commit | {about['commit']} |",
        "",
        "## Texts",
        "",
        *(f"- {name}: {count:,}" for name, count in sources.items()),
        "",
        note or "Their licences were not stated.",
        "",
        "## Measured",
        "",
        f"`python -m backend evaluate {measure}`; the lab keeps its results in",
        f"`assets/results/{result_file}` and shows them on its Results tab.",
    ]
    return "\n".join(lines) + "\n"


def _earlier(about: Mapping[str, Any] | None) -> Iterator[str]:
    """The trainings that a training went on from, the last one first."""
    while about is not None:
        samples, minutes = about["result"]["samples"], about["result"]["seconds"] / 60
        yield f"{samples:,} samples, {minutes:.0f} min: `{about['command']}`"
        about = about.get("went_on_from")


def _purpose(adapter: Adapter) -> str:
    if (found := adapter.longform) is None:
        signal = adapter.settings
        source = f"a signal of gain {signal.gain:g} on the input embeddings" if signal else "the prompt"
        return f"that reads the length\nmethod `{adapter.method}` from {source}."
    if found.kind == "none":
        return "that writes long texts."
    parts = f", {found.initial} initial and {found.recent} recent tokens left alone" if found.kind == "dynamic" else ""
    return f"that writes long texts\nunder {found.kind} position-id compression by {found.ratio:g}{parts} (004 §3.2)."
