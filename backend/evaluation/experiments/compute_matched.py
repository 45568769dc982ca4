"""How fluent Λ and truncation leave a model for the same computation, far into a text (002 fig. 4).

    python -m backend evaluate compute_matched --data FOLDER

002 compares BLEU, which on the embedded model does not tell even a broken attention from a whole one
(assets/results/continuation.json): here it is perplexity. Of each text the tokens from FIRST to STOP are measured, past
the model's training length. Λ reads everything before them once. Truncation forgets, and reads anew what a window
holds, each time that a STRIDE of it was added; its tokens then see a window before them on average.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import exp
from statistics import fmean
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from torch import Tensor

from backend.engine import Lab
from backend.evaluation.bench.timing import read_operations
from backend.evaluation.card import Axis, Card, Curve, Figure
from backend.evaluation.experiment import Case, Experiment, Plan, Result, Results, Row, Say
from backend.evaluation.markdown import decimal, estimate, figure, table
from backend.evaluation.perplexity import Chunk, read, read_truncated, truncation_start
from backend.evaluation.texts import LAMBDA, TextFlags
from backend.inference.model_runner import Runner
from backend.measures.bootstrap import Bounded, bounded
from backend.record.results import counted
from backend.refused import Refused
from backend.settings import RunSettings

FIRST, STOP = 8192, 12288
WINDOWS = (256, 512, 1024, 2048, 4096)
# The window of the headline.
SHOWN = 2048
# Share of a window that is added before truncation reads anew: the rarer, the cheaper and the more uneven its contexts.
STRIDES = {"truncation, read anew each window": 1.0, "truncation, read anew each quarter": 0.25}
ATTENTIONS = (LAMBDA, *STRIDES)
# Operations a token and nats, by attention and window.
Curves = dict[str, dict[int, tuple[float, float]]]


def operations(attention: str, window: int, runner: Runner, first: int, stop: int) -> float:
    """Additions and multiplications for each token from `first` to `stop`, and for what is read anew before it; the
    head's are left out."""

    def whole(tokens: int, most: int | None) -> float:
        return read_operations(most, tokens, runner) * tokens if tokens else 0.0

    if attention == LAMBDA:
        most = window + RunSettings(prompt="-", window=window).sinks
        return (whole(stop, most) - whole(first, most)) / (stop - first)
    stride = _stride(attention, window)
    pieces = [
        min(begin + stride, stop) - truncation_start(begin, stride, window) for begin in range(first, stop, stride)
    ]
    return sum(whole(piece, None) for piece in pieces) / (stop - first)


def nats(lab: Lab, model: str, ids: Tensor, attention: str, window: int, first: int) -> float:
    """Mean nats of the tokens of ids [n] from `first` on."""
    if attention == LAMBDA:
        chunks = read(lab, ids, RunSettings(prompt="-", model=model, window=window))
    else:
        plain = RunSettings(prompt="-", model=model)
        chunks = read_truncated(lab, ids, plain, window, chunk=_stride(attention, window), first=first)
    return float(np.concatenate([_from(chunk, first) for chunk in chunks]).mean())


def _from(chunk: Chunk, first: int) -> np.ndarray:
    """The nats of a chunk's tokens from `first` on."""
    return chunk.nll[max(0, len(chunk.nll) - max(0, chunk.position - first)) :]


def _stride(attention: str, window: int) -> int:
    return int(window * STRIDES[attention])


class ComputeMatched(Experiment):
    name = "compute_matched"
    title = "Work a Λ window saves over cutting the text off"
    question = "How much computation does truncation take for the perplexity that a Λ window leaves?"
    paper = "002 figure 4"
    order = 40
    files = ("computation.json",)
    key = ("attention", "window", "document")
    recipe = ("backend evaluate compute_matched --data {data}/novels {more}",)

    class Options(TextFlags):
        windows: tuple[Annotated[int, Field(ge=4, le=STOP)], ...] = Field(WINDOWS, description="tokens of context")

    def plan(self, options: Options, say: Say, first: int = FIRST, stop: int = STOP) -> Plan:
        lab = options.lab()
        ids = options.ids(lab, stop)
        long = {name: mine for name, mine in ids.items() if len(mine) == stop}
        say(counted("every window", "texts", len(ids), len(long), f"shorter than {stop:,} tokens"))
        if not long:
            raise Refused(f"nothing to measure: give texts of at least {stop:,} tokens")
        runner = lab.runner(RunSettings(prompt="-", model=options.model))

        def measured(attention: str, window: int, name: str) -> Iterator[Row]:
            found = round(nats(lab, options.model, long[name], attention, window, first), 4)
            cost = operations(attention, window, runner, first, stop)
            say(f"{name} {attention}, {window:,}: {found:.3f} nats, {cost / 1e9:.3f} G a token")
            yield {"attention": attention, "window": window, "document": name, "nats": found, "operations": cost}

        keys = [(attention, window, name) for name in long for window in options.windows for attention in ATTENTIONS]
        common = {"model": options.model, "first": first, "stop": stop}
        return Plan(common, [Case(key, partial(measured, *key)) for key in keys])

    def card(self, results: Results) -> Card:
        (result,) = results.values()
        read, saved = whole(result["rows"]), spared(result["rows"])
        texts, found = len({row["document"] for row in read}), curves(read)
        rows = [
            [name, f"{window:,}", decimal(cost / 1e9), figure(exp(nats))]
            for name, points in found.items()
            for window, (cost, nats) in points.items()
        ]
        times = [[f"{window:,}", estimate(each, texts, "texts")] for window, each in saved.items()]
        words = [
            f"Tokens {result['first']:,} to {result['stop']:,} of {texts} novels (002 figure 4, which has BLEU).",
            table(["attention", "window", "billions of operations a token", "perplexity"], rows),
            "Operations that truncation, at its cheapest, takes for Λ's perplexity, over Λ's own; – where truncation "
            "does not come to it in every draw of texts:",
            table(["Λ's window", "times Λ's operations"], times),
        ]
        what = f"Truncation's operations for the perplexity of a Λ window of {SHOWN:,}, over Λ's"
        headlines = [(what, estimate(saved[SHOWN], texts, "novels"))] if SHOWN in saved else []
        return Card("\n\n".join(words), [_figure(result, found, texts)], headlines)


def _figure(result: Result, found: Curves, texts: int) -> Figure:
    drawn = [
        Curve(
            name, [round(cost / 1e9, 4) for cost, _ in points.values()],
            [round(exp(nats), 2) for _, nats in points.values()], "lines+markers",
        )
        for name, points in found.items()
    ]  # fmt: skip
    return Figure(
        "Perplexity by computation (002 figure 4)",
        "A point a window; truncation reads anew what its window holds",
        Axis("billions of operations a token", log=True, ticks={n: f"{n:g}" for n in (0.25, 0.5, 1, 2)}),
        Axis("perplexity"),
        drawn,
        f"Tokens {result['first']:,} to {result['stop']:,} of {texts} texts; intervals stand in the table.",
        ("attention", "window", "billions of operations a token", "perplexity"),
        [
            [curve.name, f"{window:,}", figure(x), figure(y)]
            for curve in drawn
            for window, x, y in zip(found[curve.name], curve.x, curve.y, strict=True)
        ],
    )


def whole(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of the texts that were read in every way."""
    ways = {(row["attention"], row["window"]) for row in rows}
    count = Counter(row["document"] for row in rows)
    return [row for row in rows if count[row["document"]] == len(ways)]


def curves(rows: Sequence[Mapping[str, Any]]) -> Curves:
    """Operations and nats by attention and window, means over the texts; Λ first."""
    cells: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["attention"], row["window"]), []).append(row)
    found: Curves = {}
    for (attention, window), mine in sorted(cells.items(), key=lambda cell: (cell[0][0] != LAMBDA, cell[0])):
        means = fmean(row["operations"] for row in mine), fmean(row["nats"] for row in mine)
        found.setdefault(attention, {})[window] = means
    return found


def spared(rows: Sequence[Mapping[str, Any]]) -> dict[int, Bounded]:
    """By window of Λ, how many times Λ's operations truncation takes at its cheapest for the same perplexity, with
    bounds over texts."""
    read = whole(rows)
    texts = sorted({row["document"] for row in read})
    by_text = {text: [row for row in read if row["document"] == text] for text in texts}

    def price_of(window: int) -> Callable[[Any], float]:
        return lambda drawn: _times(curves([row for i in drawn for row in by_text[texts[int(i)]]]), window)

    return {
        window: bounded(price_of(window), range(len(texts)), vectorized=False)
        for window in curves(read).get(LAMBDA, {})
    }


def _times(found: Curves, window: int) -> float:
    cost, wanted = found[LAMBDA][window]
    prices = [price for name, points in found.items() if name != LAMBDA and (price := _price(points, wanted))]
    return min(prices) / cost if prices else float("nan")


def _price(points: Mapping[int, tuple[float, float]], wanted: float) -> float | None:
    """Operations at which a curve comes to some nats, between its points; None beyond them."""
    cost, found = np.array(list(points.values())).T
    if not found.min() <= wanted <= found.max():
        return None
    order = np.argsort(found)
    return float(np.interp(wanted, found[order], cost[order]))
