"""Runs and policies as charts: pure functions to Plotly data and layout, with the same facts in words and in a table.

Colours are names ("@c1", "@ink/0.2") that `resolve` or the page turns into the light or the dark palette (Okabe–Ito
for series, viridis and cividis for scales), so that one chart serves both themes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import orjson

from app.series import Series, pick, sample
from backend.components import components
from backend.positions.policy import Policy
from backend.settings import RunSettings
from backend.steps import Logits

Run = TypeVar("Run")
Drawn = tuple[list[dict[str, Any]], list[Any]]
POINTS = 160
STRETCHES = 64
P_END_RANGE = (-8, 0.3)
P_END_TICKS = {1e-8: "10⁻⁸", 1e-4: "10⁻⁴", 1: "1"}
STATES = 360
MASK_CELLS = 72
LAYERS = 7

VIRIDIS = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")
CIVIDIS = ("#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838")

PALETTES: dict[str, dict[str, str]] = {
    "light": {
        "ink": "#1b2430",
        "muted": "#66717f",
        "grid": "#e6eaef",
        "paper": "#ffffff",
        "none": "#f4f6f8",
        "c1": "#0072b2",
        "c2": "#d55e00",
        "c3": "#009e73",
        "c4": "#b4568a",
        "c5": "#a07800",
        "c6": "#6b4fc8",
        "old": "#98a2ae",
    },
    "dark": {
        "ink": "#e8edf3",
        "muted": "#93a0ae",
        "grid": "#29323d",
        "paper": "#151b23",
        "none": "#1c242e",
        "c1": "#56b4e9",
        "c2": "#e69f00",
        "c3": "#2fc79a",
        "c4": "#dd92bb",
        "c5": "#d8d04a",
        "c6": "#a996f2",
        "old": "#6c7885",
    },
}
# The darkest steps of a scale vanish on a dark page, the lightest on a light one.
for _theme, _skip in (("light", 0), ("dark", 2)):
    PALETTES[_theme] |= {f"layer{i}": colour for i, colour in enumerate(VIRIDIS[_skip : _skip + 7])}
    PALETTES[_theme] |= {f"place{i}": colour for i, colour in enumerate(CIVIDIS[_skip : _skip + 8])}
SERIES_COLOURS = ("@c1", "@c2", "@c3", "@c4", "@muted", "@c5", "@c6")
LAYER_SCALE: list[list[Any]] = [[i / 6, f"@layer{i}"] for i in range(7)]
PLACE_SCALE: list[list[Any]] = [[i / 7, f"@place{i}"] for i in range(8)]


@dataclass
class Chart:
    """data, layout: Plotly's, with colour names. summary: one or two sentences. columns, rows: the same as a table."""

    data: list[dict[str, Any]]
    layout: dict[str, Any]
    summary: str
    columns: tuple[str, ...] = ()
    rows: list[list[Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Past:
    """What the length chart remembers of an earlier run of the same visitor."""

    label: str
    unit: str
    tokens: int
    produced: int
    error: int | None


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


def resolve(value: Any, theme: str) -> Any:
    """`value` with every colour name replaced by the theme's colour; "@ink/0.2" is the colour at 20 % opacity."""
    if isinstance(value, str) and value.startswith("@"):
        name, _, opacity = value[1:].partition("/")
        colour = PALETTES[theme][name]
        if not opacity:
            return colour
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red},{green},{blue},{opacity})"
    if isinstance(value, dict):
        return {key: resolve(item, theme) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolve(item, theme) for item in value]
    return value


def figure(chart: Chart, theme: str = "light") -> Any:
    """A plotly.graph_objects.Figure of the chart, for notebooks and files."""
    import plotly.graph_objects as go

    colours = PALETTES[theme]
    return go.Figure(resolve(chart.data, theme), resolve(chart.layout, theme)).update_layout(
        paper_bgcolor=colours["paper"], plot_bgcolor=colours["paper"], font_color=colours["ink"]
    )


def length(series: Series, history: Sequence[Past] = ()) -> Chart:
    """(a) Produced against target, p(EOS) and the stop it predicts, the error, and where earlier runs ended."""
    at, chances = sample(len(series), POINTS), sample(len(series.p_eos), POINTS)
    x, produced, target = at + 1, pick(series.produced, at), pick(series.target, at)
    unit, p_end = series.settings.goal_unit, pick(series.p_eos, chances).astype(np.float32)
    data = [
        line(chances + 1, p_end, "@c2", "p(end)", width=1.2, yaxis="y2", hover="%{y:.2~g}"),
        line(x, produced, "@c1", f"{unit} produced", width=2.6),
    ]
    if np.isfinite(target).any():
        data.append(line(x, target, "@ink", "target", width=1.4, dash="dash", shape="hv"))
    past = [run for run in history if run.unit == unit]
    if past:
        data.append(_past_points(past))
    layout = axes("tokens generated", unit)
    layout["yaxis"]["rangemode"] = "tozero"
    layout["yaxis2"] = {
        "overlaying": "y",
        "side": "right",
        "type": "log",
        "range": list(P_END_RANGE),
        "showgrid": False,
        "fixedrange": True,
        "tickvals": list(P_END_TICKS),
        "ticktext": list(P_END_TICKS.values()),
        "color": "@c2",
        "title": {"text": "p(end)", "standoff": 4},
        "automargin": True,
        "ticklabeloverflow": "allow",
    }
    if series.finish is None and len(series):
        grows(layout["xaxis"], _planned(series))
        grows(layout["yaxis"], target[-1] if produced[-1] <= target[-1] else room(produced[-1]))
    stop = series.predicted_stop() if series.finish is None else None
    if stop is not None and stop <= series.settings.max_new_tokens:
        mark_x(layout, stop, "@c2", f"ends ≈ {stop:.0f}")
    if len(at) and np.isfinite(target[-1]):
        layout["annotations"].append(_note(0, 1.02, _error_words(series), "left"))
    return Chart(
        data,
        layout,
        _length_summary(series, stop),
        ("token", unit, "target", "p(end)"),
        _rows(x, produced, target, pick(series.p_eos, at)),
    )


def entropy(series: Series) -> Chart:
    """(b) Attention entropy, mean over heads, of some layers against context length, under its ceiling ln(attended)."""
    layout = axes("tokens read", "nats")
    if not series.entropy:
        return Chart([], empty(layout, "entropy appears while the model writes"), "No attention entropy was recorded.")
    context, ceiling, values = entropy_table(series)
    layers = values.shape[1]
    watched = min(series.settings.watch.layer, layers - 1)
    shown = sorted({int(i) for i in np.linspace(0, layers - 1, min(LAYERS, layers)).round()} | {watched})
    data = [line(context, ceiling, "@ink", "ceiling ln(attended)", width=1.4, dash="dash")]
    for layer in shown:
        colour = layer_colour(layer / max(1, layers - 1))
        bold = layer == watched
        data.append(line(context, values[:, layer], colour, f"layer {layer}", width=3 if bold else 1.2))
    data.append(layer_scale(layers))
    layout["yaxis"]["rangemode"] = "tozero"
    if series.finish is None:
        grows(layout["xaxis"], context[-1] - len(series) + _planned(series))
        grows(layout["yaxis"], math.ceil(math.log(context[-1] - len(series) + series.settings.max_new_tokens)))
    if series.reading is not None and len(series):
        mark_x(layout, series.reading.tokens, "@muted", "response", anchor="left")
    last = values[-1]
    share = float(np.mean(last) / ceiling[-1]) if ceiling[-1] > 0 else 0.0
    summary = (
        f"Mean attention entropy {np.mean(last):.2f} nats of a ceiling of {ceiling[-1]:.2f} ({share:.0%}) at "
        f"{int(context[-1])} tokens; sharpest layer {int(np.argmin(last))} ({np.min(last):.2f}), "
        f"most spread layer {int(np.argmax(last))} ({np.max(last):.2f})."
    )
    rows = _rows(context, ceiling, *(values[:, layer] for layer in shown))
    return Chart(data, layout, summary, ("tokens read", "ceiling", *(f"layer {i}" for i in shown)), rows)


def logits(series: Series, training_length: int | None = None) -> Chart:
    """(c) Pre-softmax attention logits of the watched layer and head against perceived distance."""
    layout = axes("perceived distance in tokens", "logit")
    recorded = series.logits
    if recorded is None:
        return Chart([], empty(layout, "logits appear while the model writes"), "No attention logits were recorded.")
    x, mean = np.maximum(recorded.distance, 0.5), rounded(recorded.mean, 3)
    band_x = np.concatenate([x, x[::-1]])
    band_y = rounded(np.concatenate([recorded.high, recorded.low[::-1]]), 3)
    band = {
        "type": "scatter",
        "x": rounded(band_x, 2),
        "y": band_y,
        "fill": "toself",
        "fillcolor": "@c1/0.16",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "name": "lowest to highest",
        "mode": "lines",
    }
    means = line(
        rounded(x, 2), mean, "@c1", f"layer {recorded.layer}, head {recorded.head}", width=2.2, mode="lines+markers"
    )
    if series.finish is None:
        low, high = series.extremes
        grows(layout["yaxis"], 10 * math.floor(low / 10), 10 * math.ceil(high / 10))
    cap = Policy.of(series.settings).limit
    distance_axis(layout, max([float(x.max()), training_length or 1, cap if math.isfinite(cap) else 1]))
    if training_length:
        mark_x(layout, training_length, "@muted", f"trained {training_length:,}", log=True, y=0.94)
    if math.isfinite(cap):
        mark_x(layout, cap, "@c2", f"cap {cap:,.0f}", log=True, y=0.06)
    layout["annotations"].append(_note(0, 1.02, f"layer {recorded.layer} · head {recorded.head}", "left"))
    near, far = recorded.mean[0], recorded.mean[-1]
    summary = (
        f"Layer {recorded.layer}, head {recorded.head}: mean logit {near:.2f} for the nearest keys and {far:.2f} for "
        f"the farthest, at a perceived distance of {recorded.distance[-1]:.0f}."
    )
    rows = _rows(recorded.distance, recorded.mean, recorded.low, recorded.high)
    return Chart([band, means], layout, summary, ("perceived distance", "mean", "lowest", "highest"), rows)


def states(series: Series) -> Chart:
    """(d) The first two principal components of the first layer's states, coloured by position (002 fig. 1)."""
    layout = axes("first component", "second component")
    positions, vectors, prompt = states_table(series)
    if len(vectors) < 3:
        return Chart(
            [], empty(layout, "states appear while the model writes"), "Too few states were recorded for a PCA."
        )
    model = components(vectors)
    plane = rounded(model.transform(vectors), 3)
    top = int(positions.max())
    data = [
        points(plane[chosen], positions[chosen], name, symbol, 0, top, bar=name == "prompt" or not prompt.any())
        for name, chosen, symbol in (("prompt", prompt, "circle"), ("response", ~prompt, "diamond"))
        if chosen.any()
    ]
    layout["hovermode"] = "closest"
    first, second = model.explained_variance_ratio_
    layout["annotations"].append(_note(0, 1.02, "● prompt   ◆ response", "left"))
    summary = (
        f"{len(vectors)} first-layer states; the two components hold {first:.0%} and {second:.0%} of their variance."
    )
    order = np.argsort(positions)
    rows = _rows(positions[order], plane[order, 0], plane[order, 1])
    return Chart(data, layout, summary, ("position", "first component", "second component"), rows)


def positions(settings: RunSettings, tokens: int) -> Chart:
    """(e) The distance at which the last of `tokens` tokens perceives each earlier one, against the true distance."""
    policy = Policy.of(settings)
    true = np.unique(np.concatenate([sample(tokens, POINTS), np.arange(min(tokens, 24))]))
    perceived = policy.distance(np.array([tokens - 1]), tokens - 1 - true)[0]
    hidden = np.isnan(perceived)
    layout = axes("true distance in tokens", "perceived distance")
    layout["xaxis"]["range"] = [0, tokens * 1.02]
    layout["yaxis"]["rangemode"] = "tozero"
    for low, high in _runs_of(true[hidden], true):
        layout["shapes"].append(_band(low, high, "@ink/0.06"))
        layout["annotations"].append(_note((low + high) / 2, 0.5, "not seen", "center", xref="x"))
    data = [
        line(np.array([0, tokens]), np.array([0, tokens]), "@muted", "as it is", width=1, dash="dot"),
        line(true, rounded(perceived, 2), "@c1", "perceived", width=2.6),
    ]
    if math.isfinite(policy.limit):
        layout["shapes"].append(_level(policy.limit, "@c2"))
        layout["annotations"].append(_note(0.99, policy.limit, f"cap {policy.limit:,.0f}", "right", yref="y"))
    summary = _policy_words(settings, policy, tokens, int(np.sum(~np.isnan(_last_row(policy, tokens)))))
    return Chart(data, layout, summary, ("true distance", "perceived distance"), _rows(true, perceived))


def mask(settings: RunSettings, tokens: int) -> Chart:
    """(f) Which earlier token (across) each token (down) sees, and how far away it seems; empty: not seen."""
    policy = Policy.of(settings)
    at = np.unique(np.linspace(0, tokens - 1, min(MASK_CELLS, tokens)).astype(np.int64))
    distance = np.where(at[None, :] <= at[:, None], policy.distance(at, at), np.nan)
    seen = ~np.isnan(distance)
    heat = {
        "type": "heatmap",
        "x": at,
        "y": at,
        "z": rounded(distance, 1),
        "colorscale": [[1 - at, colour] for at, colour in reversed(PLACE_SCALE)],
        "hoverongaps": False,
        "zmin": 0,
        "colorbar": _bar("perceived distance"),
        "hovertemplate": "token %{y} sees token %{x}<br>at a distance of %{z:,.0f}<extra></extra>",
    }
    layout = axes("key: the token looked at", "query")
    layout["hovermode"] = "closest"
    layout["yaxis"] |= {"autorange": "reversed", "showgrid": False}
    layout["xaxis"]["showgrid"] = False
    causal = len(at) * (len(at) + 1) / 2
    share = float(seen.sum() / causal)
    far = float(np.nanmax(distance))
    summary = (
        f"Of all pairs a causal model could use among {tokens:,} tokens, {share:.0%} are seen; "
        f"the largest perceived distance is {far:,.0f}."
    )
    chosen = at[sample(len(at), 10)]
    rows = [[int(t), int(np.sum(~np.isnan(policy.distance(np.array([t]), np.arange(t + 1)))))] for t in chosen]
    return Chart([heat], layout, summary, ("token", "tokens it sees"), rows)


def preview_tokens(settings: RunSettings) -> int:
    """A context length to preview: the prompt (about 4 characters a token) and what it may write, or the window."""
    prompt = len(settings.prompt) // 4 + 32
    wanted = prompt + settings.max_new_tokens
    if settings.window is not None:
        wanted = max(wanted, int(1.5 * (settings.window + settings.sinks)))
    return int(np.clip(wanted, 64, 200_000))


def axes(x: str, y: str) -> dict[str, Any]:
    """A layout with two titled axes, nothing on it yet."""
    # By itself Plotly measures every label at each drawing to hide those that lie over the edge: a quarter of its time.
    axis = {"ticklabeloverflow": "allow", "automargin": True, "nticks": 6, "ticks": ""}
    axis |= {"gridcolor": "@grid", "zeroline": False, "linecolor": "@grid"}
    return {
        "margin": {"l": 44, "r": 14, "t": 20, "b": 36},
        "xaxis": {**axis, "title": {"text": x, "standoff": 6}},
        "yaxis": {**axis, "title": {"text": y, "standoff": 6}},
        "showlegend": False,
        "hovermode": "x unified",
        "shapes": [],
        "annotations": [],
    }


def grows(axis: dict[str, Any], *included: float) -> None:
    """Lets an axis reach the included numbers while a run grows: the frames that fit into it only move its lines."""
    axis["autorangeoptions"] = {"include": list(included)}


def _planned(series: Series) -> float:
    """Tokens that an axis should have place for: the target and a little more until that is passed."""
    target = (series.target[-1] or 0) if series.settings.goal_unit == "tokens" else 0
    planned = 1.1 * target if len(series) <= 1.1 * target else room(len(series))
    return min(planned, series.settings.max_new_tokens)


def room(number: float) -> float:
    """512, or the next fourfold of it at or above `number`: an axis that grows is drawn anew, which is dear."""
    return float(512 * 4 ** max(0, math.ceil(math.log(max(number, 1) / 512, 4))))


def distance_axis(layout: dict[str, Any], top: float) -> None:
    """Makes x logarithmic up to `top`, with a place for the distance 0, drawn at 0.5."""
    ticks = [0.5, *(10**k for k in range(int(math.log10(top)) + 1))]
    layout["xaxis"] |= {
        "type": "log",
        "tickvals": ticks,
        "ticktext": ["0", *(f"{int(tick):,}" for tick in ticks[1:])],
        "range": [math.log10(0.4), math.log10(top * 1.6)],
    }


def empty(layout: dict[str, Any], words: str) -> dict[str, Any]:
    """The layout of a chart that has nothing to show, with a word about why."""
    layout["annotations"].append(_note(0.5, 0.5, words, "center"))
    for axis in ("xaxis", "yaxis"):
        layout[axis] |= {"showticklabels": False, "showgrid": False}
    return layout


def line(
    x,
    y,
    colour: str,
    name: str,
    width: float = 2,
    dash: str = "solid",
    yaxis: str = "y",
    shape: str = "linear",
    mode: str = "lines",
    hover: str = "%{y:,.4~g}",
) -> dict[str, Any]:
    """A line trace."""
    return {
        "type": "scatter",
        "mode": mode,
        "x": x,
        "y": y,
        "name": name,
        "yaxis": yaxis,
        "marker": {"size": 4},
        "line": {"color": colour, "width": width, "dash": dash, "shape": shape},
        "hovertemplate": hover,
    }


def points(
    plane: np.ndarray, positions: np.ndarray, name: str, symbol: str, low: float, high: float, bar: bool
) -> dict[str, Any]:
    """Points [k, 2] coloured by position on a scale from `low` to `high`; bar: with the scale beside the chart."""
    marker: dict[str, Any] = {
        "size": 6,
        "symbol": symbol,
        "color": positions,
        "cmin": low,
        "cmax": high,
        "colorscale": PLACE_SCALE,
        "showscale": bar,
        "line": {"width": 0.5, "color": "@paper"},
    }
    if bar:
        marker["colorbar"] = _bar("position")
    return {
        "type": "scatter",
        "mode": "markers",
        "x": plane[:, 0],
        "y": plane[:, 1],
        "name": name,
        "customdata": positions,
        "marker": marker,
        "hovertemplate": f"{name}, position %{{customdata}}<extra></extra>",
    }


def overlaid(
    runs: Iterable[Run], draw: Callable[[str, Run], Drawn | None]
) -> tuple[list[dict[str, Any]], list[list[Any]]]:
    """Traces and table rows of several runs, each in its colour; draw: those of one, or None while it has nothing."""
    drawn = [found for colour, run in zip(SERIES_COLOURS, runs, strict=False) if (found := draw(colour, run))]
    return [trace for traces, _ in drawn for trace in traces], [row for _, row in drawn]


def head_logits(recorded: Logits | None, colour: str, name: str, label: str) -> Drawn | None:
    """Mean logits by perceived distance as one of several lines, and its row: nearest, farthest, at which distance."""
    if recorded is None:
        return None
    x, mean = rounded(np.maximum(recorded.distance, 0.5), 2), rounded(recorded.mean, 3)
    row = [label, cell(recorded.mean[0]), cell(recorded.mean[-1]), cell(recorded.distance[-1])]
    return [line(x, mean, colour, name, mode="lines+markers")], row


def _bar(title: str) -> dict[str, Any]:
    return {"thickness": 6, "outlinewidth": 0, "len": 0.9, "nticks": 4, "title": {"text": title, "side": "right"}}


def legend(layout: dict[str, Any], data: Sequence[dict[str, Any]]) -> None:
    """Names the traces above the chart, those with a colon in their name (a ceiling, a target) left out."""
    for trace in data:
        trace["showlegend"] = ":" not in trace["name"]
    layout |= {
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 11}},
    }
    layout["margin"]["t"] = 26


def _past_points(past: Sequence[Past]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "earlier runs",
        "x": [run.tokens for run in past],
        "y": [run.produced for run in past],
        "marker": {"size": 8, "symbol": "circle-open", "color": "@old", "line": {"width": 1.6, "color": "@old"}},
        "text": [run.label + ("" if run.error is None else f", error {signed(run.error)}") for run in past],
        "hovertemplate": "%{text}<extra>earlier run</extra>",
    }


def layer_scale(layers: int) -> dict[str, Any]:
    """No point, but the scale of the layers' colours beside the chart."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [None],
        "y": [None],
        "hoverinfo": "skip",
        "marker": {
            "color": [0],
            "cmin": 0,
            "cmax": layers - 1,
            "colorscale": LAYER_SCALE,
            "showscale": True,
            "colorbar": _bar("layer"),
        },
    }


def _note(x: float, y: float, text: str, anchor: str, xref: str = "paper", yref: str = "paper") -> dict[str, Any]:
    return {
        "x": x,
        "y": y,
        "xref": xref,
        "yref": yref,
        "text": text,
        "showarrow": False,
        "xanchor": anchor,
        "yanchor": "bottom" if yref == "y" or y > 1 else "middle",
        "font": {"size": 11, "color": "@muted"},
    }


def mark_x(
    layout: dict[str, Any], x: float, colour: str, words: str, log: bool = False, y: float = 0.04, anchor: str = "right"
) -> None:
    """Marks a place on x with a dotted line, and words beside it at the height `y` (0 to 1)."""
    layout["shapes"].append(
        {
            "type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1,
            "line": {"color": colour, "width": 1.2, "dash": "dot"},
        }
    )  # fmt: skip
    note = _note(math.log10(x) if log else x, y, words, anchor, xref="x")
    font = {"size": 11, "color": colour}
    layout["annotations"].append(note | {"yanchor": "middle", "xshift": -3 if anchor == "right" else 3, "font": font})


def _level(y: float, colour: str) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": "paper",
        "yref": "y",
        "x0": 0,
        "x1": 1,
        "y0": y,
        "y1": y,
        "line": {"color": colour, "width": 1.2, "dash": "dot"},
    }


def _band(low: float, high: float, colour: str) -> dict[str, Any]:
    return {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": low,
        "x1": high,
        "y0": 0,
        "y1": 1,
        "fillcolor": colour,
        "line": {"width": 0},
        "layer": "below",
    }


def _runs_of(chosen: np.ndarray, among: np.ndarray) -> list[tuple[int, int]]:
    """First and last of every unbroken stretch of `chosen` within the sorted `among`."""
    if not len(chosen):
        return []
    places = np.searchsorted(among, chosen)
    breaks = np.flatnonzero(np.diff(places) > 1) + 1
    return [(int(part[0]), int(part[-1])) for part in np.split(chosen, breaks)]


def _last_row(policy: Policy, tokens: int) -> np.ndarray:
    return policy.distance(np.array([tokens - 1]), np.arange(tokens))[0]


def entropy_table(series: Series) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Context [k], ceiling [k] and entropy meaned over heads [k, layers], the prompt's rows first.

    Of a long response, stretches of tokens are averaged, and their context and ceiling are those of the last one.
    """
    n = len(series.entropy)
    starts = sample(n, STRETCHES)[:-1] if n > STRETCHES else np.arange(n)
    ends = np.append(starts[1:], n)
    context, attended = pick(series.context, ends - 1), pick(series.attended, ends - 1)
    values = np.add.reduceat(np.array(series.entropy), starts, axis=0) / (ends - starts)[:, None]
    reading = series.reading
    if reading is not None:
        context = np.concatenate([reading.positions + 1, context])
        attended = np.concatenate([reading.attended, attended])
        values = np.concatenate([reading.entropy.mean(axis=2), values])
    return context, rounded(np.log(np.maximum(attended, 1)), 3), rounded(values, 3)


def states_table(series: Series) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions [k], states [k, d] (float32) and whether each belongs to the prompt [k]."""
    if not series.states:
        return np.zeros(0, np.int64), np.zeros((0, 0), np.float32), np.zeros(0, bool)
    at = sample(len(series.states), STATES // 2)
    positions = pick(series.context, at).astype(np.int64)
    vectors = np.array([series.states[i] for i in at], dtype=np.float32)
    reading = series.reading
    if reading is None or not reading.states.size:
        return positions, vectors, np.zeros(len(at), dtype=bool)
    rows = sample(len(reading.positions), STATES // 2)
    prompt = reading.states[rows].astype(np.float32)
    positions = np.concatenate([reading.positions[rows], positions])
    vectors = np.concatenate([prompt, vectors])
    return positions, vectors, np.arange(len(positions)) < len(rows)


def _rows(*columns: np.ndarray) -> list[list[Any]]:
    """At most about 12 rows of the columns, for reading: four significant digits, empty where nothing is known."""
    at = sample(len(columns[0]), 12)
    return [[cell(column[i]) for column in columns] for i in at]


def cell(value: float) -> float | int | str:
    """A number for a table: whole, or with four significant digits; "" where nothing is known."""
    if not np.isfinite(value):
        return ""
    return int(value) if float(value).is_integer() else float(f"{value:.4g}")


def rounded(values: np.ndarray, digits: int) -> np.ndarray:
    """Rounded, so that the JSON stays short."""
    return np.round(np.asarray(values, dtype=np.float64), digits)


def layer_colour(depth: float) -> str:
    """The colour of a layer, by its depth from 0 to 1."""
    return f"@layer{round(depth * 6)}"


def signed(number: int) -> str:
    """+3, −2 or ±0."""
    return "±0" if number == 0 else f"{'+' if number > 0 else '−'}{abs(number):,}"


def _error_words(series: Series) -> str:
    error, unit = series.error, series.settings.goal_unit
    if error is None:
        return ""
    if series.finish is not None:
        return f"<b>{signed(error)}</b> {unit} at the end"
    return f"{-error:,} {unit} to go" if error < 0 else f"{signed(error)} {unit}"


def _length_summary(series: Series, stop: float | None) -> str:
    if not len(series):
        return "Nothing has been generated yet."
    unit, error = series.settings.goal_unit, series.error
    words = f"{series.produced[-1]:,} {unit} produced"
    if error is None:
        words += " without a target"
    else:
        words += f", target {series.target[-1]:,}, error {signed(error)}"
    if series.finish is None:
        near = stop is not None and stop <= series.settings.max_new_tokens
        words += f"; p(end) points to an end near token {stop:,.0f}" if near else "; p(end) shows no end before the cap"
    return words + "."


def _policy_words(settings: RunSettings, policy: Policy, tokens: int, seen: int) -> str:
    if policy.kind == "ntk":
        kind = f"NTK leaves distances as they are and slows the rotation: RoPE base × {policy.ratio:g}"
    else:
        kind = {
            "none": "Distances are left as they are"
            + (f" up to the cap of {policy.limit:,.0f}" if math.isfinite(policy.limit) else ""),
            "naive": f"Every distance is divided by {policy.ratio:g}",
            "dynamic": f"The middle is compressed by {policy.ratio:g}, "
            f"the first {policy.initial} and last {policy.recent} tokens are not",
        }[policy.kind]
    view = f"the last of {tokens:,} tokens sees {seen:,} of them"
    first = float(policy.distance(np.array([tokens - 1]), np.array([0]))[0, 0])
    same = math.isnan(first) or round(first) == tokens - 1
    lag = "" if same else f"; the first token, {tokens - 1:,} behind it, seems {first:,.0f} behind"
    return f"{kind}; {view}{lag}."
