"""How fluent a model stays as a text goes on, under each position policy (002 fig. 3 and 4, table 1).

    python -m backend evaluate perplexity --data FOLDER
    python -m backend evaluate perplexity --policy Λ --lengths 8192 131072

FOLDER holds novels or other *.txt; without one the text is the documentation that comes with Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log
from typing import ClassVar

from backend.evaluation.card import Axis, Card, Curve, Evidence, Figure
from backend.evaluation.experiment import Result, Results, Row
from backend.evaluation.markdown import estimate, figure, fine, table, verdict
from backend.evaluation.readings import (
    FEW,
    FRESH,
    Policies,
    Reading,
    TextReadings,
    by_document,
    by_document_fresh,
    perplexities,
    told_at,
)
from backend.evaluation.texts import LAMBDA, PLAIN, TRUNCATION, WINDOW
from backend.measures.bootstrap import Bounded, geometric

NOVELS = "perplexity_novels.json"
TITLES = {
    NOVELS: "Novels",
    "perplexity.json": f"One novel; {FEW}",
    "perplexity_pydoc.json": f"Python's own reference texts, which repeat themselves; {FEW}",
}
# Tokens that the embedded model was trained on.
TRAINED = 8192
# Recent tokens that keep their distances; with groups of 8, 32,768 tokens then reach 0.6 of what was trained.
NEAR = 1024
# Tokens of a point of the figure, those over which the tables take their perplexity; and where lines are cut off.
POINT, CEILING = 1024, 12.0
# They come first, so that each has one colour in all figures.
FIRST = (PLAIN, LAMBDA, TRUNCATION)
LENGTHS = "--lengths 2048 4096 8192 16384 32768 --longest 16384"


class Perplexity(TextReadings):
    name = "perplexity"
    title = "Fluency far into a text"
    question = "How fluent does a model stay as a text goes on, under each position policy?"
    paper = "002 figures 3 and 4, table 1"
    order = 30
    files = ("perplexity.json", NOVELS, "perplexity_pydoc.json")
    policies: ClassVar[Policies] = {
        PLAIN: {},
        LAMBDA: {"window": WINDOW},
        "window only": {"window": WINDOW, "sinks": 0},
        TRUNCATION: {},
        "naive PIC, s = 4": {"pic": "naive", "ratio": 4},
        "NTK PIC, s = 4": {"pic": "ntk", "ratio": 4},
        "dynamic PIC, s = 4": {"pic": "dynamic", "ratio": 4},
        "StreamingLLM": {"pic": "streaming_llm", "window": WINDOW},
        "ReRoPE": {"pic": "rerope", "recent": NEAR},
        "Leaky ReRoPE, s = 8": {"pic": "leaky_rerope", "ratio": 8, "recent": NEAR},
        "Self-Extend, s = 8": {"pic": "self_extend", "ratio": 8, "recent": NEAR},
        "YaRN, s = 4": {"pic": "yarn", "ratio": 4},
        "Dual chunk": {"pic": "dual_chunk", "recent": TRAINED // 4},
    }
    recipe = (
        "backend evaluate perplexity --data {data}/novels --documents 1 {more}",
        f"backend evaluate perplexity --data {{data}}/novels --documents 6 --policy plain Λ truncation {LENGTHS} "
        "--out assets/results/perplexity_novels.json",
        f"backend evaluate perplexity {LENGTHS} --out assets/results/perplexity_pydoc.json",
    )

    def card(self, results: Results) -> Card:
        words = [
            "Perplexity of the last 1,024 tokens before so many; the Λ window has 2,048 tokens. ReRoPE, Leaky ReRoPE "
            f"and Self-Extend leave {NEAR:,} recent tokens as they are, dual chunk {TRAINED // 4:,}."
        ]
        shown = {name: results[name] for name in TITLES if name in results}
        for name, result in shown.items():
            words += [perplexities(result, TITLES[name])]
            words += [_over_lambda(result), _fresh(result)] if name == NOVELS else []
        headlines = [*_headlines(results[NOVELS])] if NOVELS in results else []
        evidence = [_evidence(results[NOVELS])] if NOVELS in results else []
        return Card("\n\n".join(words), [_figure(result) for result in shown.values()], headlines, evidence=evidence)


def _evidence(novels: Result) -> Evidence:
    """Of the longest text that plain attention read, and of the longest that Λ did."""
    read = [at for at in told_at(novels) if over_lambda(novels, PLAIN, at)[0].known]
    far, inside, last = read[-1], max(at for at in read if at <= TRAINED), told_at(novels)[-1]
    rows = {row["policy"]: row for row in novels["perplexity"]}
    asked = ((PLAIN, far), (PLAIN, inside), (TRUNCATION, far))
    worse, within, cut = (over_lambda(novels, name, at) for name, at in asked)
    fresh = over_fresh(novels, last)
    beyond = f"{far:,} tokens, {far // TRAINED} times what it was trained on"
    return Evidence(
        3, "Far reading",
        f"After {beyond}, a model that sees all is {figure(worse[0].value)} times as perplexed as through a Λ window, "
        f"which after {last:,} reads as it does in a text just begun.",
        _figure(novels), "002",
        "perplexity after 16k tokens of ArXiv: MPT-7B 1,672 plain and 5.98 with Λ, Llama-2 no number and 4.18 "
        "(table 1)",
        f"perplexity of novels after {far:,} tokens: {figure(rows[PLAIN][f'{far:,}'])} plain and "
        f"{figure(rows[LAMBDA][f'{far:,}'])} with Λ, {estimate(*worse, 'novels', figure)} times; Λ after {last:,} over "
        f"a text just begun {estimate(*fresh, 'novels', fine)}",
        f"Within its training Λ is the worse one: plain has {estimate(*within, 'novels', fine)} times its perplexity "
        f"after {inside:,} tokens. A text cut to the window has {estimate(*cut, 'novels', fine)} times.",
    )  # fmt: skip


def _headlines(novels: Result) -> Iterator[tuple[str, str]]:
    known = [at for at in told_at(novels) if over_lambda(novels, PLAIN, at)[0].known]
    for at in known[-2:]:
        beyond = f"{at // TRAINED} times what it was trained on" if at > TRAINED else "as many as it was trained on"
        found = estimate(*over_lambda(novels, PLAIN, at), "novels", figure)
        yield f"Perplexity of plain attention after {at:,} tokens, {beyond}, over Λ's", found
    far = told_at(novels)[-1]
    found = estimate(*over_fresh(novels, far), "novels", fine)
    yield f"Λ's perplexity after {far:,} tokens, over the same tokens of a text begun 8,192 before", found


def over_lambda(result: Result, policy: str, length: int) -> tuple[Bounded, int]:
    """How many times Λ's perplexity a policy's is at a length, and over how many texts."""
    readings = _readings(result)
    ours, theirs = by_document(readings, policy, length), by_document(readings, LAMBDA, length)
    return _paired(ours, theirs)


def over_fresh(result: Result, length: int) -> tuple[Bounded, int]:
    """How many times the perplexity of the same tokens of a text begun FRESH before Λ's is, and over how many."""
    readings = _readings(result)
    return _paired(by_document(readings, LAMBDA, length), by_document_fresh(readings, length))


def _paired(ours: Mapping[str, float], theirs: Mapping[str, float]) -> tuple[Bounded, int]:
    both = sorted(ours.keys() & theirs.keys())
    return geometric([ours[name] for name in both], [theirs[name] for name in both]), len(both)


def _readings(result: Result) -> list[Reading]:
    return [Reading(**row) for row in result["readings"]]


def _over_lambda(result: Result) -> str:
    policies = [row["policy"] for row in result["perplexity"] if row["policy"] != LAMBDA]
    rows = []
    for policy in policies:
        for length in told_at(result):
            found, count = over_lambda(result, policy, length)
            if found.known and length > min(told_at(result)):
                apart = verdict(found, "more perplexed than Λ", "less perplexed than Λ")
                rows.append([policy, f"{length:,}", estimate(found, count, "texts", fine), apart])
    return f"Times Λ's perplexity:\n\n{table(['attention', 'tokens', 'times Λ', 'distinguished'], rows)}"


def _fresh(result: Result) -> str:
    rows: list[Sequence[str]] = []
    for length in told_at(result):
        found, count = over_fresh(result, length)
        if found.known:
            apart = verdict(found, "more perplexed far into the text", "less perplexed far into the text")
            rows.append([f"{length:,}", estimate(found, count, "texts", fine), apart])
    words = f"Λ far into a text, over the same tokens of a text begun {FRESH:,} tokens before:"
    return f"{words}\n\n{table(['tokens', 'times', 'distinguished'], rows)}"


def _figure(result: Result) -> Figure:
    """Nats of a token by how far into a text it stands (002 figure 3)."""
    readings = result["readings"]
    documents = sorted({reading["document"] for reading in readings})
    policies = dict.fromkeys((*FIRST, *(reading["policy"] for reading in readings)))
    drawn = [_curve(result, readings, policy) for policy in policies]
    seen = [curve for curve in drawn if curve.x]
    return Figure(
        f"Nats against position: {documents[0] if len(documents) == 1 else f'{len(documents)} texts'}",
        f"Mean over {POINT:,} tokens to a point (002 figure 3); truncation reads anew for each of its points",
        Axis("tokens read", log=True, ticks={POINT * 2**n: f"{2**n}k" for n in range(8)}),
        Axis("surprise, in nats a token"),
        drawn,
        f"{len(seen)} policies; lines are cut off at {CEILING:g} nats.",
        ("policy", "read to", "least nats", "nats at the end"),
        [[curve.name, f"{curve.x[-1]:,}", f"{min(curve.y):.2f}", f"{curve.y[-1]:.2f}"] for curve in seen],
        mark=(TRAINED, "trained to here"),
    )


def _curve(result: Result, readings: Sequence[Row], policy: str) -> Curve:
    """Mean nats by position of texts read from their start; points for a policy that reads anew for each length."""
    nats: dict[int, list[float]] = {}
    mine = [reading for reading in readings if reading["policy"] == policy]
    for reading in mine:
        if reading["start"] == 0:
            for position, value in zip(reading["position"], reading["nll"], strict=True):
                nats.setdefault(-(-position // POINT) * POINT, []).append(value)
    if max(nats, default=0) >= max((reading["position"][-1] for reading in mine), default=0):
        at = {place: sum(nats[place]) / len(nats[place]) for place in sorted(nats)}
        return Curve(policy, list(at), [round(min(value, CEILING), 3) for value in at.values()])
    row: Row = next((row for row in result["perplexity"] if row["policy"] == policy), {})
    known = {int(key.replace(",", "")): value for key, value in row.items() if key != "policy" and value}
    return Curve(policy, list(known), [round(min(log(value), CEILING), 3) for value in known.values()], "markers")
