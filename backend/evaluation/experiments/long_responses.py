"""How position-id compression changes what a model writes at length: lengths, endings, quality (004 §4, table 7).

    python -m backend evaluate long_responses --data FILE
"""

from __future__ import annotations

from statistics import median

from backend.evaluation.card import PROMPTS, Axis, Card, Curve, Evidence, Figure
from backend.evaluation.experiment import Result, Results
from backend.evaluation.long_answers import DYNAMIC, HELLOBENCH, PLAIN, POLICIES, SAMPLED, LongAnswers, tables
from backend.evaluation.markdown import decimal, estimate, figure, percent, points, verdict
from backend.measures.bootstrap import Bounded

# By how much 004's three models write more under dynamic PIC by 4: its table 7, 1155 / 985, 1125 / 967, 1381 / 1024.
PUBLISHED = (1.16, 1.35)
WORDS = (
    "Answers of at most so many tokens to HelloBench's prompts, without any training for length. Every answer "
    "counts, also one that the cap cut: with the words that it had then, so that means and medians are lower "
    "bounds where answers were cut. 'Half exceed' is Kaplan and Meier's median, in which a cut answer is known to "
    "be at least so long. Up to a horizon: restricted means, in which no answer counts more words than those to "
    "which both rows are known. 'Corrupted' is severe repetition alone: more than half of the 4-grams occurred "
    "before. '004' is that paper's own rule (its appendix A): an answer is corrupted too when it does not end by "
    "itself, and lengths are compared over the prompts that neither answered corruptly, or, above 20 % corrupted, "
    "each over its own uncorrupted answers. The paper also finds repetition by expressions in the text; "
)


class LongResponses(LongAnswers):
    name = "long_responses"
    title = "Long answers, PIC without training"
    question = "Does position-id compression without training make a model write longer, and end by itself?"
    paper = "004 §4, table 7"
    order = 20
    # The newest and largest run first: where it is there, it is what is shown.
    files = ("long_answers.json", "longform_many.json")
    policies = POLICIES
    recipe = (
        f"backend evaluate long_responses --recent 128 {HELLOBENCH} {SAMPLED} --prompts 100 --cap 4096 --policy plain "
        "'dynamic contiguous s=4' 'dynamic contiguous s=16' 'NTK s=4' {more}",
        f"backend evaluate long_responses --recent 128 {HELLOBENCH} {SAMPLED} --prompts 32 --cap 2048 --out "
        "assets/results/longform_many.json --policy plain 'dynamic contiguous s=4' {more}",
    )

    def card(self, results: Results) -> Card:
        kept = any(row.get("texts_kept") for result in results.values() for row in result["summary"].values())
        words = [
            WORDS
            + (
                "where an answer was recorded without its text, severe repetition stands in for them."
                if kept
                else "the answers below were recorded without their text, so that severe repetition stands in for them."
            )
        ]
        largest = next((result for result in results.values() if {DYNAMIC, PLAIN} <= result["summary"].keys()), None)
        if largest is None:
            return Card("\n\n".join(words))
        found = finding(largest)
        few = found if len(largest["prompts"]) < PROMPTS else ""
        return Card("\n\n".join([*words, found, tables(largest)]), evidence=[_evidence(largest)], few=few)


def _evidence(result: Result) -> Evidence:
    row, plain = result["summary"][DYNAMIC], result["summary"][PLAIN]
    longer, ended = Bounded.of(row, "lengthening"), Bounded.of(row, "ended_more")
    much = estimate(longer, row["compared"], "prompts")
    neither = "neither lengthen nor shorten answers for certain"
    does = verdict(longer, "lengthen answers", "shorten answers").replace("not distinguished", neither)
    return Evidence(
        4, "Longer writing",
        f"Compressed positions without training {does} ({decimal(longer.value)} times as many words); "
        f"{percent(row['ended'])} of answers end by themselves, {percent(plain['ended'])} without them.",
        _lengths(result), "004",
        f"{PUBLISHED[0]} to {PUBLISHED[1]} times as many words on models of 7 to 9 billion parameters (table 7, "
        "without intervals)",
        f"{much} times as many words, {estimate(ended, row['compared'], 'prompts', points)} points more answers end",
        f"Missed: {_holds(longer)}. It rests on {row['compared']} prompts, fewer than a headline's {PROMPTS}; figures "
        "after training on long texts are withdrawn.",
    )  # fmt: skip


def _lengths(result: Result) -> Figure:
    """The share of answers that are longer than so many words."""
    names = {PLAIN: "plain", DYNAMIC: "compressed by 4"}
    words = {name: sorted(answer["words"] for answer in result["answers"][name]) for name in names}
    curves = [Curve(names[name], [0, *found], _longer(len(found))) for name, found in words.items()]
    rows = [[names[name], len(found), figure(median(found)), f"{found[-1]:,}"] for name, found in words.items()]
    return Figure(
        "Answers longer than so many words", "Further to the right is longer; the cap cut the last ones",
        Axis("words", zero=True), Axis("% of answers longer", ends=(0, 103)), curves,
        "Answers that the cap cut count with the words they had.", ("positions", "answers", "median", "longest"), rows,
    )  # fmt: skip


def _longer(count: int) -> list[float]:
    """Per cent that are left before each of so many ends, and after the last."""
    return [100 * (1 - place / count) for place in range(count + 1)]


def finding(result: Result) -> str:
    """What dynamic PIC by 4 does to lengths and ends, in a sentence with its intervals."""
    row, plain = result["summary"][DYNAMIC], result["summary"][PLAIN]
    ended, longer, up_to = (Bounded.of(row, key) for key in ("ended_more", "lengthening", "restricted_ratio"))
    often = verdict(ended, "more often", "less often", 0.0).replace("not distinguished", "as often, so far")
    gain = estimate(ended, row["compared"], "prompts", points)
    by = f"{percent(plain['ended'])} → {percent(row['ended'])}; points: {gain}"
    length = verdict(up_to, "longer", "shorter").replace("not distinguished", "neither longer nor shorter, so far")
    cap = result["settings"]["max_new_tokens"]
    theirs = estimate(Bounded.of(row, "lengthening_004"), row["compared_004"], "answers at least")
    return (
        f"On this model PIC without training (dynamic, by 4) makes answers end by themselves {often} ({by}) and "
        f"{length}: up to {row['horizon']:,.0f} words {estimate(up_to, row['compared'], 'prompts')} times as many, "
        f"answers that the cap of {cap:,} tokens cut taken as censored; with these as they are "
        f"{estimate(longer, row['compared'], 'prompts')} times, {verdict(longer, 'longer', 'shorter')}. 004's models, "
        f"of 7 to 9 billion parameters, write {PUBLISHED[0]} to {PUBLISHED[1]} times as many by the same ratio (its "
        f"table 7, by its own rule, without intervals): {_holds(longer)}. By 004's rule, which drops what the cap cut, "
        f"it is {theirs} here."
    )


def _holds(longer: Bounded) -> str:
    least, most = PUBLISHED
    if longer.low is None or longer.high is None:
        return "whether that holds here is not known"
    apart = longer.high < least or longer.low > most
    return "over all answers that does not hold here" if apart else "over all answers it cannot be seen from that here"
