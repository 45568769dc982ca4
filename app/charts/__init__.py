"""The live charts, one a file of this folder: pure functions from runs to Plotly data and layout, words and a table."""

from collections.abc import Sequence

from app.charts.base import LiveChart, Tab, encode
from app.series import RunSeries
from backend.registry import Registry

live_charts: Registry[LiveChart] = Registry(__name__, LiveChart)
# What stands before a chart's name where it is shown on a tab.
PREFIXES: dict[Tab, str] = {"try": "t-", "generate": "", "compare": "c-", "long": "l-"}


def shown(tab: Tab) -> list[LiveChart]:
    """The charts of a tab, in order."""
    return [chart for chart in live_charts if tab in chart.tabs]


def previews(tab: Tab, runs: Sequence[RunSeries]) -> list[str]:
    """The charts of a tab that show settings before anything runs, encoded: those of the runs."""
    return [encode(chart.draw(runs)) for chart in shown(tab) if chart.preview]


def parts(tab: Tab, runs: Sequence[RunSeries], frame: int = 0) -> dict[str, str]:
    """The other charts of a tab, encoded, by name."""
    return {
        PREFIXES[tab] + chart.name: encode(chart.draw(runs), runs[0].run, frame)
        for chart in shown(tab)
        if not chart.preview
    }
