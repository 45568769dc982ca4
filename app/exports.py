"""A run or a comparison as a file of the visitor's choice."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import gradio as gr

from app import player, toasts
from app.comparison import Comparison
from app.languages import ENGLISH, LANGUAGES
from app.store import Store
from app.view import sentence
from app.visitors import visitor
from backend.record.trace import Trace
from backend.refused import Refused

EXPORTS = {"JSON": ".json", "CSV": ".csv", "Python": ".py", "Notebook": ".ipynb", "HTML": ".html"}
# Of a comparison: the runs' traces in one file, and a table of all answers.
COMPARED = {"JSON": ".zip", "CSV": ".csv"}
UNMADE = "Only what this page compared since it was opened can be saved: press Compare, then save."
# A run, and the page's language.
IN_LANGUAGE = "(trace) => [trace, document.documentElement.lang]"

log = logging.getLogger("length_lab")


def exporter(name: str, first: Trace | None, store: Store) -> Callable[[Trace | None, gr.Request], str]:
    """name: one of EXPORTS. first: what is exported where a visitor has no run. What is made is given a run and the
    page's language, which a page that plays it speaks too."""

    def export(trace: Trace | None, request: gr.Request, language: str = ENGLISH) -> str:
        trace = trace or first
        if trace is None:
            raise toasts.refusal("There is no run to export yet: press Generate.", "Nothing was exported")
        made: Callable[[], str] = {
            "JSON": trace.to_json,
            "CSV": trace.to_csv,
            "Python": trace.to_script,
            "Notebook": lambda: json.dumps(trace.to_notebook(), indent=1),
            "HTML": lambda: player.page(trace, language if language in LANGUAGES else ENGLISH),
        }[name]
        return _kept(f"length-lab-run{EXPORTS[name]}", made, store, request)

    return export


def compared_as(name: str, store: Store) -> Callable[[Comparison | None, gr.Request], str]:
    """name: one of COMPARED. What is made is given a comparison."""

    def save(comparison: Comparison | None, request: gr.Request) -> str:
        if comparison is None:
            raise toasts.refusal(UNMADE, "Nothing was exported")
        made: dict[str, Callable[[], str | bytes]] = {"JSON": comparison.to_zip, "CSV": comparison.to_csv}
        return _kept(f"length-lab-comparison{COMPARED[name]}", made[name], store, request)

    return save


def _kept(name: str, made: Callable[[], str | bytes], store: Store, request: gr.Request) -> str:
    """The path of a file that is made for whoever asks."""
    owner = visitor(request.request.scope).owner if request.request else ""
    try:
        return store.write(name, made(), owner)
    except Refused as error:
        raise toasts.refusal(sentence(error), "Nothing was exported") from error
    except OSError as error:
        log.error("an export failed", exc_info=error)
        words = "The lab has no room for the file: try again in a few minutes."
        raise toasts.refusal(words, "Nothing was exported") from error
