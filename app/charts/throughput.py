"""How fast a text is read."""

from __future__ import annotations

from collections.abc import Sequence

from app.charts import drawing
from app.charts.base import Chart, LiveChart
from app.series import RunSeries


class Throughput(LiveChart):
    """Tokens read a second, chunk by chunk."""

    name = "throughput"
    title = "Speed"
    tabs = {"long": "Tokens read per second"}
    order = 70

    def draw(self, runs: Sequence[RunSeries]) -> Chart:
        return drawing.by_chunk(runs, lambda run: run.throughput, "tokens/s", "tokens a second at the end")
