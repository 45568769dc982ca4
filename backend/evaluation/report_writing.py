"""Sections of the report on what is written: long answers, lengths asked for, ends that a signal tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from backend.evaluation.markdown import (
    UNKNOWN,
    Part,
    Results,
    decimal,
    estimate,
    figure,
    percent,
    points,
    table,
    verdict,
)
from backend.measures.bootstrap import Bounded, difference, share
from backend.measures.length_error import s_l

# The newest and largest run first: where it is there, it is what is shown.
LARGE, MANY, ALL, GREEDY = "long_answers.json", "longform_many.json", "longform.json", "longform_greedy.json"
DYNAMIC = "dynamic contiguous s=4"
ASKED = "longbench_write.json"
OWN = "python -m backend evaluate longform"
# By how much 004's three models write more under dynamic PIC by 4: its table 7, 1155 / 985, 1125 / 967, 1381 / 1024.
PUBLISHED = (1.16, 1.35)


def long_answers(results: Results) -> str:
    """Lengths, ends and repetition under position-id compression without training."""
    words = [
        "Answers of at most so many tokens to HelloBench's prompts, without any training for length. Every answer "
        "counts, also one that the cap cut: with the words that it had then, so that means and medians are lower "
        "bounds where answers were cut. 'Half exceed' is Kaplan and Meier's median, in which a cut answer is known to "
        "be at least so long. Up to a horizon: restricted means, in which no answer counts more words than those to "
        "which both rows are known. 'Corrupted' is severe repetition alone: more than half of the 4-grams occurred "
        "before. '004' is that paper's own rule (its appendix A): an answer is corrupted too when it does not end by "
        "itself, and lengths are compared over the prompts that neither answered corruptly, or, above 20 % corrupted, "
        "each over its own uncorrupted answers. The paper also finds repetition by expressions in the text; "
        + _kept(results)
    ]
    if largest_run := largest(results):
        words += [finding(largest_run), _tables(largest_run)]
    return "\n\n".join(words)


def survey(results: Results) -> str:
    """Every policy beside plain, with few prompts."""
    words = []
    if ALL in results:
        words += [
            "Every policy, with few prompts; measures as above. Of so many rows beside the same plain answers about "
            "one in twenty is distinguished by chance alone: this is a survey, not a ranking.",
            _tables(results[ALL]),
        ]
    if GREEDY in results:
        words += ["Always the likeliest token, as in 004:", _repeating(results[GREEDY]), _tables(results[GREEDY])]
    return "\n\n".join(words)


def largest(results: Results) -> Mapping[str, Any] | None:
    """The result of the most prompts that compares dynamic PIC by 4 with plain."""
    there = (results[name] for name in (LARGE, MANY) if results.get(name))
    return next((result for result in there if {DYNAMIC, "plain"} <= result["summary"].keys()), None)


def finding(result: Mapping[str, Any]) -> str:
    """What dynamic PIC by 4 does to lengths and ends, in a sentence with its intervals."""
    row, plain = result["summary"][DYNAMIC], result["summary"]["plain"]
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


def asked_for(results: Results) -> str:
    """How near answers come to a number of words that the prompt asks for."""
    result = results[ASKED]
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
    return "\n\n".join([words, table(columns, rows), _tables(result)])


def endmark(results: Results) -> str:
    """How often a small reader finds where a response ends in the length signal alone."""
    result = results["endmark.json"]
    held = result["lengths"]
    rows = []
    for row in result["rows"]:
        found = share(round(row["found"] * held), held)
        rows.append([row["signal"], row["numbers"], row["reader"], estimate(found, held, "lengths", percent)])
    words = (
        "A small reader, trained alike on every signal, sees one position of a response, its token and its signal, and "
        f"is to say whether the response ends there. Shown: of {held} held-out lengths those found within one token. "
        f"Writing is not measured: the model itself may do better or worse. {_least(result)}"
    )
    return f"{words}\n\n{table(['signal', 'numbers', 'reader', 'found'], rows)}"


def best_readers(result: Mapping[str, Any]) -> dict[str, Bounded]:
    """By signal the share that its best reader finds."""
    best: dict[str, float] = {}
    for row in result["rows"]:
        best[row["signal"]] = max(best.get(row["signal"], 0.0), row["found"])
    held = result["lengths"]
    return {signal: share(round(found * held), held) for signal, found in best.items()}


def _least(result: Mapping[str, Any]) -> str:
    """Which signal is found less often than every other, where the intervals say so."""
    best = best_readers(result)
    for signal, found in best.items():
        others = [other for name, other in best.items() if name != signal]
        if all((found.high or 1) < (other.low or 0) for other in others):
            return f"`{signal}` tells least: {estimate(found, result['lengths'], 'lengths', percent)} at best."
    return "No signal is distinguished from every other."


def _kept(results: Results) -> str:
    kept = sum(row.get("texts_kept", 0) for result in results.values() for row in result["summary"].values())
    if not kept:
        return "the answers below were recorded without their text, so that severe repetition stands in for them."
    return "where an answer was recorded without its text, severe repetition stands in for them."


def _tables(result: Mapping[str, Any]) -> str:
    """Measures of each row, and each beside the first."""
    summary, settings = result["summary"], result["settings"]
    first = next(iter(summary))
    head = (
        f"{len(result['prompts'])} prompts, cap {settings['max_new_tokens']:,} tokens, "
        f"temperature {settings['temperature']:g}, top-p {settings['top_p']:g}, recent {settings['recent']}:"
    )
    columns = [
        "policy", "answers", "words, mean", "median", "half exceed (95 %)", "ended by itself (95 %)", "corrupted",
        "corrupted, 004", "4-grams repeated", "base perplexity",
    ]  # fmt: skip
    rows = [
        [
            name, figure(row["answers"]), f"{row['words_mean']:,.0f}", f"{row['words_median']:,.0f}", _half(row),
            _share(row, "ended"), percent(row["corrupted"]), percent(row["corrupted_004"]),
            percent(row["repetition_mean"]), figure(row["perplexity"]),
        ]
        for name, row in summary.items()
    ]  # fmt: skip
    return "\n\n".join([head, table(columns, rows), _beside(summary, first)])


def _beside(summary: Mapping[str, Any], first: str) -> str:
    """Every other row over the first one's answers to the same prompts."""
    columns = [
        f"over {first}", "words", "distinguished", "mean up to a horizon", "ratio up to it", "ended, points",
        "words, 004", "perplexity", "similarity to the prompt",
    ]  # fmt: skip
    rows = [[name, *_ratios(row)] for name, row in summary.items() if name != first]
    return table(columns, rows)


def _ratios(row: Mapping[str, Any]) -> list[str]:
    count = row["compared"]
    longer, theirs = Bounded.of(row, "lengthening"), Bounded.of(row, "lengthening_004")
    horizon = f"{estimate(Bounded.of(row, 'restricted_mean'), count, 'prompts', figure)} of {row['horizon']:,.0f}"
    return [
        estimate(longer, count, "prompts"),
        verdict(longer, "longer", "shorter"),
        horizon,
        estimate(Bounded.of(row, "restricted_ratio"), count, "prompts"),
        estimate(Bounded.of(row, "ended_more"), count, "prompts", points),
        estimate(theirs, row["compared_004"], "answers at least"),
        estimate(Bounded.of(row, "perplexity_ratio"), count, "prompts"),
        estimate(Bounded.of(row, "similarity_ratio"), count, "prompts"),
    ]


def rounded_weights(results: Results) -> str:
    """Lengths at int4 beside those in bf16."""
    result = results["rounding.json"]
    words = (
        "The same questions and targets ("
        + ", ".join(map(str, result["targets"]))
        + " tokens) in bf16 and with weights rounded to 4 bits, greedily; the adapter stays beside them as it is. "
        "Errors in tokens; 'apart' is how far the errors of an answer's two precisions lie from each other. It says "
        "nothing of where sentences end."
    )
    columns = ["method", "mean error, bf16", "int4", "int4 less bf16", "apart: median", "95th percentile"]
    return f"{words}\n\n{table(columns, [_rounded(row, result['targets']) for row in result['rows']])}"


def _rounded(row: Mapping[str, Any], targets: Sequence[int]) -> list[str]:
    wanted = np.tile(targets, row["prompts"])
    plain, rounded = (np.abs(np.array(row[name]) - wanted) for name in ("bf16", "int4"))
    by_prompt = [each.reshape(-1, len(targets)).mean(1) for each in (rounded, plain)]
    apart = np.abs(rounded - plain)
    return [
        f"`{row['method']}`",
        decimal(float(plain.mean())),
        decimal(float(rounded.mean())),
        estimate(difference(*by_prompt), row["prompts"], "prompts"),
        decimal(float(np.median(apart))),
        decimal(float(np.percentile(apart, 95))),
    ]


def _half(row: Mapping[str, Any]) -> str:
    value, low, high = Bounded.of(row, "words_half")
    middle = "beyond the cap" if value is None else f"{value:,.0f}"
    low_end, high_end = (decimal(end).removesuffix(".00") if end is not None else "cap" for end in (low, high))
    return f"{middle} ({low_end} to {high_end})"


def _share(row: Mapping[str, Any], key: str) -> str:
    value, low, high = Bounded.of(row, key)
    return f"{percent(value)} ({percent(low)} to {percent(high)})"


def _repeating(result: Mapping[str, Any]) -> str:
    shares = [row["corrupted"] for row in result["summary"].values()]
    if min(shares) == 1:
        return "Every answer repeats itself severely, up to the cap under every policy: lengths say nothing here."
    return f"At least {percent(min(shares))} of each row's answers repeat themselves severely."


PARTS = {
    "rounding": Part(
        "Lengths at int4", ("rounding.json",), "python -m backend.evaluation.rounding", rounded_weights
    ),
    "long-answers": Part("Long answers, PIC without training", (LARGE, MANY), OWN, long_answers),
    "lengths-asked": Part("Lengths asked for in the prompt", (ASKED,), OWN, asked_for),
    "survey": Part("Long answers, every policy", (ALL, GREEDY), OWN, survey),
    "endmark": Part(
        "Whether a signal tells where to end", ("endmark.json",), "python -m backend evaluate endmark", endmark
    ),
}
