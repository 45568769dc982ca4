"""The model card of a trained adapter: what it is, from what it was made and how it was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from backend import jsonlines
from backend.adapters import Adapter


def card(adapter: Adapter, sources: Mapping[str, int], note: str) -> str:
    """Markdown with the front matter of the hub. sources: texts by where they are from; note: on their licences."""
    about = json.loads((adapter.path / "training.json").read_text())
    settings, result, machine = about["settings"], about["result"], about["machine"]
    last = jsonlines.read(adapter.path / "training.jsonl")[-1]
    signal = adapter.settings
    lines = [
        "---",
        "library_name: peft",
        f"base_model: {adapter.base}",
        "license: apache-2.0",
        "---",
        f"# {adapter.method}: a length adapter for {adapter.base}",
        "",
        f"A LoRA (rank {settings['rank']}, alpha {settings['alpha']:g}, {settings['targets']}) that reads the length",
        f"method `{adapter.method}`"
        + (f" from a signal of gain {signal.gain:g} on the input embeddings." if signal else " from the prompt."),
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
        f"`python -m backend evaluate length --method {adapter.method}`; the lab keeps its results in",
        f"`assets/results/length/{adapter.method}.json` and shows them on its Results tab.",
    ]
    return "\n".join(lines) + "\n"
