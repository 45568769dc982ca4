"""How the results in assets/ are made anew: an hour and more each on two cores.

Results hold the commands that made them, some with fewer prompts and documents. The data's folder has
scitldr_test.jsonl, hellobench_ht.jsonl, longbench_write_en.jsonl and novels/.
"""

from __future__ import annotations

import sys

from backend.methods import LengthMethod, methods
from backend.recipes import run

LENGTH = "-m backend evaluate length --data {data} {more}"
CARDS = "-m backend.training.card"


def _ranges(method: LengthMethod) -> str:
    """What neither trains nor asks the model is measured in tokens alone."""
    return "" if method.adapter or method.prompt("", "1 token") else " --ranges range beyond"


LENGTHS = (
    *(f"{LENGTH} --method {method.name}{_ranges(method)}" for method in methods if not method.compression),
    *(f"{LENGTH} --method {method} --landing 8 --ranges range" for method in ("ldpe", "orpe")),
    "-m backend evaluate endmark",
    CARDS,
)

PERPLEXITY = "-m backend evaluate perplexity"
HARNESS = "-m backend evaluate harness --data {data}"
FAR_LENGTHS = "--lengths 2048 4096 8192 16384 32768 --longest 16384"
PIC_SFT = "--method sft --method sft_ntk --method sft_dynamic"
FAR = (
    f"{PERPLEXITY} --data {{data}}/novels --documents 1 {{more}}",
    f"{PERPLEXITY} --data {{data}}/novels --documents 6 --policy plain --policy Λ --policy truncation {FAR_LENGTHS} "
    "--out assets/results/perplexity_novels.json",
    f"{PERPLEXITY} {FAR_LENGTHS} --out assets/results/perplexity_pydoc.json",
    f"{PERPLEXITY} --ablation --documents 1 --lengths 8192 12288 20480 --longest 20480 --data {{data}}/novels",
    "-m backend evaluate computation --data {data}/novels",
    "-m backend evaluate recall --data {data}/novels --longest 16384",
    "-m backend evaluate diagnoses --data {data}/novels",
    f"{HARNESS} --method ldpe --method orpe --method pre --limit 24",
    f"{HARNESS} {PIC_SFT} --limit 24",
    f"{HARNESS} {PIC_SFT} --limit 80 --shots 5 --out assets/results/harness_pic_sft_shots.json",
)

LONGFORM = "-m backend evaluate longform --recent 128"
HELLOBENCH, LONGBENCH = "--data {data}/hellobench_ht.jsonl", "--data {data}/longbench_write_en.jsonl"
SAMPLED = "--temperature 1 --top-p 0.95"
DYNAMIC, NTK = "--policy 'dynamic contiguous s=4'", "--policy 'NTK s=16'"
TRAINED = "--policy 'dynamic PIC-SFT, dynamic s=4'"
LONG_ANSWERS = (
    f"{LONGFORM} {HELLOBENCH} {SAMPLED} --prompts 100 --cap 4096 --out assets/results/long_answers.json --policy plain "
    f"{DYNAMIC} --policy 'dynamic contiguous s=16' --policy 'NTK s=4' {{more}}",
    "-m backend report",
)
LONG_RESPONSES = (
    f"{LONGFORM} {HELLOBENCH} {SAMPLED} --prompts 8 --cap 2048 {{more}}",
    f"{LONGFORM} {HELLOBENCH} --prompts 8 --cap 2048 --out assets/results/longform_greedy.json --policy plain "
    f"{DYNAMIC} {NTK} {{more}}",
    f"{LONGFORM} {HELLOBENCH} {SAMPLED} --prompts 32 --cap 2048 --out assets/results/longform_many.json --policy plain "
    f"{DYNAMIC} {{more}}",
    f"{LONGFORM} {HELLOBENCH} {SAMPLED} --prompts 8 --trained --cap 6144 {{more}}",
    f"{LONGFORM} {HELLOBENCH} {SAMPLED} --prompts 24 --trained --cap 6144 --out assets/results/pic_sft_many.json "
    f"--policy 'w/o SFT, plain' {TRAINED} {{more}}",
    f"{LONGFORM} {LONGBENCH} {SAMPLED} --prompts 8 --trained --cap 6144 --wanted 2001 "
    "--out assets/results/longbench_write_long.json --policy 'w/o SFT, plain' --policy 'SFT, plain' "
    f"--policy 'NTK PIC-SFT, NTK s=16' --policy 'dynamic PIC-SFT, plain' {TRAINED} {{more}}",
    f"{LONGFORM} {LONGBENCH} {SAMPLED} --prompts 12 --cap 1024 --out assets/results/longbench_write.json "
    f"--policy plain {DYNAMIC} {NTK} {{more}}",
    CARDS,
)
RECIPES = {"lengths": LENGTHS, "far": FAR, "longform": LONG_RESPONSES, "long-answers": LONG_ANSWERS}

if __name__ == "__main__":
    sys.exit(run(RECIPES))
