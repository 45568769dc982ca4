"""Where a model with an encoder looks in its source while it writes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from app.charts import drawing
from app.charts.base import Chart, LiveChart
from app.series import RunSeries, stretches

# Words of the source that have a row, and the longest part of one that is shown.
ROWS, LONGEST = 16, 18
# Tokens up to which each is named below the chart.
NAMED = 64


class CrossAttention(LiveChart):
    """Attention of each written token (across) to the words of the source (down) that it looks at most."""

    name = "cross_attention"
    title = "Where it looks"
    tabs = {"generate": "Attention to the source's words as each token is chosen, mean over layers and heads"}
    order = 45
    seldom = True

    def draw(self, runs: Sequence[RunSeries]) -> Chart:
        run = runs[0]
        layout = drawing.axes("written", "")
        columns = ("word", "share of all attention", "looked at most for")
        if not run.looked:
            return drawing.empty(layout, "appears when the model has written", "No source was looked at.", columns)
        words, shares = by_word(run)
        mean = shares.mean(axis=1)
        shown = np.sort(np.argsort(-mean, kind="stable")[:ROWS])
        names = [_escaped(words[row].strip()) for row in shown]
        tokens, shares, texts = _stretches(shares, run.text)
        written = [_escaped(text) for text in texts]
        layout["hovermode"] = "closest"
        layout["margin"]["l"] = 110
        layout["yaxis"] |= {"autorange": "reversed", "showgrid": False, "nticks": ROWS}
        layout["yaxis"] |= {"tickvals": list(range(len(shown))), "ticktext": names}
        layout["xaxis"]["showgrid"] = False
        if len(tokens) <= NAMED:
            layout["xaxis"] |= {"tickvals": tokens, "ticktext": written, "tickangle": 0}
        heat = {
            "type": "heatmap",
            "x": tokens,
            "y": list(range(len(shown))),
            "z": drawing.rounded(shares[shown], 3),
            "customdata": [[[name, text] for text in written] for name in names],
            "colorscale": [[0, "@none"], [1, "@c1"]],
            "zmin": 0,
            "colorbar": drawing.colour_bar("share"),
            "hovertemplate": "“%{customdata[1]}” looks at “%{customdata[0]}”: %{z:.0%}<extra></extra>",
        }
        first = sorted(shown, key=lambda row: -mean[row])[:3]
        most = ", ".join(f"“{words[row].strip()}” ({mean[row]:.0%})" for row in first)
        summary = f"It looks most at {most}; the {len(shown)} words shown get {mean[shown].sum():.0%} of its attention."
        rows = [[words[row].strip(), drawing.cell(mean[row]), texts[int(shares[row].argmax())]] for row in shown]
        return Chart([heat], layout, summary, columns, rows, written=(0, 2))


def by_word(run: RunSeries) -> tuple[list[str], np.ndarray]:
    """The words of the source, of which a token that begins with a space begins one, and the shares [words, tokens]."""
    begins = np.array([not place or piece[:1].isspace() for place, piece in enumerate(run.source)])
    starts = np.flatnonzero(begins)
    ends = [*starts[1:].tolist(), len(begins)]
    words = ["".join(run.source[a:b]) for a, b in zip(starts.tolist(), ends, strict=True)]
    return words, np.add.reduceat(np.array(run.looked), starts, axis=1).T


def _stretches(shares: np.ndarray, text: Sequence[str]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """The last token of each stretch of a long response, counted from 1, the means [words, stretches] of its shares,
    and its text; of a short one each token is a stretch."""
    starts, ends = stretches(shares.shape[1], drawing.FEWER)
    means = np.add.reduceat(shares, starts, axis=1) / (ends - starts)
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    return ends, means, [_short("".join(text[a:b])) for a, b in spans]


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _escaped(text: str) -> str:
    return escape(_short(text), quote=False)
