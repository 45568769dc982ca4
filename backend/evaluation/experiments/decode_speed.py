"""Decode and prefill speed of the engine beside transformers'.

    python -m backend evaluate decode_speed

It reads long contexts; `make bench` measures short ones, and the page on top (app.bench).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from backend.evaluation.bench.throughput import PLAIN, current, throughput, times
from backend.evaluation.bench.timing import begun, reported
from backend.evaluation.bench.ways import LONG, WINDOWS, context_tokens, long_cases
from backend.evaluation.card import Card
from backend.evaluation.experiment import Experiment, Flags, Result, Results, Say
from backend.evaluation.markdown import estimate, figure
from backend.models.pool import Models

BENCH = "bench.json"
# The context of the headline.
SHOWN = 2048


class DecodeSpeed(Experiment):
    name = "decode_speed"
    title = "Speed"
    question = "How fast does the engine read and write, beside transformers?"
    order = 60
    files = (BENCH, "bench_long.json")
    command = "make bench bench-long"

    class Options(Flags):
        tokens: int = Field(32, ge=1, description="tokens written in a round")
        contexts: tuple[int, ...] = Field(LONG, description="tokens of context")
        windows: tuple[int, ...] = Field(WINDOWS, description="Λ windows")

    def file(self, options: Options) -> str:
        return "bench_long.json"

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
        return Card(throughput(results), headlines=headlines)
