"""PIC-SFT: no target, but an adapter trained on long texts, under the position ids that it brings along (004 §3.2)."""
from __future__ import annotations

from backend.methods.base import LengthMethod

LONGER = "{long} --method sft_dynamic --start {stages}"
SEGMENTS = "--longest 6600 --segment 256"


class LongTexts(LengthMethod):
    """Has no aim; its adapter was trained under the position ids named by `compression`."""

    paper = "004 §3.2"
    bound = None
    cap = 3072
    adapter = True


class Sft(LongTexts):
    name = "sft"
    label = "SFT long"
    summary = "No target: a model trained on long texts."
    paper = "004 §4.1"
    order = 90
    compression = "none"
    recipe = ("{long} {responses} --method sft --out assets/adapters/sft",)


class SftNtk(LongTexts):
    name = "sft_ntk"
    label = "PIC-SFT NTK"
    summary = "No target: a model trained on long texts under NTK compression."
    order = 91
    compression = "ntk"
    recipe = ("{long} {responses} --method sft_ntk --ratio 16 --out assets/adapters/sft_ntk",)


class SftDynamic(LongTexts):
    name = "sft_dynamic"
    label = "PIC-SFT dynamic"
    summary = "No target: a model trained on long texts under dynamic compression."
    order = 92
    compression = "dynamic"
    recipe = (
        "{long} {responses} --method sft_dynamic --out {stages}/long/sft_dynamic",
        f"{LONGER}/long/sft_dynamic --samples 36 --shortest 3000 --longest 5120 --out {{stages}}/longer/sft_dynamic",
        f"{LONGER}/longer/sft_dynamic --samples 40 --shortest 3200 {SEGMENTS} --out {{stages}}/longest/sft_dynamic",
        f"{LONGER}/longest/sft_dynamic --samples 60 --shortest 3200 {SEGMENTS} --seed 1 "
        "--out {stages}/longest_again/sft_dynamic",
        f"{LONGER}/longest_again/sft_dynamic --samples 130 --shortest 1500 {SEGMENTS} --seed 2 "
        "--out assets/adapters/sft_dynamic",
    )
