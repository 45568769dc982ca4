"""The Evidence tab: the report that the backend writes of its results, with the figures of its cards. Files are read
when the tab is opened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from html import escape

import gradio as gr

from app import live, results
from app.charts.base import encode
from app.results import LINK
from backend.evaluation.card import Figure
from backend.evaluation.report import HEAD, Section, sections


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
        _figures(section)
    with gr.Accordion("What the papers publish", open=False):
        _markdown("results-published", results.published())


def _markdown(name: str, text: str) -> gr.Markdown:
    return gr.Markdown(text, elem_id=name, elem_classes=["ll-report"], latex_delimiters=[])


def _figures(section: Section) -> None:
    if drawn := [*_drawn(section)]:
        with gr.Row(elem_classes=["ll-grid", "ll-large", "ll-results"]):
            for number, (figure, chart) in enumerate(drawn):
                live.chart(f"r-{section.name}" + (f"-{number}" if number else ""), figure.title, figure.hint, chart)


def _drawn(section: Section) -> Iterator[tuple[Figure, str]]:
    """The charts of a section; none of a figure whose numbers are damaged."""
    for figure in section.card.figures if section.card else ():
        with suppress(TypeError, ValueError, IndexError, ArithmeticError):
            yield figure, encode(results.drawn(figure))


def _contents(found: Sequence[Section]) -> str:
    """Links to the sections."""
    links = "".join(f'<a href="#results-{escape(each.name)}">{escape(each.title)}</a>' for each in found)
    return f'<nav class="ll-contents" aria-label="Measurements">{links}</nav>'
