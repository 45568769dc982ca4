"""The Results tab: the report that the backend writes of its results, and charts of what it holds. Files are read when
the tab is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import gradio as gr

from app import computation, diagnoses, live, perplexity, results
from app.charts.base import encode
from app.results import LINK, Figure
from backend.evaluation.report import HEAD, Section, sections

# The files that are drawn, by the section under which they stand.
DRAWN: dict[str, tuple[tuple[str, Callable[[Mapping[str, Any]], list[Figure]]], ...]] = {
    "perplexity": (
        ("perplexity_novels.json", perplexity.figures),
        ("perplexity.json", perplexity.figures),
        ("perplexity_pydoc.json", perplexity.figures),
    ),
    "computation": (("computation.json", computation.figures),),
    "diagnoses": (("diagnoses.json", diagnoses.figures),),
}


def build(tab: gr.Tab) -> None:
    """Makes the tab where it is called; `tab` is what the visitor opens.

    Its components are made when it is opened: a page pays for each one that it has, also for those out of sight.
    """
    gr.render(inputs=[], triggers=[tab.select], queue=False, show_progress="hidden")(_content)


def _content() -> None:
    live.heading(
        "Recorded measurements",
        "made by the commands named below, not by this page; the papers used other models and other data",
    )
    found = sections(results.FOLDER, LINK)
    gr.HTML(_contents(found), apply_default_css=False, elem_id="results-contents", elem_classes=["ll"])
    _markdown("results-head", HEAD.partition("\n\n")[2].replace("(LOG.md)", f"({LINK}LOG.md)"))
    for section in found:
        _markdown(f"results-{section.name}", f"## {section.title}\n\n{section.text}")
        _charts(DRAWN.get(section.name, ()))
    with gr.Accordion("What the papers publish", open=False):
        _markdown("results-published", results.published())


def _markdown(name: str, text: str) -> gr.Markdown:
    return gr.Markdown(text, elem_id=name, elem_classes=["ll-report"], latex_delimiters=[])


def _charts(files: Sequence[tuple[str, Callable[[Mapping[str, Any]], list[Figure]]]]) -> None:
    drawn = [
        (_chart_name(name, number), each) for name, draw in files for number, each in enumerate(_drawn(name, draw))
    ]
    if drawn:
        with gr.Row(elem_classes=["ll-grid", "ll-large", "ll-results"]):
            for name, (title, hint, chart) in drawn:
                live.chart(name, title, hint, encode(chart))


def _drawn(name: str, draw: Callable[[Mapping[str, Any]], list[Figure]]) -> list[Figure]:
    """The charts of a file; none of one that is missing or damaged, which its section says."""
    try:
        return draw(results.content(name))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return []


def _chart_name(file: str, number: int) -> str:
    return f"r-{file.removesuffix('.json')}" + (f"-{number}" if number else "")


def _contents(found: Sequence[Section]) -> str:
    """Links to the sections."""
    links = "".join(f'<a href="#results-{escape(each.name)}">{escape(each.title)}</a>' for each in found)
    return f'<nav class="ll-contents" aria-label="Measurements">{links}</nav>'
