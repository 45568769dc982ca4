"""What each part of Λ mends (002 §3): far distances its limit, many keys its window, lost first tokens its sinks.

    python -m backend evaluate lambda_ablation --data FOLDER
"""

from __future__ import annotations

from typing import ClassVar

from backend.evaluation.card import Card
from backend.evaluation.experiment import Results
from backend.evaluation.readings import EVERYTHING, FEW, Policies, TextReadings, perplexities
from backend.evaluation.texts import PLAIN, WINDOW


class LambdaAblation(TextReadings):
    name = "lambda_ablation"
    title = "What each part of Λ does"
    question = "Which part of Λ keeps a model fluent far into a text?"
    paper = "002 §3"
    order = 94
    files = ("ablation.json",)
    # Windows from a quarter to twice the embedded model's training length.
    policies: ClassVar[Policies] = {
        PLAIN: {},
        "limit alone": {"window": EVERYTHING, "sinks": 0, "distance_limit": WINDOW},
        "window alone": {"window": WINDOW, "sinks": 0},
        "window, sinks": {"window": WINDOW, "distance_limit": "off"},
        "window, sinks, limit": {"window": WINDOW},
        **{f"{n} sinks": {"window": WINDOW, "sinks": n} for n in (1, 2, 4, 30, 100)},
        **{f"window {n:,}": {"window": n} for n in (4096, 8192, 16384)},
    }
    recipe = (
        "backend evaluate lambda_ablation --data {data}/novels --documents 1 --longest 20480 --lengths 8192 12288 "
        "20480 {more}",
    )

    def card(self, results: Results) -> Card:
        (result,) = results.values()
        title = f"Parts of Λ; {FEW}"
        return Card(perplexities(result, title))
