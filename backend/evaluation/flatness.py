"""Whether a token far into a text costs what one near its start does, under Λ (002 §4: constant time and memory).

`python -m backend.evaluation.flatness` reads a text to each length, each time with a cache of its own, then reads and
writes by turns with all of them, so that a machine that slows down slows all. Writes assets/results/flatness.json.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from backend.evaluation.speed import WARM, Reader, context_tokens, window_case
from backend.inference.chunks import CHUNK
from backend.inference.model_runner import Runner
from backend.models.pool import Models
from backend.record.provenance import clock, provenance
from backend.record.results import RESULTS, keep, writable
from backend.terminal import say

OUT = RESULTS / "flatness.json"
CONTEXTS = (4096, 8192, 32768, 131072)
WINDOWS = (1024, 2048, 4096)
ROUNDS, WRITTEN = 12, 64


def rows(
    runner: Runner,
    text: torch.Tensor,
    window: int,
    contexts: Sequence[int],
    rounds: int,
    report: Callable[[str], None] = say,
) -> Iterator[dict[str, Any]]:
    """One row for each of `contexts` tokens of text [n].

    reading, writing: milliseconds of a token, by round. over: medians over rounds of their ratios to the shortest
    context's. cache: bytes of keys and values when all is done.
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
            "reading_over": _over(reading[place], reading[0]),
            "writing_over": _over(writing[place], writing[0]),
            "cache": readers[place].held(),
        }


def _reader(runner: Runner, ids: torch.Tensor, window: int, report: Callable[[str], None]) -> Reader:
    reader = window_case(runner, window).make()[""]
    reader.read(ids)
    report(f"window {window:,}: {len(ids):,} tokens read")
    return reader


def _timed(work: Callable[[], None], tokens: int) -> float:
    """Milliseconds of a token."""
    started = clock()
    work()
    return 1000 * (clock() - started) / tokens


def _over(mine: Sequence[float], first: Sequence[float]) -> float:
    return statistics.median(one / other for one, other in zip(mine, first, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m backend.evaluation.flatness", description=__doc__)
    parser.add_argument("--contexts", type=int, nargs="+", default=CONTEXTS, help="tokens read before (4096 … 131072)")
    parser.add_argument("--windows", type=int, nargs="+", default=WINDOWS, help="Λ windows (1024 2048 4096)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of reading and writing ({ROUNDS})")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    writable(given.out)
    models = Models(["embedded"])
    text, runner = context_tokens(models), Runner(models.load("embedded", "bf16"))
    result = provenance(seed=0) | {"rounds": given.rounds, "written": WRITTEN, "read": CHUNK, "rows": []}
    for window in given.windows:
        for row in rows(runner, text, window, sorted(given.contexts), given.rounds):
            result["rows"].append(row)
            times = f"reading {row['reading_over']:.3f}, writing {row['writing_over']:.3f} times the first"
            say(f"window {window:,}, {row['context']:,} tokens: {times}")
        keep(given.out, result)


if __name__ == "__main__":
    main()
