"""Several runs on shared axes: the charts of the Compare tab, pure like those of `app.charts`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from app import charts
from app.charts import SERIES_COLOURS, Chart, Drawn
from app.series import Series, pick, sample
from backend.measures.principal_components import components
from backend.positions import policy_of
from backend.settings import RunSettings, counted

POINTS = 120


class Named(NamedTuple):
    """A run, its letter on the page and its setting in a few words."""

    name: str
    words: str
    series: Series

    @property
    def label(self) -> str:
        """Letter and words."""
        return f"{self.name} · {self.words}"


def length(runs: Sequence[Named]) -> Chart:
    """Produced against tokens generated, each with its target, and where each ended."""
    units = {run.series.settings.goal_unit for run in runs}
    layout = charts.axes("tokens generated", f"produced, {units.pop()}" if len(units) == 1 else "produced")
    data, rows = charts.overlaid(runs, _length)
    layout["yaxis"]["rangemode"] = "tozero"
    ended = [
        f"{row[0]} {counted(row[1], 'tokens')}" + (f" (error {charts.signed(row[4])})" if row[4] != "" else "")
        for row in rows
    ]
    return Chart(
        data,
        _legible(layout, data),
        _sentence(ended),
        ("setting", "tokens", "produced", "target", "error", "tokens/s"),
        rows,
    )


def p_end(runs: Sequence[Named]) -> Chart:
    """The chance that the next token ends the response, on a logarithmic axis."""
    layout = charts.axes("tokens generated", "p(end)")
    layout["yaxis"] |= {
        "type": "log",
        "range": list(charts.P_END_RANGE),
        "tickvals": list(charts.P_END_TICKS),
        "ticktext": list(charts.P_END_TICKS.values()),
    }
    data, rows = charts.overlaid(runs, _p_end)
    words = [f"{name} at most {peak:.2g}, at token {at:,}" for name, peak, at in rows]
    return Chart(data, _legible(layout, data), _sentence(words), ("setting", "highest p(end)", "at token"), rows)


def entropy(runs: Sequence[Named]) -> Chart:
    """Attention entropy, mean over layers and heads, against context length, each under its own ceiling."""
    layout = charts.axes("tokens read", "nats")
    data, rows = charts.overlaid(runs, _entropy)
    layout["yaxis"]["rangemode"] = "tozero"
    words = [f"{name} {mean:.2f} nats of {top:.2f}" for name, _, mean, top in rows]
    return Chart(
        data, _legible(layout, data), _sentence(words), ("setting", "tokens read", "mean entropy", "ceiling"), rows
    )


def logits(runs: Sequence[Named], training_length: int | None = None) -> Chart:
    """Mean attention logit of the watched head against perceived distance."""
    layout = charts.axes("perceived distance in tokens", "logit")
    data, rows = charts.overlaid(
        runs, lambda colour, run: charts.head_logits(run.series.logits, colour, run.name, run.label)
    )
    charts.distance_axis(layout, max([training_length or 1.0, *(float(trace["x"].max()) for trace in data)]))
    if training_length and data:
        charts.mark_x(layout, training_length, "@muted", f"trained {training_length:,}", log=True, y=0.94)
    words = [f"{name} {near:.2f} near, {far:.2f} at a distance of {at:,.0f}" for name, near, far, at in rows]
    columns = ("setting", "nearest", "farthest", "at distance")
    return Chart(data, _legible(layout, data), _sentence(words), columns, rows)


def states(runs: Sequence[Named]) -> Chart:
    """First-layer states of all runs in the plane of their common two principal components."""
    layout = charts.axes("first component", "second component")
    layout["hovermode"] = "closest"
    tables = [
        (colour, run, *charts.states_table(run.series)) for colour, run in zip(SERIES_COLOURS, runs, strict=False)
    ]
    tables = [table for table in tables if len(table[3])]
    if not tables or sum(len(table[3]) for table in tables) < 3:
        return Chart([], charts.empty(layout, "states appear while the model writes"), "Too few states for a PCA.")
    model = components(np.concatenate([table[3] for table in tables]))
    data: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for colour, run, places, vectors, _ in tables:
        plane = charts.rounded(model.transform(vectors), 3)
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": run.name,
                "x": plane[:, 0],
                "y": plane[:, 1],
                "marker": {"size": 5, "color": colour, "opacity": 0.75},
                "customdata": places,
                "hovertemplate": f"{run.name}, position %{{customdata}}<extra></extra>",
            }
        )
        rows.append([run.label, len(vectors), charts.cell(plane[:, 0].mean()), charts.cell(plane[:, 1].mean())])
    first, second = model.explained_variance_ratio_
    words = f"One PCA over all settings; its components hold {first:.0%} and {second:.0%} of the variance."
    return Chart(data, _legible(layout, data), words, ("setting", "states", "mean of first", "mean of second"), rows)


def positions(settings: Sequence[tuple[str, str, RunSettings]], tokens: int) -> Chart:
    """The distance at which the last token perceives each earlier one, for every (letter, words, setting)."""
    layout = charts.axes("true distance in tokens", "perceived distance")
    true = sample(tokens, POINTS)

    def draw(colour: str, setting: tuple[str, str, RunSettings]) -> Drawn:
        name, words, chosen = setting
        every = policy_of(chosen).distance(np.array([tokens - 1]), np.arange(tokens))[0][::-1]
        row = [f"{name} · {words}", int(np.sum(~np.isnan(every))), charts.cell(np.nanmax(every))]
        return [charts.line(true, charts.rounded(every[true], 2), colour, name, width=2.2)], row

    data, rows = charts.overlaid(settings, draw)
    layout["yaxis"]["rangemode"] = "tozero"
    sentences = [f"{name} sees {seen:,} tokens, the farthest at {far:,.0f}" for name, seen, far in rows]
    columns = ("setting", "tokens seen", "largest perceived distance")
    return Chart(data, _legible(layout, data), _sentence(sentences), columns, rows)


def _length(colour: str, run: Named) -> Drawn | None:
    name, series = run.name, run.series
    if not len(series):
        return None
    at = sample(len(series), POINTS)
    target = pick(series.target, at)
    data = [charts.line(at + 1, pick(series.produced, at), colour, name, width=2.4)]
    if np.isfinite(target).any():
        data.append(charts.line(at + 1, target, colour, f"{name}: target", width=1.2, dash="dash"))
    if series.finish is not None:
        data.append(_end(len(series), series.produced[-1], colour, name))
    error = "" if series.error is None else series.error
    goal = series.target[-1] or ""
    return data, [run.label, len(series), series.produced[-1], goal, error, round(series.speed, 1)]


def _p_end(colour: str, run: Named) -> Drawn | None:
    p_eos = run.series.p_eos
    if not p_eos:
        return None
    at = sample(len(p_eos), POINTS)
    y = pick(p_eos, at).astype(np.float32)
    trace = charts.line(at + 1, y, colour, run.name, width=1.6, hover="%{y:.2~g}")
    return [trace], [run.label, charts.cell(max(p_eos)), int(np.argmax(p_eos)) + 1]


def _entropy(colour: str, run: Named) -> Drawn | None:
    if not run.series.entropy:
        return None
    context, ceiling, values = charts.entropy_table(run.series)
    mean = charts.rounded(values.mean(axis=1), 3)
    data = [
        charts.line(context, mean, colour, run.name, width=2.2),
        charts.line(context, ceiling, colour, f"{run.name}: ceiling", width=1, dash="dash"),
    ]
    return data, [run.label, int(context[-1]), charts.cell(mean[-1]), charts.cell(ceiling[-1])]


def _end(x: int, y: int, colour: str, name: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [x],
        "y": [y],
        "name": f"{name}: end",
        "hoverinfo": "skip",
        "marker": {"size": 9, "color": colour, "symbol": "circle"},
        "showlegend": False,
    }


def _legible(layout: dict[str, Any], data: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The layout with a legend of the runs (not of their ceilings and targets), or a word that nothing is there yet."""
    if not data:
        return charts.empty(layout, "appears while the models write")
    charts.legend(layout, data)
    return layout


def _sentence(words: Sequence[str]) -> str:
    return "; ".join(words) + "." if words else "Nothing has been generated yet."


def common_length(settings: Sequence[RunSettings]) -> int:
    """A context length that shows every setting's policy."""
    return max((charts.preview_tokens(chosen) for chosen in settings), default=64)
