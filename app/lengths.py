"""Recorded length control, method by method: how far answers end from the length asked for (000, 001, 003)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, get_args

import numpy as np
from pydantic import Field

from app import charts, published
from app.charts import Chart
from app.controls import METHODS
from app.results import UNKNOWN, Recorded, Result, Table, decimal, figure, percent, read, signed, text
from backend.evaluation import scores
from backend.evaluation.answers import SUMMARIES, Answer
from backend.settings import LIMIT_METHODS, Method, Unit

# Label and meaning of the ranges that every page shows.
RANGES = {
    "10-200": ("Targets 10–200", "Lengths like those of training."),
    "300-1000": ("Beyond training: 300–1,000", "Lengths longer than those of training."),
    "words": ("Targets in words", "The lab counts the words written so far and re-estimates the tokens left."),
    "characters": ("Targets in characters", "Counted and re-estimated in the same way."),
    "changed": ("Target changed while writing", "The target moves after the answer has begun; the last one counts."),
    SUMMARIES: ("Summaries", "Of abstracts, each as long as its authors’ own summary."),
}
UNITS = get_args(Unit)
STYLES: dict[Method, tuple[str, str]] = {
    "none": ("@old", "circle-open"),
    "prompted": ("@old", "square-open"),
    "prompted_tuned": ("@muted", "diamond-open"),
    "exp_decay": ("@muted", "triangle-up-open"),
    "ldpe": ("@c1", "circle"),
    "orpe": ("@c3", "square"),
    "lrpe": ("@c4", "diamond"),
    "pre": ("@c2", "triangle-up"),
    "mnt_ldpe": ("@c1", "cross"),
    "mnt_orpe": ("@c3", "x"),
}
# Keys of a summary in the columns of the comparison; every other key gets a column of its own.
COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "bias": ("bias", signed),
    "variance": ("variance", figure),
    "outliers": ("> 20 off", percent),
    "over": ("over the limit", percent),
    "ended": ("ended by the model", percent),
    "natural": ("natural endings", percent),
}
MEASURED = ("answers", "mae", "sd")
# One for a file: of its plain questions in range, each pair of answers cut to the shorter.
RATIO = "perplexity ratio, questions in range"
FAR = 20
BEYOND = 300
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class Length(Recorded):
    """assets/results/length/<method>.json. summary: measures by range of targets."""

    method: str
    model: str
    answers: list[Answer]
    summary: dict[str, dict[str, Any]]
    quality: dict[str, Any] | None = None
    summaries: list[dict[str, Any]] = Field(default_factory=list)

    def within(self, name: str) -> list[Answer]:
        """The answers of a range: a unit, "changed", or two targets; a kind may follow ("10-200 questions")."""
        limits, _, kind = name.partition(" ")
        if limits == "changed":
            return [answer for answer in self.answers if answer.changed_from is not None]
        if limits == SUMMARIES:
            return [answer for answer in self.answers if answer.kind == SUMMARIES]
        if limits in UNITS:
            return [answer for answer in self.answers if answer.unit == limits]
        low, _, high = limits.partition("-")
        if not (low.isdigit() and high.isdigit()):
            return []
        asked = [answer for answer in self.answers if answer.plain and kind in ("", answer.kind)]
        return [answer for answer in asked if int(low) <= answer.target <= int(high)]


Results = dict[Method, Result[Length]]


def recorded() -> Results:
    """What is recorded of every method that may aim at a length, in the order of the app."""
    return {method: _recorded(method) for method in STYLES}


def _recorded(method: Method) -> Result[Length]:
    name, command = f"length/{method}.json", f"python -m backend evaluate length --method {method}"
    result = read(name, command, Length)
    if result.data is not None and result.data.method != method:
        return Result(name, None, f"{name} holds the method {result.data.method}. To make it again: {command}")
    return result


def ranges(results: Results) -> list[str]:
    """Names of the ranges: those that every page shows, then what else the files have."""
    return list(dict.fromkeys([*RANGES, *(name for data in _usable(results).values() for name in data.summary)]))


def label(method: Method) -> str:
    """A method as the form names it."""
    return METHODS[method][0]


def called(name: str) -> str:
    """A range as the page names it."""
    return RANGES[name][0] if name in RANGES else name.replace("-", "–")


def comparison(results: Results, name: str) -> Table:
    """The methods in one range of targets, beside what the papers publish."""
    summaries = {method: data.summary.get(name) for method, data in _usable(results).items()}
    extras = [key for found in summaries.values() for key in found or () if key not in (*MEASURED, *COLUMNS)]
    extras = list(dict.fromkeys(extras))
    columns = [
        "method", "answers", "MAE ± SD", *(words for words, _ in COLUMNS.values()), RATIO,
        *(key.replace("_", " ") for key in extras), "the papers’ own figures",
    ]  # fmt: skip
    rows = [_row(method, result, name, extras) for method, result in results.items()]
    return Table(f"{called(name)}: how near the answers end", columns, rows, quoted=len(columns) - 1)


def _row(method: Method, result: Result[Length], name: str, extras: Sequence[str]) -> list[str]:
    quoted = "; ".join(published.LENGTH.get((method, name), ())) or UNKNOWN
    if result.data is None:
        return [label(method), result.problem, quoted]
    found = result.data.summary.get(name)
    if not found:
        return [label(method), "no answers in this range", quoted]
    measures = [
        UNKNOWN if key == "over" and method not in LIMIT_METHODS else form(found.get(key))
        for key, (_, form) in COLUMNS.items()
    ]
    return [
        label(method),
        text(found.get("answers")),
        f"{decimal(found.get('mae'))} ± {decimal(found.get('sd'))}",
        *measures,
        figure((result.data.quality or {}).get("perplexity_ratio")),
        *(text(found.get(key)) for key in extras),
        quoted,
    ]


def quality(results: Results) -> Table | None:
    """What the files say about the quality of the answers, where any does."""
    found = {method: data.quality for method, data in _usable(results).items() if data.quality}
    keys = list(dict.fromkeys(key for measures in found.values() for key in measures))
    if not keys:
        return None
    rows = [[label(method), *(text(measures.get(key)) for key in keys)] for method, measures in found.items()]
    caption = (
        "Quality of the answers to questions in range, each pair cut to the shorter; stop: the last token, under the "
        "untouched model, where an answer ends as a sentence does"
    )
    return Table(caption, ["method", *(key.replace("_", " ") for key in keys)], rows)


def summaries(results: Results) -> Table | None:
    """Summaries of abstracts against the authors' own, by method and target."""
    rows = [(method, row) for method, data in _usable(results).items() for row in data.summaries]
    keys = list(dict.fromkeys(key for _, row in rows for key in row))
    if not keys:
        return None
    cells = [[label(method), *(text(row.get(key)) for key in keys)] for method, row in rows]
    columns = ["method", *(key.replace("_", " ") for key in keys)]
    return Table("Summaries of abstracts against the authors’ own, by target in tokens", columns, cells)


def variances(results: Results) -> Table | None:
    """Mean squared error of short texts by their target in characters, beside 001 table 4."""
    rows = []
    for method, data in _usable(results).items():
        by_target = _by_target(data.within("characters"))
        if set(published.HEADLINES) <= by_target.keys():
            found = (scores.variance([(count, n) for count in by_target[n]]) for n in published.HEADLINES)
            rows.append([label(method), *map(figure, found)])
    if not rows:
        return None
    quoted = [[f"{name} (001, headlines)", *map(str, found)] for name, found in published.VARIANCES.items()]
    columns = ["method", *(f"{n} characters" for n in published.HEADLINES)]
    return Table("Variance about the target, in characters² (001 table 4)", columns, [*rows, *quoted])


def likeness(results: Results) -> Chart:
    """BERTScore of summaries against their authors' own, by target (000 fig. 3, left)."""
    told = "In 000 (7B models, against GPT-3.5’s summaries, another encoder): 0.698 to 0.699."
    return _summarised(results, "bert_score", "BERTScore", ".3f", told)


def strayed(results: Results) -> Chart:
    """Mean error of summaries' lengths, by target (000 fig. 3, right)."""
    told = "In 000: 2.8 (Mistral) and 2.4 (Llama) with LDPE, 24.8 prompted."
    chart = _summarised(results, "mae", "mean error, tokens", ".1f", told, _bent)
    if chart.data:
        _bend_axis(chart.layout["yaxis"], max(max(trace["customdata"]) for trace in chart.data))
        chart.layout["yaxis"]["range"][0] = -0.05
    return chart


def _summarised(
    results: Results, key: str, name: str, form: str, quoted: str, drawn: Callable[[np.ndarray], np.ndarray] = np.array
) -> Chart:
    """A measure of summaries by target. drawn: where a value stands on the axis."""
    found = {method: data.summaries for method, data in _usable(results).items() if data.summaries}
    layout = charts.axes("target, tokens", name)
    if not found:
        return _nothing(layout)
    bins = sorted({row["target"] for rows in found.values() for row in rows}, key=lambda name: int(name.split()[0]))
    layout["xaxis"] |= {"type": "category", "categoryorder": "array", "categoryarray": bins}
    data = []
    for method, rows in found.items():
        values = [row[key] for row in rows]
        at = drawn(np.array(values)).round(4).tolist()
        trace = _marked(method, [row["target"] for row in rows], at, f"%{{customdata:{form}}}")
        data.append(trace | {"customdata": values})
    charts.legend(layout, data)
    table = [[label(method), row["target"], row["answers"], row[key]] for method, rows in found.items() for row in rows]
    means = {
        method: float(np.average([row[key] for row in rows], weights=[row["answers"] for row in rows]))
        for method, rows in found.items()
    }
    told = ", ".join(f"{label(method)} {mean:{form}}" for method, mean in means.items())
    return Chart(data, layout, f"Mean of all: {told}. {quoted}", ("method", "target", "answers", name), table)


def targets(results: Results, name: str) -> Chart:
    """Written against asked for, one trace a method (000 fig. 2 and 6)."""
    found = {method: answers for method, data in _usable(results).items() if (answers := data.within(name))}
    unit = name if name in UNITS else "tokens"
    layout = charts.axes(f"target, {unit}", f"written, {unit}")
    layout["hovermode"] = "closest"
    if not found:
        return _nothing(layout)
    data = [_pairs(method, answers) for method, answers in found.items()]
    charts.legend(layout, data)
    data.insert(0, _identity([a.target for answers in found.values() for a in answers], "target"))
    rows = [
        [label(method), target, len(counts), min(counts), float(np.median(counts)), max(counts)]
        for method, answers in found.items()
        for target, counts in _by_target(answers).items()
    ]
    exact = {method: np.mean([a.error == 0 for a in answers]) for method, answers in found.items()}
    best = max(exact, key=lambda method: exact[method])
    total = sum(map(len, found.values()))
    summary = (
        f"{total:,} answers by {len(found)} methods; on the dashed line the length is the one asked for. "
        f"{label(best)} hits it exactly most often: {percent(exact[best])} of its answers."
    )
    return Chart(data, layout, summary, ("method", "target", "answers", "shortest", "median", "longest"), rows)


def errors(results: Results, name: str) -> Chart:
    """The signed error by method: boxes hold half of the answers, whiskers 90 %, on a signed logarithmic axis."""
    found = {
        method: np.array([answer.error for answer in answers])
        for method, data in reversed(_usable(results).items())
        if (answers := data.within(name))
    }
    unit = name if name in UNITS else "tokens"
    layout = charts.axes(f"written − target, {unit}", "")
    layout["hovermode"] = "closest"
    if not found:
        return _nothing(layout)
    names = [label(method) for method in found]
    at = np.array([np.quantile(error, QUANTILES) for error in found.values()])
    means = [float(error.mean()) for error in found.values()]
    low, first, median, third, high = charts.rounded(_bent(at), 4).T
    told = [f"{name}: {_spread(row)}, mean {signed(mean)}" for name, row, mean in zip(names, at, means, strict=True)]
    data: list[dict[str, Any]] = [
        {
            "type": "box", "orientation": "h", "name": "errors", "y": names, "width": 0.6, "hoverinfo": "skip",
            "lowerfence": low, "q1": first, "median": median, "q3": third, "upperfence": high,
            "line": {"color": "@c1", "width": 1.6}, "fillcolor": "@c1/0.2",
        },
        {
            "type": "scatter", "mode": "markers", "name": "median", "x": median, "y": names, "text": told,
            "marker": {"size": 7, "color": "@c2"}, "hovertemplate": "%{text}<extra></extra>",
        },
    ]  # fmt: skip
    layout["yaxis"]["dtick"] = 1
    _bend_axis(layout["xaxis"], float(np.abs(at).max()))
    rows = [[label(m), len(found[m]), *row, mean] for m, row, mean in zip(found, at.tolist(), means, strict=True)]
    rows.reverse()
    nearest = int(np.argmin(at[:, 4] - at[:, 0]))
    summary = f"The narrowest is {names[nearest]}: {_spread(at[nearest])}."
    columns = ("method", "answers", "5 %", "25 %", "median", "75 %", "95 %", "mean")
    return Chart(data, layout, summary, columns, rows)


def limits(results: Results) -> Chart:
    """Written against the limit of the two Max New Tokens++ methods (000 fig. 5)."""
    found = {
        method: answers
        for method, data in _usable(results).items()
        if method in LIMIT_METHODS and (answers := [a for a in data.answers if a.plain])
    }
    layout = charts.axes("limit, tokens", "written, tokens")
    layout["hovermode"] = "closest"
    if not found:
        return _nothing(layout)
    data = [_pairs(method, answers) for method, answers in found.items()] + [
        _medians(method, answers) for method, answers in found.items()
    ]
    charts.legend(layout, data)
    data.insert(0, _identity([a.target for answers in found.values() for a in answers], "limit"))
    rows = [
        [label(method), limit, len(counts), float(np.median(counts)), max(counts), sum(n > limit for n in counts)]
        for method, answers in found.items()
        for limit, counts in _by_target(answers).items()
    ]
    passed = [_kept(method, answers) for method, answers in found.items()]
    columns = ("method", "limit", "answers", "median", "longest", "over the limit")
    return Chart(data, layout, "; ".join(passed) + ".", columns, rows)


def _kept(method: Method, answers: Sequence[Answer]) -> str:
    """How many answers pass their limit, and how much of the highest limit is used."""
    over = sum(answer.error > 0 for answer in answers)
    highest, counts = list(_by_target(answers).items())[-1]
    return (
        f"{label(method)}: {over:,} of {len(answers):,} answers pass their limit, and half of those limited to "
        f"{highest:,} tokens have at most {np.median(counts):,.0f}"
    )


def outliers(results: Results) -> Chart:
    """Share of answers more than 20 tokens off, by targets of 300 and more, beside 003 table 3."""
    layout = charts.axes("target, tokens", "% more than 20 tokens off")
    layout["yaxis"]["range"] = [-3, 103]
    data = [
        charts.line(
            list(published.BUCKETS), list(shares), colour, f"{name} in 003", width=1.4, dash="dot", hover="%{y} %"
        )
        for (name, shares), colour in zip(published.OUTLIERS.items(), ("@muted", "@old"), strict=True)
    ]
    rows: list[list[Any]] = []
    told = []
    for method, record in _usable(results).items():
        far = _by_target([a for a in record.answers if a.plain and a.target >= BEYOND])
        if method in ("none", "prompted", "prompted_tuned", "exp_decay", *LIMIT_METHODS) or not far:
            continue
        shares = [100 * float(np.mean([abs(n - target) > FAR for n in counts])) for target, counts in far.items()]
        data.append(_marked(method, list(far), shares, "%{y:.1f} %"))
        rows += [[label(method), target, share, len(far[target])] for target, share in zip(far, shares, strict=True)]
        told.append(f"{label(method)} {min(shares):.1f} to {max(shares):.1f} %")
    charts.legend(layout, data)
    rows += [
        [f"{name} in 003 table 3", f"{middle - 25}–{middle + 25}", share, ""]
        for name, shares in published.OUTLIERS.items()
        for middle, share in zip(published.BUCKETS, shares, strict=True)
    ]
    measured = "; ".join(told) if told else "Nothing measured yet"
    summary = f"{measured}. Dotted: 003 table 3 (BART-L, CNN/DM): RPE 10.8 to 95.8 %, PRE 0.4 to 19.8 %."
    return Chart(data, layout, summary, ("method", "target", "% more than 20 off", "answers"), rows)


def _usable(results: Results) -> dict[Method, Length]:
    return {method: result.data for method, result in results.items() if result.data is not None}


def _by_target(answers: Sequence[Answer]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for answer in sorted(answers, key=lambda answer: answer.target):
        found.setdefault(answer.target, []).append(answer.count)
    return found


def _marked(method: Method, x: Sequence[Any], y: Sequence[float], hover: str) -> dict[str, Any]:
    """A method's line with its own marks."""
    colour, symbol = STYLES[method]
    trace = charts.line(x, y, colour, label(method), mode="lines+markers", hover=hover)
    return trace | {"marker": {"size": 8, "symbol": symbol, "color": colour}}


def _pairs(method: Method, answers: Sequence[Answer]) -> dict[str, Any]:
    """Every pair of target and length once; hovering tells how many answers it stands for."""
    seen = Counter((answer.target, answer.count) for answer in answers)
    colour, symbol = STYLES[method]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label(method),
        "x": [target for target, _ in seen],
        "y": [count for _, count in seen],
        "customdata": list(seen.values()),
        "marker": {"size": 6, "symbol": symbol, "color": colour, "opacity": 0.75},
        "hovertemplate": f"asked for %{{x:,}}, wrote %{{y:,}}: %{{customdata}} answers<extra>{label(method)}</extra>",
    }


def _medians(method: Method, answers: Sequence[Answer]) -> dict[str, Any]:
    found = _by_target(answers)
    middle = [float(np.median(counts)) for counts in found.values()]
    return charts.line(list(found), middle, STYLES[method][0], f"{label(method)}, median", width=1.6)


def _identity(values: Sequence[int], name: str) -> dict[str, Any]:
    ends = [min(values), max(values)]
    line = charts.line(ends, ends, "@ink", f"{name}: equal", width=1.2, dash="dash")
    return line | {"hoverinfo": "skip", "showlegend": False}


def _bent(values: np.ndarray) -> np.ndarray:
    """Signed logarithm: 0 stays 0, and ±9, ±99, ±999 are ±1, ±2, ±3."""
    return np.sign(values) * np.log10(1 + np.abs(values))


def _bend_axis(axis: dict[str, Any], top: float) -> None:
    decades = [10**k for k in range(max(1, math.ceil(math.log10(max(top, 1)))) + 1)]
    ticks = [*(-tick for tick in reversed(decades)), 0, *decades]
    reach = 1.05 * float(_bent(np.array(max(top, 2))))
    axis |= {
        "tickvals": _bent(np.array(ticks)).round(4).tolist(),
        "ticktext": [signed(tick) for tick in ticks],
        "range": [-reach, reach],
    }


def _spread(quantiles: np.ndarray) -> str:
    low, _, median, _, high = (signed(float(value)) for value in quantiles)
    return f"median error {median}, 90 % between {low} and {high}"


def _nothing(layout: dict[str, Any]) -> Chart:
    return Chart([], charts.empty(layout, "not measured yet"), "Nothing of this is measured yet.")
