"""What a live chart is, and the chart that it draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import orjson

from app.charts.palette import PALETTES, resolve
from app.frames import PERIOD
from app.series import RunSeries

Tab = Literal["try", "generate", "compare", "long"]
# The period of what is dear to draw.
SLOW = 12 * PERIOD


@dataclass
class Chart:
    """data, layout: Plotly's, with colour names. summary: one or two sentences. columns, rows: the same as a table.
    written: the places of columns that hold what people and models write."""

    data: list[dict[str, Any]]
    layout: dict[str, Any]
    summary: str
    columns: tuple[str, ...] = ()
    rows: list[list[Any]] = field(default_factory=list)
    written: tuple[int, ...] = ()


class LiveChart(ABC):
    """A chart of runs. A file of this folder that defines one shows it on the tabs that it names.

    name: a word for its element on the page and for saved files. title: its heading. tabs: where it is shown, with the
    hint under the heading there. order: its place among the charts of a tab. period: seconds that pass between two
    drawings of a run that is written, at least. preview: whether it shows settings before anything
    runs; not on Read far. seldom: whether it is out of sight while it has nothing to show.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    tabs: ClassVar[Mapping[Tab, str]]
    order: ClassVar[int] = 0
    period: ClassVar[float] = 0
    preview: ClassVar[bool] = False
    seldom: ClassVar[bool] = False

    @abstractmethod
    def draw(self, runs: Sequence[RunSeries]) -> Chart:
        """The chart of one run without a name, or of several with one each, of which any may have no step yet."""

    def follows(self, run: RunSeries) -> bool:
        """Whether it shows the one run of a tab while that is written, or stays with the settings of the form."""
        return not self.preview


def alone(runs: Sequence[RunSeries]) -> RunSeries | None:
    """The run that is drawn by itself, in detail; None where runs are drawn together."""
    return runs[0] if len(runs) == 1 and not runs[0].name else None


def of_texts(runs: Sequence[RunSeries]) -> bool:
    """Whether the runs read texts rather than write responses."""
    return any(run.to_read for run in runs)


def encode(chart: Chart, run: int | str = 0, frame: int = 0) -> str:
    """JSON for the page. A change of `run` lets the page forget the reader's zoom; `frame` counts within a run."""
    payload = {
        "run": str(run),
        "frame": frame,
        "data": chart.data,
        "layout": _with_origin(chart),
        "summary": chart.summary,
        "columns": chart.columns,
        "rows": chart.rows,
        "written": chart.written,
    }
    return orjson.dumps(payload, default=np.ndarray.tolist, option=orjson.OPT_SERIALIZE_NUMPY).decode()


def _with_origin(chart: Chart) -> dict[str, Any]:
    """The layout; x begins at 0 where all points have one x, which by itself would be shown from half a token before it
    to half a token after."""
    axis = chart.layout.get("xaxis", {})
    found = {float(x) for trace in chart.data for x in trace.get("x", ()) if isinstance(x, int | float | np.number)}
    if len(found) != 1 or not {"range", "autorangeoptions"}.isdisjoint(axis) or axis.get("type", "linear") != "linear":
        return chart.layout
    return chart.layout | {"xaxis": axis | {"autorangeoptions": {"include": [0]}}}


def figure(chart: Chart, theme: str = "light") -> Any:
    """A plotly.graph_objects.Figure of the chart, for notebooks and files."""
    import plotly.graph_objects as go

    colours = PALETTES[theme]
    return go.Figure(resolve(chart.data, theme), resolve(chart.layout, theme)).update_layout(
        paper_bgcolor=colours["paper"], plot_bgcolor=colours["paper"], font_color=colours["ink"]
    )
