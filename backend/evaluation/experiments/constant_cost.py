"""Whether a token far into a text costs what one near its start does, under Λ (002 §4: constant time and memory).

    python -m backend evaluate constant_cost

A text is read to each length, each time with a cache of its own, then read and written on by turns with all of them, so
that a machine that slows down slows all.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from pydantic import Field

from backend.evaluation.bench.throughput import OLDER, current, times
from backend.evaluation.bench.timing import WARM, Reader
from backend.evaluation.bench.ways import context_tokens, window_case
from backend.evaluation.card import Card
from backend.evaluation.experiment import Case, Experiment, Flags, Plan, Result, Results, Row, Say
from backend.evaluation.markdown import estimate, figure, table
from backend.inference.chunks import CHUNK
from backend.inference.model_runner import Runner
from backend.measures.bootstrap import Bounded
from backend.models.pool import Models
from backend.record.provenance import clock

WRITTEN = 64
# The window of the headline.
SHOWN = 2048


def rows(
    runner: Runner,
    text: torch.Tensor,
    window: int,
    contexts: Sequence[int],
    rounds: int,
    report: Say,
) -> Iterator[dict[str, Any]]:
    """One row for each of `contexts` tokens of text [n].

    reading, writing: milliseconds of a token, by round. cache: bytes of keys and values when all is done.
    """
    readers = [_reader(runner, text[:length], window, report) for length in contexts]
    reading: list[list[float]] = [[] for _ in contexts]
    writing: list[list[float]] = [[] for _ in contexts]
    for number in range(rounds):
        for place in range(len(contexts))[:: -1 if number % 2 else 1]:
            reading[place].append(_timed(partial(readers[place].read, text[:CHUNK]), CHUNK))
            readers[place].write(WARM)
            writing[place].append(_timed(partial(readers[place].write, WRITTEN), WRITTEN))
    for place, length in enumerate(contexts):
        yield {
            "window": window,
            "context": length,
            "reading": reading[place],
            "writing": writing[place],
            "cache": readers[place].held(),
        }


def _reader(runner: Runner, ids: torch.Tensor, window: int, report: Say) -> Reader:
    reader = window_case(runner, window).make()[""]
    reader.read(ids)
    report(f"window {window:,}: {len(ids):,} tokens read")
    return reader


def _timed(work: Callable[[], None], tokens: int) -> float:
    """Milliseconds of a token."""
    started = clock()
    work()
    return 1000 * (clock() - started) / tokens


class ConstantCost(Experiment):
    name = "constant_cost"
    title = "Time for a token far into a long text"
    question = "Does a token far into a text cost what one near its start does, under Λ?"
    paper = "002 §4"
    order = 50
    files = ("flatness.json",)

    class Options(Flags):
        contexts: tuple[int, ...] = Field((4096, 8192, 32768, 131072), description="tokens read before")
        windows: tuple[int, ...] = Field((1024, 2048, 4096), description="Λ windows")
        rounds: int = Field(12, ge=1, description="of reading and writing")

    def plan(self, options: Options, say: Say) -> Plan:
        models = Models(["embedded"])
        text, runner = context_tokens(models), Runner(models.load("embedded", "bf16"))

        def measured(window: int) -> Iterator[Row]:
            for row in rows(runner, text, window, sorted(options.contexts), options.rounds, say):
                found = ", ".join(f"{way} {statistics.median(row[way]):.2f}" for way in ("reading", "writing"))
                say(f"window {window:,}, {row['context']:,} tokens: {found} ms a token")
                yield row

        common = {"rounds": options.rounds, "written": WRITTEN, "read": CHUNK}
        return Plan(common, [Case(window, partial(measured, window)) for window in options.windows])

    def card(self, results: Results) -> Card:
        (result,) = results.values()
        first = {row["window"]: row for row in reversed(result["rows"])}
        rows = [
            [
                f"{row['window']:,}", f"{row['context']:,}",
                *(cell for way in ("reading", "writing") for cell in _cost(row, first[row["window"]], way)),
                f"{row['cache'] / 2**20:.1f} MiB",
            ]
            for row in result["rows"]
        ]  # fmt: skip
        columns = [
            "window", "tokens before", "prefill, ms a token", "over the first", "decode, ms a token",
            "over the first", "cache",
        ]  # fmt: skip
        words = "Λ, all lengths by turns; medians over rounds."
        shown = "\n\n".join([*([] if current(result) else [OLDER]), words, table(columns, rows)])
        return Card(shown, headlines=list(_headlines(result)))


def _headlines(result: Result) -> Iterator[tuple[str, str]]:
    contexts = [row["context"] for row in result["rows"] if row["window"] == SHOWN]
    if current(result) and contexts:
        far = max(contexts)
        ways = {"prefill": "reading", "decode": "writing"}
        ratios = (f"{name} {estimate(*over_first(result, SHOWN, far, way), 'rounds')}" for name, way in ways.items())
        yield f"Time of a Λ token after {far:,} tokens over after 4,096", ", ".join(ratios)


def over_first(result: Result, window: int, context: int, way: str) -> tuple[Bounded, int]:
    """How many times as long a token takes as after the shortest context, and over how many rounds."""
    rows = {row["context"]: row for row in result["rows"] if row["window"] == window}
    return times(rows[context][way], rows[min(rows)][way])


def _cost(row: Result, first: Result, way: str) -> tuple[str, str]:
    if row is first:
        return figure(statistics.median(row[way])), "1"
    found, count = times(row[way], first[way])
    return figure(statistics.median(row[way])), estimate(found, count, "rounds")
