"""Messages in a corner of the page. Gradio takes them for HTML, and what they quote may come from a file or a link."""

from __future__ import annotations

from html import escape

import gradio as gr

# Seconds that a warning stays: whoever opens a link may look away while the page is made ready.
STAYS = 60


def inform(words: str) -> None:
    """Says what can be done instead."""
    gr.Info(escape(words))


def warn(words: str, title: str) -> None:
    """Says what was not done as it was asked for."""
    gr.Warning(escape(words), duration=STAYS, title=title)


def refusal(words: str, title: str) -> gr.Error:
    """The error to raise where an event is refused."""
    return gr.Error(escape(words), title=title, print_exception=False)
