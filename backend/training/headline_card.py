"""The cards of the headline model, and of an adapter that was trained on pairs of a source and a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from backend.training.budget import UNRECORDED

UNSTATED = "Their licences were not stated."


def of_base(about: Mapping[str, Any], note: str) -> str:
    """Markdown with the front matter of the hub. about: what training.json tells; note: on where the texts are from."""
    settings, result = about["settings"], about["result"]
    subwords = settings["target_tokens"] == "bpe"
    written = "and writes subwords, of one table" if subwords else "and writes characters (001 §4)"
    return _page(
        ["library_name: transformers", "pipeline_tag: summarization"],
        "headlines: a small encoder-decoder that writes one line of a description",
        f"A Marian of {settings['layers']} + {settings['layers']} layers, {settings['width']} wide, "
        f"{result['parameters']:,} parameters, trained from nothing: it reads subwords {written}. "
        "Its weights are the mean of the last checkpoints.",
        [
            ("Pairs", f"{result['pairs']:,}"),
            *_stages(about),
            (f"Loss on validation, labels smoothed by {settings['smoothing']:g}", _number(result["eval_loss"])),
        ],
        about,
        note,
    )


def of_adapter(about: Mapping[str, Any], note: str) -> str:
    """The same of an adapter."""
    settings, result = about["settings"], about["result"]
    beside = " beside the model's own positions" if settings["beside"] else ""
    signal = "trained as much, without a signal," if settings["method"] == "none" else f"that reads the signal{beside}"
    return _page(
        ["library_name: peft", f"base_model: {settings['model']}"],
        f"{settings['method']}: a length adapter for {settings['model']}",
        f"A LoRA (rank {settings['rank']}, alpha {settings['alpha']:g}) on the decoder, {signal}.",
        [
            ("Samples, optimiser steps", f"{result['samples']:,}, {result['step']:,}"),
            ("Distinct texts", f"{result['pairs']:,}"),
            ("Loss over the last steps", _number(result["loss"])),
            ("Longest text", f"{settings['longest']} {result['unit']}"),
            ("Lengths left out", ", ".join(map(str, settings["left_out"])) or "none"),
        ],
        about,
        note,
    )


def _stages(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The trainings that led to a model, the last one first."""
    name: str = "Trained"
    stage: Mapping[str, Any] | None = about
    while stage:
        settings, result = stage["settings"], stage["result"]
        rate = f"rate {settings['rate']:g}, {settings['schedule']}"
        lesson = ", copying stretches of sources" if settings.get("copies") else ""
        yield name, f"{result['step']:,} steps of {settings['batch']}, {result['epoch']:.1f} times all, {rate}{lesson}"
        name, stage = "Before that", stage.get("resumed_from")


def _number(loss: float | None) -> str:
    return UNRECORDED if loss is None else f"{loss:.3f}"


def _page(
    front: list[str], title: str, words: str, rows: list[tuple[str, str]], about: Mapping[str, Any], note: str
) -> str:
    machine, seconds = about["machine"], about["result"]["seconds"]
    rows = [
        *rows,
        ("Time of the last call", f"{seconds / 60:.0f} min on {machine['gpu'] or machine['processor']}"),
        ("Command", f"`{about['command']}`"),
        ("Commit", about["commit"]),
    ]
    table = "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])
    head = "\n".join(["---", *front, "license: apache-2.0", "---"])
    return f"{head}\n# {title}\n\n{words}\n\n{table}\n\n## Texts\n\n{note or UNSTATED}\n"
