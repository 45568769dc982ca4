"""The Results tab: what was measured, beside what the papers publish. Files are read when the tab is opened."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import gradio as gr

from app import charts, lengths, live, published
from app.benchmarks import KINDS, OTHER, Kind
from app.buttons import QUIET
from app.charts import Chart
from app.lengths import RANGES, Results
from app.results import Result, Shown, Table, names, read

FIRST = next(iter(RANGES))
LENGTH = "length/"


def build(tab: gr.Tab) -> None:
    """Makes the tab where it is called; `tab` is what the visitor opens.

    Its components are made when it is opened: a page pays for each one that it has, also for those out of sight.
    """
    gr.render(inputs=[], triggers=[tab.select], queue=False, show_progress="hidden")(_content)


def _content() -> None:
    results = lengths.recorded()
    live.heading(
        "Recorded measurements",
        "made by the commands named below, not by this page; the papers used other models and other data",
    )
    others = [name for name in names() if name not in KINDS and not name.startswith(LENGTH)]
    sections = KINDS | {name: OTHER._replace(title=name) for name in others}
    _words("results-contents", _contents(sections))
    with gr.Column(elem_classes=["ll-panel"], elem_id="results-range"):
        chosen = live.choice("range", "Length control: range of targets", _options(results), FIRST)
    comparison, targets, errors = _ranged(FIRST)
    table = _words("results-comparison", comparison)
    with _grid():
        answers = live.chart("r-targets", "Target against length", "Every answer (000 figures 2 and 6)", targets)
        boxes = live.chart(
            "r-errors",
            "Error by method",
            "Boxes hold half of the answers, whiskers 90 %; logarithmic both ways",
            errors,
        )
        _chart("r-limits", "Limit against length", "Max New Tokens++ (000 figure 5)", lengths.limits(results))
        _chart("r-outliers", "Beyond training", "Answers more than 20 tokens off", lengths.outliers(results))
        _chart("r-likeness", "Summaries", "Like their authors’ own (000 figure 3, left)", lengths.likeness(results))
        _chart("r-strayed", "Their lengths", "Off from the target (000 figure 3, right)", lengths.strayed(results))
    _words("results-length", _length_sources(results))
    for name, kind in sections.items():
        _section(name, kind)
    chosen.change(_ranged, [chosen], [table, answers, boxes], queue=False, **QUIET)


def _words(name: str, html: str) -> gr.HTML:
    return gr.HTML(html, apply_default_css=False, elem_id=name, elem_classes=["ll"])


def _grid() -> gr.Row:
    return gr.Row(elem_classes=["ll-grid", "ll-large", "ll-results"])


def _chart(name: str, title: str, hint: str, chart: Chart) -> gr.HTML:
    return live.chart(name, title, hint, charts.encode(chart))


def _section(name: str, kind: Kind) -> None:
    """What a file says in a sentence, its figures, then its tables."""
    stem = _stem(name)
    result = read(name, kind.command, kind.model)
    shown = kind.show(result.data) if result.data else Shown("")
    words = f"<p>{escape(shown.words)}</p>" if shown.words else ""
    head = f"<h2>{escape(kind.title)}</h2>{words}"
    body = "".join(map(_table, shown.tables)) + _sources([result], shown.apart)
    if not shown.figures:
        _words(f"results-{stem}", _panel(head + body))
        return
    _words(f"results-{stem}", _panel(head))
    with _grid():
        for number, figure in enumerate(shown.figures):
            _chart(f"r-{stem}-{number}" if number else f"r-{stem}", *figure)
    _words(f"results-{stem}-tables", _panel(body))


def _stem(name: str) -> str:
    return name.removesuffix(".json").replace("/", "-")


def _contents(sections: Mapping[str, Kind]) -> str:
    """Links to the sections."""
    places = {"results-range": "Length control"} | {f"results-{_stem(n)}": kind.title for n, kind in sections.items()}
    links = "".join(f'<a href="#{escape(place)}">{escape(title)}</a>' for place, title in places.items())
    return f'<nav class="ll-contents" aria-label="Measurements">{links}</nav>'


def _panel(html: str) -> str:
    return f'<section class="ll-panel">{html}</section>'


def _options(results: Results) -> list[dict[str, str]]:
    return [
        {"id": name, "label": lengths.called(name), "hint": RANGES[name][1] if name in RANGES else "", "off": ""}
        for name in lengths.ranges(results)
    ]


def _ranged(chosen: str) -> list[str]:
    """What the range of targets decides: the comparison and two charts."""
    results = lengths.recorded()
    return [
        _comparison(results, chosen),
        charts.encode(lengths.targets(results, chosen), chosen),
        charts.encode(lengths.errors(results, chosen), chosen),
    ]


def _comparison(results: Results, chosen: str) -> str:
    note = (
        "SD is of the absolute error. The perplexity ratio, whatever the range, is of the answers to questions with "
        "targets in range, each cut with the untouched model’s own to the shorter of both."
    )
    table = _table(lengths.comparison(results, chosen))
    return _panel(f'{table}<p class="ll-hint">{note}</p>')


def _length_sources(results: Results) -> str:
    found = (lengths.quality(results), lengths.summaries(results), lengths.variances(results))
    tables = "".join(_table(table) for table in found if table)
    theirs = f"<details><summary>{published.SUMMARISED.caption}</summary>{_table(published.SUMMARISED)}</details>"
    return _panel(tables + theirs + _sources(list(results.values())))


def _sources(results: list[Result[Any]], apart: str = "") -> str:
    """Where figures come from, in small print: provenance and download, or why there is none."""
    lines = [*map(_source, results), *([escape(apart)] if apart else [])]
    return f'<ul class="ll-sources">{"".join(f"<li>{line}</li>" for line in lines)}</ul>'


def _source(result: Result[Any]) -> str:
    if result.data is None:
        return escape(result.problem)
    name, earlier = escape(result.name), result.data.went_on_from
    line = f'<a href="lab/results/{name}" download>{name}</a> {escape(result.data.provenance)}'
    if not earlier:
        return line
    calls = "".join(f"<li>{escape(one.call)}</li>" for one in earlier)
    return f"{line}<details><summary>went on from {len(earlier)} earlier</summary><ul>{calls}</ul></details>"


def _table(table: Table) -> str:
    """HTML of a table that scrolls by itself where it is wider than the page."""
    quoted = [' class="ll-quoted"' if i == table.quoted else "" for i in range(len(table.columns))]
    head = "".join(
        f'<th scope="col"{mark}>{escape(name)}</th>' for name, mark in zip(table.columns, quoted, strict=True)
    )
    rows = "".join(f"<tr>{_cells(row, quoted)}</tr>" for row in table.rows)
    caption = escape(table.caption)
    return (
        f'<div class="ll-scroll" tabindex="0" role="region" aria-label="{caption}"><table>'
        f"<caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _cells(row: Any, marks: list[str]) -> str:
    """A row's cells; in a short row the second one reaches as far as is missing."""
    first, *rest = row
    span = len(marks) - len(row) + 1
    cells = [f'<th scope="row">{escape(first)}</th>']
    for i, cell in enumerate(rest):
        wide = f' colspan="{span}" class="ll-missing"' if span > 1 and i == 0 else marks[len(marks) - len(rest) + i]
        cells.append(f"<td{wide}>{escape(cell)}</td>")
    return "".join(cells)
