"""How the adapters in assets/ are made anew: an hour and more each on two cores.

What is there was made from corpora that were stopped at 886 answers (213 for limits), in more stages, with fewer
prompts and documents; cards hold the commands, that of the last stage. The data's folder has instructions.jsonl,
longform.jsonl and responses.jsonl.
"""

from __future__ import annotations

import sys

from backend.recipes import run

CORPUS, WHOLE = ".cache/training/corpus.jsonl", ".cache/training/whole.jsonl"
COUNTING = ".cache/training/counting"
FIRST, SECOND, THIRD, FOURTH = (
    f".cache/training/{stage}/sft_dynamic" for stage in ("long", "longer", "longest", "longest_again")
)
OWN = (
    "--note 'Answers written by SmolLM2-135M-Instruct (Apache-2.0) to questions it wrote itself and to instructions of "
    "self-instruct and arena-hard (Apache-2.0).'"
)
OPEN = (
    "--note 'Answers written by LongWriter-9B and by open models of 7 to 34 billion parameters to the prompts of "
    "HelloBench (MIT).'"
)
DISTILL = f"-m backend distill --out {CORPUS} --questions 500 --turns 2 --prompts {{data}}/instructions.jsonl"
TRAIN = f"-m backend train --data {CORPUS} --longest-prompt 76 {OWN}"
LIMITS = f"-m backend train --data {WHOLE} --longest-prompt 300 --longest 640 {OWN}"
LONG_TEXTS = f"-m backend train --preset long --rate 8e-4 --data {{data}}/longform.jsonl {OPEN}"
RESPONSES = "--data {data}/responses.jsonl --samples 60 --shortest 2000"
ENDING = "--match 1 --curriculum long --rate 6e-4"
SEGMENTS = "--longest 6600 --segment 256"


def _longer(before: str, settings: str, out: str) -> str:
    return f"{LONG_TEXTS} --method sft_dynamic --start {before} {settings} --out {out}"


ADAPTERS = (
    DISTILL,
    f"{TRAIN} --method ldpe --samples 5000 --out {COUNTING}/ldpe",
    f"{TRAIN} --method ldpe --start {COUNTING}/ldpe {ENDING} --samples 2000 --out assets/adapters/ldpe",
    f"{TRAIN} --method orpe --start {COUNTING}/ldpe {ENDING} --samples 2000 --out assets/adapters/orpe",
    f"{TRAIN} --method pre --start {COUNTING}/ldpe --samples 1200 --rate 8e-4 --out {COUNTING}/pre",
    f"{TRAIN} --method pre --start {COUNTING}/pre {ENDING} --samples 1400 --out assets/adapters/pre",
    f"{TRAIN} --method lrpe --start {COUNTING}/ldpe --samples 900 --rate 8e-4 --out assets/adapters/lrpe",
    f"-m backend distill --out {WHOLE} --no-hints --turns 1 --longest 640 --questions 192 "
    "--prompts {data}/instructions.jsonl",
    *(
        f"{LIMITS} --method mnt_{kind} --start assets/adapters/{kind} --match 1 --samples 700 --curriculum limits "
        f"--mnt-sigma 512 --mnt-most 1024 --rate 5e-4 --out assets/adapters/mnt_{kind}"
        for kind in ("ldpe", "orpe")
    ),
    f"{TRAIN} --method prompted_tuned --samples 700 --out assets/adapters/prompted_tuned",
    f"{LONG_TEXTS} {RESPONSES} --method sft --out assets/adapters/sft",
    f"{LONG_TEXTS} {RESPONSES} --method sft_ntk --ratio 16 --out assets/adapters/sft_ntk",
    f"{LONG_TEXTS} {RESPONSES} --method sft_dynamic --out {FIRST}",
    _longer(FIRST, "--samples 36 --shortest 3000 --longest 5120", SECOND),
    _longer(SECOND, f"--samples 40 --shortest 3200 {SEGMENTS}", THIRD),
    _longer(THIRD, f"--samples 60 --shortest 3200 {SEGMENTS} --seed 1", FOURTH),
    _longer(FOURTH, f"--samples 130 --shortest 1500 {SEGMENTS} --seed 2", "assets/adapters/sft_dynamic"),
)
SMOKE = (
    "-m backend distill --out .cache/smoke/corpus.jsonl --questions 48 --turns 2 --longest 60",
    "-m backend train --method ldpe --preset smoke --data .cache/smoke/corpus.jsonl --out .cache/smoke/ldpe",
    "-m backend evaluate length_control --method ldpe --adapter .cache/smoke/ldpe --prompts 2 --ranges range "
    "--out .cache/smoke/length.json",
)
SHAPES = (DISTILL, f"-m backend evaluate lora_ablation --data {CORPUS} {{more}}")
RECIPES = {"adapters": ADAPTERS, "smoke": SMOKE, "shapes": SHAPES}

if __name__ == "__main__":
    sys.exit(run(RECIPES))
