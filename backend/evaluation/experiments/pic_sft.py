"""What training on long texts adds to position-id compression (004 table 2, table 8 and figure 3).

    python -m backend evaluate pic_sft --data FILE
"""

from __future__ import annotations

from typing import Any, ClassVar

from backend.evaluation.card import UNEQUAL, Card
from backend.evaluation.experiment import Results
from backend.evaluation.long_answers import HELLOBENCH, LONGBENCH, SAMPLED, LongAnswers, tables

READ: dict[str, dict[str, Any]] = {
    "plain": {},
    "NTK s=16": {"pic": "ntk", "ratio": 16.0},
    "dynamic s=4": {"pic": "dynamic", "ratio": 4.0, "initial": 10, "recent": 600},
}
TRAINED = {
    "w/o SFT": ("none", ("plain",)),
    "SFT": ("sft", ("plain", "NTK s=16", "dynamic s=4")),
    "NTK PIC-SFT": ("sft_ntk", ("plain", "NTK s=16")),
    "dynamic PIC-SFT": ("sft_dynamic", ("plain", "dynamic s=4")),
}
DYNAMIC = "'dynamic PIC-SFT, dynamic s=4'"


class PicSft(LongAnswers):
    name = "pic_sft"
    title = "Long answers after training on long texts (PIC-SFT)"
    question = "What does training on long texts under compressed positions add?"
    paper = "004 tables 2 and 8, figure 3"
    files = ("pic_sft.json", "pic_sft_many.json", "longbench_write_long.json")
    withdrawn = UNEQUAL
    policies: ClassVar[dict[str, dict[str, Any]]] = {
        f"{name}, {how}": {"method": method} | READ[how] for name, (method, hows) in TRAINED.items() for how in hows
    }
    recipe = (
        f"backend evaluate pic_sft --recent 128 {HELLOBENCH} {SAMPLED} --prompts 8 --cap 6144 {{more}}",
        f"backend evaluate pic_sft --recent 128 {HELLOBENCH} {SAMPLED} --prompts 24 --cap 6144 --out "
        f"assets/results/pic_sft_many.json --policy 'w/o SFT, plain' {DYNAMIC} {{more}}",
        f"backend evaluate pic_sft --recent 128 {LONGBENCH} {SAMPLED} --prompts 8 --cap 6144 --wanted 2001 --out "
        "assets/results/longbench_write_long.json --policy 'w/o SFT, plain' 'SFT, plain' "
        f"'NTK PIC-SFT, NTK s=16' 'dynamic PIC-SFT, plain' {DYNAMIC} {{more}}",
        "backend.training.card",
    )

    def card(self, results: Results) -> Card:
        return Card("\n\n".join(map(tables, results.values())))
