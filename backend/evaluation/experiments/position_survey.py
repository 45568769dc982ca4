"""Long answers under every position policy, with few prompts.

    python -m backend evaluate position_survey --data FILE
"""

from __future__ import annotations

from backend.evaluation.card import Card
from backend.evaluation.experiment import Result, Results
from backend.evaluation.long_answers import HELLOBENCH, POLICIES, SAMPLED, LongAnswers, tables
from backend.evaluation.markdown import percent

ALL, GREEDY = "longform.json", "longform_greedy.json"


class PositionSurvey(LongAnswers):
    name = "position_survey"
    title = "Long answers, every policy"
    question = "What does each position policy do to long answers?"
    paper = "004 §4"
    order = 93
    files = (ALL, GREEDY)
    policies = POLICIES
    recipe = (
        f"backend evaluate position_survey --recent 128 {HELLOBENCH} {SAMPLED} --prompts 8 --cap 2048 {{more}}",
        f"backend evaluate position_survey --recent 128 {HELLOBENCH} --prompts 8 --cap 2048 --out "
        "assets/results/longform_greedy.json --policy plain 'dynamic contiguous s=4' 'NTK s=16' {more}",
    )

    def card(self, results: Results) -> Card:
        words = []
        if ALL in results:
            words += [
                "Every policy, with few prompts; measures as above. Of so many rows beside the same plain answers "
                "about one in twenty is distinguished by chance alone: this is a survey, not a ranking.",
                tables(results[ALL]),
            ]
        if GREEDY in results:
            words += ["Always the likeliest token, as in 004:", _repeating(results[GREEDY]), tables(results[GREEDY])]
        return Card("\n\n".join(words))


def _repeating(result: Result) -> str:
    shares = [row["corrupted"] for row in result["summary"].values()]
    if min(shares) == 1:
        return "Every answer repeats itself severely, up to the cap under every policy: lengths say nothing here."
    return f"At least {percent(min(shares))} of each row's answers repeat themselves severely."
