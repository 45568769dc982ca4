"""Decode and prefill speed of the engine beside transformers'.

    python -m backend evaluate decode_speed

It reads long contexts; `make bench` measures short ones, and the page on top (app.bench); `make vitals` what the page
takes of a visitor (app.vitals).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from backend.evaluation.bench.throughput import OLDER, PLAIN, current, throughput, times
from backend.evaluation.bench.timing import begun, reported
from backend.evaluation.bench.vitals import vitals
from backend.evaluation.bench.ways import LONG, WINDOWS, context_tokens, long_cases
from backend.evaluation.card import Axis, Card, Curve, Evidence, Figure
from backend.evaluation.experiment import Experiment, Flags, Result, Results, Say
from backend.evaluation.markdown import estimate, figure
from backend.measures.bootstrap import LEAST
from backend.models.pool import Models

BENCH, FAR, VITALS = "bench.json", "bench_long.json", "vitals.json"
# The context of the headline.
SHOWN = 2048
OWN, WINDOWED = "engine bf16", f"engine bf16, Λ {SHOWN}"


class DecodeSpeed(Experiment):
    name = "decode_speed"
    title = "Speed"
    question = "How fast does the engine read and write, beside transformers?"
    order = 60
    files = (BENCH, FAR, VITALS)
    command = "make bench bench-long vitals"

    class Options(Flags):
        tokens: int = Field(32, ge=1, description="tokens written in a round")
        contexts: tuple[int, ...] = Field(LONG, description="tokens of context")
        windows: tuple[int, ...] = Field(WINDOWS, description="Λ windows")

    def file(self, options: Options) -> str:
        return FAR

    def measure(self, options: Options, before: Result | None, say: Say) -> Iterator[dict[str, Any]]:
        models = Models(["embedded"])
        bench, head = begun(context_tokens(models), options.tokens, say)
        rows: list[dict[str, Any]] = []
        for row in long_cases(models, bench, options.contexts, options.windows):
            rows.append(reported(row, say))
            yield head | {"long": rows}

    def card(self, results: Results) -> Card:
        headlines = []
        if BENCH in results and current(results[BENCH]):
            rates = {(rate["case"], rate["context"]): rate["decode_rounds"] for rate in results[BENCH]["short"]}
            ours, theirs = (rates.get((case, SHOWN), []) for case in ("engine bf16", PLAIN))
            what = f"Decode throughput after {SHOWN:,} tokens over transformers', bf16, two cores"
            headlines.append((what, estimate(*times(ours, theirs), "rounds", figure)))
        evidence = [_evidence(results[FAR])] if FAR in results and _read(results[FAR]) else []
        speeds = throughput({name: result for name, result in results.items() if name != VITALS})
        page = vitals(results[VITALS]) if VITALS in results else ""
        return Card(f"{speeds}\n\n{page}".strip(), evidence=evidence, headlines=headlines)


def _read(result: Result) -> list[int]:
    """Contexts after which both plain attention and Λ were timed."""
    found = [{rate["context"] for rate in result["long"] if rate["case"] == case} for case in (OWN, WINDOWED)]
    return sorted(set.intersection(*found))


def _evidence(result: Result) -> Evidence:
    rates = {(rate["case"], rate["context"]): rate for rate in result["long"]}
    far = _read(result)[-1]
    first, last = (pick(at for case, at in rates if case == WINDOWED) for pick in (min, max))
    reads, writes = (rates[WINDOWED, far][way] / rates[OWN, far][way] for way in ("prefill", "decode"))
    rounds = len(rates[WINDOWED, far]["decode_rounds"])
    kept = rates[WINDOWED, last]["decode"] / rates[WINDOWED, first]["decode"]
    return Evidence(
        5, "Speed",
        f"Through a Λ window of {SHOWN:,} the engine writes {figure(kept)} times as fast after {last:,} tokens as "
        f"after {first:,}; a model that sees all has lost most of its speed by {far:,}.",
        _speeds(result), "002",
        "Llama-2-7B after 32k tokens on an A100: Λ reads 3.16 and writes 2.72 times as fast as plain (appendix D)",
        f"after {far:,} tokens on two cores: Λ reads {figure(reads)} and writes {figure(writes)} times as fast as "
        "plain",
        " ".join([
            f"{rounds} rounds give no interval, so that no difference is claimed." if rounds < LEAST else "",
            *([] if current(result) else [f"Withdrawn as a headline: {OLDER[0].lower()}{OLDER[1:]}"]),
        ]).strip(),
    )  # fmt: skip


def _speeds(result: Result) -> Figure:
    names = {OWN: "plain", WINDOWED: f"Λ {SHOWN:,}", PLAIN: "transformers"}
    rates = {name: [rate for rate in result["long"] if rate["case"] == name] for name in names}
    contexts = sorted({rate["context"] for found in rates.values() for rate in found})
    return Figure(
        "Tokens written a second", "By how much was read before, bf16",
        Axis("tokens read before", log=True, ticks={at: f"{at // 1024}k" for at in contexts}),
        Axis("tokens a second", zero=True),
        [
            Curve(names[name], [rate["context"] for rate in found], [rate["decode"] for rate in found], "lines+markers")
            for name, found in rates.items() if found
        ],
        "All cases were timed by turns, on one machine.", ("attention", *(f"{at:,}" for at in contexts)),
        [
            [names[name], *(figure({rate["context"]: rate["decode"] for rate in found}.get(at)) for at in contexts)]
            for name, found in rates.items()
        ],
    )  # fmt: skip
