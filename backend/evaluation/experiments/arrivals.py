"""How many replicas so many visitors need: measured speeds, simulated arrivals.

    python -m backend evaluate arrivals

An engine on one thread is timed with 1 to 48 rows; then visitors who ask, read the answer and ask again are let loose
on so many of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import torch
from pydantic import Field

from backend.engine import Lab
from backend.evaluation.card import Card
from backend.evaluation.experiment import Experiment, Flags, Result, Results, Say
from backend.evaluation.experiments.visitors import runs
from backend.evaluation.markdown import figure, table
from backend.models.pool import Models
from backend.settings import RunSettings
from backend.steps import Step

# Rows at once that are timed; the last is the most that a replica writes.
ROWS = (1, 2, 4, 8, 16, 32, 48)
STEP = 0.1


class Arrivals(Experiment):
    name = "arrivals"
    title = "Replicas for so many visitors"
    question = "How many replicas does a hall of visitors need so that none waits?"
    order = 57
    files = ("arrivals.json",)
    rows = "simulated"

    class Options(Flags):
        written: int = Field(100, ge=1, description="tokens of a run")
        reads: float = Field(50.0, gt=0, description="seconds until a visitor asks again, in the mean")
        minutes: float = Field(30.0, gt=0, description="simulated; the first third is not counted")
        visitors: tuple[int, ...] = Field((30, 100, 300, 1000), description="that are there")
        replicas: tuple[int, ...] = Field((1, 2, 4, 8, 16, 32, 64), description="of one processor each")
        seed: int = Field(0, ge=0, description="of the arrivals")

    def measure(self, options: Options, before: Result | None, say: Say) -> Iterator[dict[str, Any]]:
        speeds, first = _speeds(options.written, say)
        result: dict[str, Any] = {
            "written": options.written, "reads": options.reads, "rows": ROWS, "speeds": speeds, "first": first,
            "simulated": [],
        }  # fmt: skip
        for visitors, replicas in product(options.visitors, options.replicas):
            waits, rates = simulated(visitors, replicas, speeds, first, options)
            row = {
                "visitors": visitors, "replicas": replicas, "runs": len(waits),
                "wait_median": float(np.median(waits)), "wait_95": float(np.quantile(waits, 0.95)),
                "rate_median": float(np.median(rates)),
            }  # fmt: skip
            say(f"{row}")
            result["simulated"].append(row)
            yield result

    def card(self, results: Results) -> Card:
        (result,) = results.values()
        found = {(row["visitors"], row["replicas"]): row for row in result["simulated"]}
        visitors, replicas = (sorted({row[name] for row in result["simulated"]}) for name in ("visitors", "replicas"))
        lines = [
            [f"{count:,}", *(_cell(found.get((count, engines))) for engines in replicas)] for count in visitors
        ]
        speeds = ", ".join(
            f"{rows}: {speed:.0f}" for rows, speed in zip(result["rows"], result["speeds"], strict=True)
        )
        words = (
            f"Tokens per second of one engine on one thread by the runs that it writes at once ({speeds}), measured; "
            f"visitors simulated, each of whom asks for {result['written']} tokens, reads {result['reads']:.0f} s in "
            "the mean (exponential) and asks again, at the replica with the fewest runs. A cell has the 95th "
            "percentile of the seconds until the first token, and the tokens per second that a visitor sees (median)."
        )
        return Card(f"{words}\n\n{table(['visitors', *(f'{engines} replicas' for engines in replicas)], lines)}")


def _cell(row: dict[str, Any] | None) -> str:
    return "" if row is None else f"{figure(row['wait_95'])} s, {figure(row['rate_median'])}/s"


def _speeds(written: int, say: Say) -> tuple[list[float], float]:
    """Tokens per second of so many rows at once, and seconds until a lone run's first token."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        lab = Lab(Models(["embedded"]))
        asked = runs(ROWS[-1], written)
        for settings in asked[:6]:
            _decoded(lab, settings.model_copy(update={"max_new_tokens": 2}))
        speeds = []
        for rows in ROWS:
            with ThreadPoolExecutor(rows) as pool:
                found = list(pool.map(lambda settings: _decoded(lab, settings), asked[:rows]))
            # While all write: from when the last has its first token until the first one ends.
            begun, ended = max(times[0] for times in found), min(times[-1] for times in found)
            together = sum(sum(begun < when <= ended for when in times) for times in found)
            speeds.append(together / (ended - begun))
            say(f"{rows} rows: {speeds[-1]:.1f} tokens per second")
        started = time.perf_counter()
        first = _decoded(lab, asked[0])[0] - started
        return speeds, first
    finally:
        torch.set_num_threads(threads)


def _decoded(lab: Lab, settings: RunSettings) -> list[float]:
    """When each token came."""
    return [time.perf_counter() for event in lab.stream(settings) if isinstance(event, Step)]


def simulated(
    visitors: int, replicas: int, speeds: Sequence[float], first: float, options: Arrivals.Options
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds until the first token, and tokens per second after it, of each run that ended.

    Runs of a replica share its speed, which depends on their number; a prompt costs what a lone one takes at the speed
    of one row. What finds all rows of the least busy replica taken waits.
    """
    drawn = np.random.default_rng(options.seed)
    most, lone = ROWS[-1], speeds[0]
    rate = np.concatenate([[0.0], np.interp(np.arange(1, most + 1), ROWS, speeds)])
    asks = drawn.exponential(options.reads, visitors)
    place = np.full(visitors, -1)
    asked, begun = np.zeros(visitors), np.full(visitors, np.nan)
    prompt, left = np.zeros(visitors), np.zeros(visitors)
    waiting: list[int] = []
    waits, rates = [], []
    for now in np.arange(0.0, 60 * options.minutes, STEP):
        for one in np.flatnonzero(asks <= now):
            asked[one], asks[one] = now, np.inf
            waiting.append(int(one))
        rows = np.bincount(place[place >= 0], minlength=replicas)
        while waiting and rows.min() < most:
            chosen, least = waiting.pop(0), int(rows.argmin())
            place[chosen], prompt[chosen], left[chosen], begun[chosen] = least, first * lone, options.written, np.nan
            rows[least] += 1
        writing = np.flatnonzero(place >= 0)
        work = STEP * rate[rows[place[writing]]] / np.maximum(1, rows[place[writing]])
        read = np.minimum(prompt[writing], work)
        prompt[writing] -= read
        left[writing] -= work - read
        begins = writing[(prompt[writing] <= 0) & np.isnan(begun[writing])]
        begun[begins] = now + STEP
        for ended in writing[left[writing] <= 0]:
            if now > 20 * options.minutes:
                waits.append(begun[ended] - asked[ended])
                rates.append(options.written / max(STEP, now + STEP - begun[ended]))
            place[ended], asks[ended] = -1, now + drawn.exponential(options.reads)
    return np.array(waits or [np.inf]), np.array(rates or [0.0])
