"""How much a text surprises the model, by position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.charts import drawing
from app.charts.base import Chart, LiveChart
from app.series import RunSeries


class LogLikelihood(LiveChart):
    """Negative log-likelihood, averaged over stretches of tokens, against position."""

    name = "loglikelihood"
    title = "Surprise per token"
    tabs = {"long": "How little the model expected each word, in nats, by position. Lower is better."}
    order = 30

    def draw(self, runs: Sequence[RunSeries]) -> Chart:
        layout = drawing.axes("position in the text", "nats per token")
        data, rows = drawing.overlaid(runs, _stretches)
        trained = runs[0].training_length if runs else None
        if trained and data and max(run.read for run in runs) > trained * 0.8:
            drawing.mark_x(layout, trained, "@muted", f"trained {trained:,}")
        columns = ("tokens", "nats per token", "perplexity")
        return drawing.together(runs, layout, data, rows, columns, _words)


def _stretches(colour: str, run: RunSeries) -> drawing.Drawn | None:
    if not run.nll:
        return None
    values = np.concatenate(run.nll)
    width = max(1, int(np.ceil(len(values) / drawing.FEWER)))
    starts = np.arange(0, len(values), width)
    means = np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values)))
    row = [run.name, run.read, drawing.cell(values.mean()), drawing.cell(run.perplexity)]
    return [drawing.line(starts + width // 2, drawing.rounded(means, 3), colour, run.name)], row


def _words(name: str, tokens: int, _: float, perplexity: float) -> str:
    return f"{name}: perplexity {perplexity:,.4g} over {tokens:,} tokens"
