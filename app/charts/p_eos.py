"""The chance that the next token ends the response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from app.charts import drawing
from app.charts.base import Chart, LiveChart
from app.series import RunSeries, pick, sample

# A logarithmic axis of probabilities.
CHANCES: dict[str, Any] = {
    "type": "log",
    "range": [-8, 0.3],
    "tickvals": [1e-8, 1e-4, 1],
    "ticktext": ["10⁻⁸", "10⁻⁴", "1"],
}


class EosProbability(LiveChart):
    """p(EOS) at each token, on a logarithmic axis."""

    name = "p_eos"
    title = "Chance to end"
    tabs = {
        "try": "Probability that the next token ends the answer",
        "compare": "Probability that the next token ends the response",
    }
    order = 20

    def draw(self, runs: Sequence[RunSeries]) -> Chart:
        layout = drawing.axes("tokens generated", "p(end)")
        layout["yaxis"] |= CHANCES
        data, rows = drawing.overlaid(runs, _line)
        return drawing.together(
            runs, layout, data, rows, ("highest p(end)", "at token"),
            lambda name, peak, at: f"{name} at most {peak:.2g}, at token {at:,}",
        )  # fmt: skip


def _line(colour: str, run: RunSeries) -> drawing.Drawn | None:
    if not run.p_eos:
        return None
    at = sample(len(run.p_eos), drawing.FEWER)
    y = pick(run.p_eos, at).astype(np.float32)
    row = [run.label, drawing.cell(max(run.p_eos)), int(np.argmax(run.p_eos)) + 1]
    return [drawing.line(at + 1, y, colour, run.name, width=1.6, hover="%{y:.2~g}")], row
