"""Sections of the report on what is read: perplexity far into texts, computation, recall, what breaks inside."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from backend.evaluation.computation import curves, spared, whole
from backend.evaluation.fluency import FRESH, Reading, by_document, by_document_fresh
from backend.evaluation.markdown import Part, Results, decimal, estimate, figure, fine, percent, table, verdict
from backend.measures.bootstrap import Bounded, geometric, share

NOVELS, NOVEL, REFERENCE = "perplexity_novels.json", "perplexity.json", "perplexity_pydoc.json"
PLAIN, LAMBDA = "plain", "Λ"
OF = "texts"
OWN = "python -m backend evaluate perplexity --data FOLDER"


def perplexity(results: Results) -> str:
    """Perplexity by policy and tokens read; ratios where there are enough texts."""
    words = ["Perplexity of the last 1,024 tokens before so many; the Λ window has 2,048 tokens."]
    if NOVELS in results:
        words += [_values(results[NOVELS], "Novels"), _over_lambda(results[NOVELS]), _fresh(results[NOVELS])]
    for name, title in ((NOVEL, "One novel"), (REFERENCE, "Python's own reference texts, which repeat themselves")):
        if name in results:
            words += [_values(results[name], f"{title}; so few texts have no interval, and no difference is claimed")]
    return "\n\n".join(words)


def ablation(results: Results) -> str:
    """Perplexity with single parts of Λ."""
    return _values(results["ablation.json"], "Parts of Λ; so few texts have no interval, and no difference is claimed")


def computation(results: Results) -> str:
    """Perplexity and operations by window, and what truncation takes for Λ's perplexity."""
    result = results["computation.json"]
    read = whole(result["rows"])
    texts = len({row["document"] for row in read})
    rows = [
        [name, f"{window:,}", decimal(cost / 1e9), figure(math.exp(nats))]
        for name, points in curves(read).items()
        for window, (cost, nats) in points.items()
    ]
    times = [[f"{window:,}", estimate(found, texts, OF)] for window, found in spared(result["rows"]).items()]
    return "\n\n".join(
        [
            f"Tokens {result['first']:,} to {result['stop']:,} of {texts} novels (002 figure 4, which has BLEU).",
            table(["attention", "window", "billions of operations a token", "perplexity"], rows),
            "Operations that truncation, at its cheapest, takes for Λ's perplexity, over Λ's own; – where truncation "
            "does not come to it in every draw of texts:",
            table(["Λ's window", "times Λ's operations"], times),
        ]
    )


def recall(results: Results) -> str:
    """Continuations beside the text's own, and passkeys within a window and outside it."""
    written, hidden = (results["recall.json"].get(part, {}) for part in ("continuations", "passkeys"))
    rows = [
        [row["policy"], f"{row['tokens']:,}", figure(row["documents"]), decimal(row["BLEU"]),
         figure(100 * row["ROUGE-Lsum"])]
        for row in written.get("rows", ())
    ]  # fmt: skip
    keys = [
        [policy, where, estimate(found, count, "keys", percent), estimate(plain, count, "keys", percent)]
        for (policy, where), (found, plain, count) in _keys(hidden).items()
    ]
    return "\n\n".join(
        [
            "100 tokens written after a long text, always the likeliest, beside the text's own next words. Scores were "
            "not kept text by text, so that they have no intervals and no rows are compared:",
            table(["policy", "tokens read", "texts", "BLEU, of 100", "ROUGE-Lsum, of 100"], rows),
            "Numbers hidden in texts of 128 to 1,024 tokens and asked for at their end; of texts longer than the "
            "window, by whether the number lies in it:",
            table(["policy", "where", "recalled", "recalled by plain attention"], keys),
        ]
    )


def diagnoses(results: Results) -> str:
    """Attention entropy and logits at the end of a long text."""
    result = results["diagnoses.json"]
    rows = [
        [
            reading["policy"],
            f"{reading['position'][-1]:,}",
            f"{figure(round(min(min(row['low']) for row in reading['logits'])))} to "
            f"{figure(round(max(max(row['high']) for row in reading['logits'])))}",
            f"{sum(reading['entropy'][-1]) / len(reading['entropy'][-1]):.2f} of "
            f"{math.log(reading['attended'][-1]):.2f}",
        ]
        for reading in result["readings"]
    ]
    words = (
        f"Texts of {result['length']:,} tokens (002 figure 1): logits and entropy of one, states of "
        f"{len(result['states']['texts'])}. So few texts have no interval: they show what happens in them, and no "
        "difference is claimed."
    )
    columns = ["policy", "tokens read", "logits of one head, all layers", "entropy of its ceiling, nats"]
    return f"{words}\n\n{table(columns, rows)}"


def over_lambda(result: Mapping[str, Any], policy: str, length: int) -> tuple[Bounded, int]:
    """How many times Λ's perplexity a policy's is at a length, and over how many texts."""
    readings = _readings(result)
    ours, theirs = by_document(readings, policy, length), by_document(readings, LAMBDA, length)
    return _paired(ours, theirs)


def over_fresh(result: Mapping[str, Any], length: int) -> tuple[Bounded, int]:
    """How many times the perplexity of the same tokens of a text begun FRESH before Λ's is, and over how many."""
    readings = _readings(result)
    return _paired(by_document(readings, LAMBDA, length), by_document_fresh(readings, length))


def lengths(result: Mapping[str, Any]) -> list[int]:
    """At which a result tells perplexities."""
    return sorted({int(key.replace(",", "")) for row in result["perplexity"] for key in row if key != "policy"})


def _paired(ours: Mapping[str, float], theirs: Mapping[str, float]) -> tuple[Bounded, int]:
    both = sorted(ours.keys() & theirs.keys())
    return geometric([ours[name] for name in both], [theirs[name] for name in both]), len(both)


def _readings(result: Mapping[str, Any]) -> list[Reading]:
    return [Reading(**row) for row in result["readings"]]


def _values(result: Mapping[str, Any], title: str) -> str:
    told_at = [f"{length:,}" for length in lengths(result)]
    texts = len({row["document"] for row in result["readings"]})
    rows = [[row["policy"], *(figure(row.get(at)) for at in told_at)] for row in result["perplexity"]]
    of = f"{texts} text{'s' * (texts > 1)}"
    return f"{title} ({of}):\n\n{table(['attention', *told_at], rows)}"


def _over_lambda(result: Mapping[str, Any]) -> str:
    policies = [row["policy"] for row in result["perplexity"] if row["policy"] != LAMBDA]
    rows = []
    for policy in policies:
        for length in lengths(result):
            found, count = over_lambda(result, policy, length)
            if found.known and length > min(lengths(result)):
                apart = verdict(found, "more perplexed than Λ", "less perplexed than Λ")
                rows.append([policy, f"{length:,}", estimate(found, count, OF, fine), apart])
    return f"Times Λ's perplexity:\n\n{table(['attention', 'tokens', 'times Λ', 'distinguished'], rows)}"


def _fresh(result: Mapping[str, Any]) -> str:
    rows: list[Sequence[str]] = []
    for length in lengths(result):
        found, count = over_fresh(result, length)
        if found.known:
            apart = verdict(found, "more perplexed far into the text", "less perplexed far into the text")
            rows.append([f"{length:,}", estimate(found, count, OF, fine), apart])
    words = f"Λ far into a text, over the same tokens of a text begun {FRESH:,} tokens before:"
    return f"{words}\n\n{table(['tokens', 'times', 'distinguished'], rows)}"


def _keys(part: Mapping[str, Any]) -> dict[tuple[str, str], tuple[Bounded, Bounded, int]]:
    """Of each windowed policy the numbers recalled within its window and outside it, by it and by plain attention."""
    rows, keys = part.get("rows", ()), part.get("keys", 0)
    plain = {(row["tokens"], row["depth"]): row["recalled"] for row in rows if row["policy"] == PLAIN}
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row in rows:
        window, place = part["windows"].get(row["policy"]), (row["tokens"], row["depth"])
        if window is not None and row["tokens"] > window and place in plain:
            where = "outside the window" if row["back"] > window else "within the window"
            pair = round(row["recalled"] * keys), round(plain[place] * keys)
            found.setdefault((row["policy"], where), []).append(pair)
    totals = {key: (*map(sum, zip(*pairs, strict=True)), keys * len(pairs)) for key, pairs in found.items()}
    return {key: (share(own, count), share(other, count), count) for key, (own, other, count) in totals.items()}


PARTS = {
    "perplexity": Part("Fluency far into a text", (NOVELS, NOVEL, REFERENCE), OWN, perplexity),
    "ablation": Part(
        "What each part of Λ does", ("ablation.json",), "python -m backend evaluate perplexity --ablation", ablation
    ),
    "computation": Part(
        "What a window saves, beside truncation",
        ("computation.json",),
        "python -m backend evaluate computation --data FOLDER",
        computation,
    ),
    "recall": Part(
        "Writing on, and recalling", ("recall.json",), "python -m backend evaluate recall --data FOLDER", recall
    ),
    "diagnoses": Part(
        "What breaks far into a text",
        ("diagnoses.json",),
        "python -m backend evaluate diagnoses --data FOLDER",
        diagnoses,
    ),
}
