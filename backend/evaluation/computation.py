"""How fluent Λ and truncation leave a model for the same computation, far into a text (002 fig. 4).

    python -m backend evaluate computation --data FOLDER

Writes assets/results/computation.json and goes on where an earlier run stopped, a reading at a time. 002 compares BLEU,
which on the embedded model does not tell even a broken attention from a whole one (assets/results/recall.json): here it
is perplexity. Of each text the tokens from FIRST to STOP are measured, past the model's training length. Λ reads
everything before them once. Truncation forgets, and reads anew what a window holds, each time that a STRIDE of it was
added; its tokens then see a window before them on average.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from torch import Tensor

from backend.engine import Lab
from backend.evaluation.perplexity import Chunk, read, read_truncated, tokenise, truncation_start
from backend.evaluation.speed import read_operations
from backend.inference.model_runner import Runner
from backend.measures.bootstrap import Bounded, bounded
from backend.record.provenance import provenance
from backend.record.results import counted
from backend.refused import Refused
from backend.settings import RunSettings

FIRST, STOP = 8192, 12288
WINDOWS = (256, 512, 1024, 2048, 4096)
LAMBDA = "Λ"
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


def earlier(found: dict[str, Any], model: str) -> dict[str, Any]:
    """A result to go on from, checked. ValueError for one that cannot be gone on from."""
    try:
        _ = [(row["attention"], row["window"], row["document"], row["nats"]) for row in found["rows"]]
        measured_on = found["model"]
    except (KeyError, TypeError) as error:
        raise Refused("it is no result of this command") from error
    if measured_on != model:
        raise Refused(f"it was measured on {measured_on}")
    return found


def evaluate(
    lab: Lab,
    model: str,
    texts: Mapping[str, str],
    windows: Sequence[int],
    before: Mapping[str, Any] | None = None,
    report: Callable[[str], None] = print,
    first: int = FIRST,
    stop: int = STOP,
) -> Iterator[dict[str, Any]]:
    """The result document after each reading, the last one whole. before: a document to go on from."""
    runner = lab.runner(RunSettings(prompt="-", model=model))
    rows: list[dict[str, Any]] = list(before["rows"]) if before else []
    done = {(row["attention"], row["window"], row["document"]) for row in rows}
    head = provenance(seed=0, before=before) | {"model": model, "first": first, "stop": stop}
    for name, text in texts.items():
        ids = tokenise(lab, text, RunSettings(prompt="-", model=model), stop)
        if len(ids) < stop:
            report(f"{name} has {len(ids):,} tokens: left out")
            continue
        for window in windows:
            for attention in ATTENTIONS:
                if (attention, window, name) in done:
                    continue
                found = round(nats(lab, model, ids, attention, window, first), 4)
                cost = operations(attention, window, runner, first, stop)
                row = {"attention": attention, "window": window, "document": name, "nats": found, "operations": cost}
                rows.append(row)
                report(f"{name} {attention}, {window:,}: {found:.3f} nats, {cost / 1e9:.3f} G a token")
                yield head | {"rows": rows}
    count = len({row["document"] for row in rows} & texts.keys())
    report(counted("every window", "texts", len(texts), count, f"shorter than {stop:,} tokens"))


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
