"""The Evidence tab: what the experiments' cards show first, and below it every measurement, to be searched. Files are
read when the tab is opened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from html import escape

import gradio as gr

from app import live, results
from app.charts.base import encode
from app.results import LINK
from backend.evaluation.card import Evidence, Figure
from backend.evaluation.papers import PAPERS
from backend.evaluation.report import HEAD, Section, sections

# The name of the log's section.
LOG = "log"


def build(tab: gr.Tab) -> None:
    """Makes the tab where it is called; `tab` is what the visitor opens.

    Its components are made when it is opened: a page pays for each one that it has, also for those out of sight.
    """
    gr.render(inputs=[], triggers=[tab.select], queue=False, show_progress="hidden")(_content)


def _content() -> None:
    found = [*sections(results.FOLDER, LINK), *_log()]
    _evidence(found)
    live.measurements([(section.name, section.title) for section in found])
    head = HEAD.partition("\n\n")[2].replace("(LOG.md)", "(#results-log)")
    _markdown("results-head", f"{head}\n\n{_papers()}")
    for section in found:
        with gr.Column(elem_classes=["ll-measured"]):
            _markdown(f"results-{section.name}", f"## {section.title}\n\n{section.text}", written=section.name == LOG)
            _figures(section)
    with gr.Accordion("What the papers publish", open=False):
        _markdown("results-published", results.published())


def _log() -> Iterator[Section]:
    """What did not work, as the log has it."""
    if (log := results.FOLDER / "LOG.md").is_file():
        yield Section(LOG, "What did not work", log.read_text("utf-8").partition("\n\n")[2])


def _papers() -> str:
    """What the numbers of papers stand for."""
    return "Papers: " + "; ".join(f"{number} is {paper.cited}" for number, paper in PAPERS.items()) + "."


def _evidence(found: Sequence[Section]) -> None:
    """A panel for each piece of evidence, in order: sentence, figure, and the paper's beside ours."""
    all_of_them = [(each, section.command) for section in found if section.card for each in section.card.evidence]
    with gr.Row(elem_classes=["ll-evidence"]):
        for each, command in sorted(all_of_them, key=lambda pair: pair[0].order):
            with gr.Column(elem_classes=["ll-panel", "ll-proof"], min_width=300):
                _html(f"<h2>{escape(each.theme)}</h2><p>{_said(each.finding)}</p>")
                for chart in _drawn([each.figure]):
                    live.chart(f"e-{each.order}", each.figure.title, each.figure.hint, chart[1])
                _html(_beside(each, command))


def _beside(each: Evidence, command: str) -> str:
    """The paper's figure, ours, where that falls short, and the command."""
    return (
        f"<dl><dt>{escape(PAPERS[each.paper].cited)}</dt><dd>{_said(each.published)}</dd>"
        f"<dt>Here</dt><dd>{_said(each.ours)}</dd>"
        f'<dt class="ll-short">Where it falls short</dt><dd>{_said(each.short)}</dd>'
        f"<dt>Measured by</dt><dd><code>{escape(command)}</code></dd></dl>"
    )


def _said(words: str) -> str:
    """Escaped; no line ends between a number and its per cent."""
    return escape(words).replace(" %", "\u00a0%")


def _html(text: str) -> gr.HTML:
    return gr.HTML(text, apply_default_css=False, elem_classes=["ll"])


def _markdown(name: str, text: str, written: bool = False) -> gr.Markdown:
    """written: whether its lists are English in every language."""
    classes = ["ll-report", *(["ll-written"] if written else [])]
    return gr.Markdown(text, elem_id=name, elem_classes=classes, latex_delimiters=[])


def _figures(section: Section) -> None:
    if drawn := [*_drawn(section.card.figures if section.card else ())]:
        with gr.Row(elem_classes=["ll-grid", "ll-large", "ll-results"]):
            for number, (figure, chart) in enumerate(drawn):
                live.chart(f"r-{section.name}" + (f"-{number}" if number else ""), figure.title, figure.hint, chart)


def _drawn(figures: Sequence[Figure]) -> Iterator[tuple[Figure, str]]:
    """Their charts; none of a figure whose numbers are damaged."""
    for figure in figures:
        with suppress(TypeError, ValueError, IndexError, ArithmeticError):
            yield figure, encode(results.drawn(figure))
