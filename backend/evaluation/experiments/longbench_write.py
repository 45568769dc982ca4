"""How near answers come to a number of words that the prompt asks for (LongBench-Write).

    python -m backend evaluate longbench_write --data FILE
"""

from __future__ import annotations

from statistics import fmean

from backend.evaluation.card import Card
from backend.evaluation.experiment import Results
from backend.evaluation.long_answers import LONGBENCH, POLICIES, SAMPLED, LongAnswers, tables
from backend.evaluation.markdown import UNKNOWN, estimate, figure, table, verdict
from backend.measures.bootstrap import Bounded, difference
from backend.measures.length_error import s_l


class LongBenchWrite(LongAnswers):
    name = "longbench_write"
    title = "Lengths asked for in the prompt"
    question = "How near does an answer come to the number of words that its prompt asks for?"
    paper = "LongBench-Write"
    order = 92
    files = ("longbench_write.json",)
    policies = POLICIES
    recipe = (
        f"backend evaluate longbench_write --recent 128 {LONGBENCH} {SAMPLED} --prompts 12 --cap 1024 --policy plain "
        "'dynamic contiguous s=4' 'NTK s=16' {more}",
    )

    def card(self, results: Results) -> Card:
        (result,) = results.values()
        cap = result["settings"]["max_new_tokens"]
        prompts = len(result["prompts"])
        scores = {
            policy: [s_l([(row["words"], row["wanted"])]) for row in answers]
            for policy, answers in result["answers"].items()
        }
        first = next(iter(scores))
        rows = []
        for policy, found in scores.items():
            gain = difference(found, scores[first]) if policy != first else Bounded(None)
            apart = UNKNOWN if policy == first else verdict(gain, "nearer", "farther", 0.0)
            rows.append([policy, figure(fmean(found)), estimate(gain, len(found), "prompts", figure), apart])
        words = (
            f"{prompts} of LongBench-Write's prompts; answers were cut at {cap:,} tokens, which prompts for more words "
            "cannot reach. S_l is of 100, over all answers, those cut too."
        )
        columns = ["policy", "S_l", f"S_l more than {first}'s", "distinguished"]
        return Card("\n\n".join([words, table(columns, rows), tables(result)]))
