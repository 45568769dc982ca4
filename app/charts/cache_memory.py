"""What the key/value cache takes."""

from __future__ import annotations

from collections.abc import Sequence

from app.charts import drawing
from app.charts.base import Chart, LiveChart
from app.series import RunSeries


class CacheMemory(LiveChart):
    """Memory of the key/value cache in MiB, chunk by chunk."""

    name = "cache_memory"
    title = "Memory"
    tabs = {"long": "Size of the key/value cache"}
    order = 80

    def draw(self, runs: Sequence[RunSeries]) -> Chart:
        return drawing.by_chunk(
            runs, lambda run: [size / 2**20 for size in run.cache_bytes], "MiB", "MiB of cache at the end"
        )
