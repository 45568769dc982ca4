"""How the adapters in assets/ are made anew: an hour and more each on two cores.

What is there was made from corpora that were stopped at 886 answers (213 for limits, 1,001 short ones), in more
stages, with fewer prompts and documents; cards hold the commands, that of the last stage. The data's folder has
instructions.jsonl, longform.jsonl and responses.jsonl.
"""

from __future__ import annotations

import sys

from backend.methods import methods
from backend.recipes import run

CORPUS, WHOLE = ".cache/training/corpus.jsonl", ".cache/training/whole.jsonl"
COUNTING, STAGES = ".cache/training/counting", ".cache/training"
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
SHORT, STORIES, ABSTRACTS = (f".cache/training/{name}.jsonl" for name in ("short", "stories", "abstracts"))
ENDED = (
    f"-m backend train --data {SHORT} --longest-prompt 100 --longest 240 --budget 900 --curriculum whole --ended "
    f"--said 0.5 --rate 6e-4 {OWN}"
)
SENTENCES = (
    f"-m backend train --data {SHORT} --data {STORIES} --data {ABSTRACTS} --longest-prompt 190 --longest 240 "
    f"--budget 900 --curriculum sentences --said 0.5 --rate 6e-4 {OWN}"
)
LIMITS = f"-m backend train --data {WHOLE} --longest-prompt 300 --longest 640 {OWN}"
LONG_TEXTS = f"-m backend train --preset long --rate 8e-4 --data {{data}}/longform.jsonl {OPEN}"
RESPONSES = "--data {data}/responses.jsonl --samples 60 --shortest 2000"
ENDING = "--match 1 --curriculum long --rate 6e-4"
# What the methods' own recipes name in braces.
PARTS = {
    "answers": TRAIN, "limits": LIMITS, "long": LONG_TEXTS, "responses": RESPONSES, "ending": ENDING,
    "counting": COUNTING, "stages": STAGES, "whole": ENDED, "sentences": SENTENCES,
}  # fmt: skip
ADAPTERS = (
    DISTILL,
    f"-m backend distill --out {WHOLE} --no-hints --turns 1 --longest 640 --questions 192 "
    "--prompts {data}/instructions.jsonl",
    f"-m backend distill --out {SHORT} --questions 300 --turns 3 --longest 260 --prompts {{data}}/instructions.jsonl "
    "--words 0 5 12 20 30 45 65 90 130",
    f"-m backend distill --out {STORIES} --questions 150 --begins 'Write a story about' 'Tell a story about' "
    "'Write a short story about' 'Write a story that begins with the words:' --turns 2 --longest 230 "
    "--words 20 45 90 130 --seed 3",
    f"-m backend distill --out {ABSTRACTS} --questions 0 --prompts {{data}}/scitldr_train.jsonl --longest-prompt 190 "
    "--turns 1 --longest 230 --words 0 20 45 90 --seed 4",
    *(command.format(**PARTS) for method in methods for command in method.recipe),
)
SMOKE = (
    "-m backend distill --out .cache/smoke/corpus.jsonl --questions 48 --turns 2 --longest 60",
    "-m backend train --method ldpe --preset smoke --data .cache/smoke/corpus.jsonl --out .cache/smoke/ldpe",
    "-m backend evaluate length_control --method ldpe --adapter .cache/smoke/ldpe --prompts 2 --ranges range "
    "--out .cache/smoke/length.json",
)
HEADLINES = ".cache/headlines/parts"
ROW = (
    "-m backend train --model headlines --data {data}/headlines/train.jsonl --samples 12000 --budget 3000 --rank 8 "
    "--alpha 16 --rate 1e-3 --gain 1 --longest-prompt 96 --longest 96"
)
# 001's and 003's rows on equal budgets: their names and what tells them apart.
ROWS = {
    "none": "none",
    "ldpe": "ldpe",
    "ldpe+pe": "ldpe --beside",
    "lrpe": "lrpe",
    "lrpe+pe": "lrpe --beside",
    "len_init": "len_init --beside",
    "lc": "lc --beside",
    "rpe": "rpe --beside",
    "pre": "pre --beside",
    "laam": "laam",
    "ldpe, left out": "ldpe --left-out 30 50 75",
}
HEADLINE = (
    "-m backend headlines --data {data}/headlines --out assets/headlines",
    *(f"{ROW} --method {method} --out '{HEADLINES}/{name}'" for name, method in ROWS.items()),
    f"-m backend evaluate headline_lengths --data {{data}}/headlines --parts {HEADLINES} {{more}}",
)
SHAPES = (DISTILL, f"-m backend evaluate lora_ablation --data {CORPUS} {{more}}")
RECIPES = {"adapters": ADAPTERS, "smoke": SMOKE, "shapes": SHAPES, "headlines": HEADLINE}

if __name__ == "__main__":
    sys.exit(run(RECIPES))
