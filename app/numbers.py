"""Numbers in the form that are out of range, while they are typed or when a run is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import gradio as gr


def in_range(parts: Iterable[Any]) -> str:
    """JavaScript for an event with these inputs: moves numbers into their ranges, and an empty one to the least.

    Gradio refuses others before any code of the page runs, and outside its queue answers with an internal error.
    """
    # What a link sets comes in range, and may come before the script.
    return f"(...values) => window.LengthLab?.inRange(values, {_ranges(parts)}) ?? values"


def refused(figures: str, parts: Iterable[Any]) -> str:
    """JavaScript for the failure of an event with these inputs: the `figures` that wait say which number to change."""
    return f"(...values) => LengthLab.refused({json.dumps(figures)}, values, {_ranges(parts)})"


def _ranges(parts: Iterable[Any]) -> str:
    """Of each number its least, its most and its label, as JSON."""
    return json.dumps(
        [
            [part.minimum, part.maximum, part.label] if isinstance(part, gr.Slider | gr.Number) else None
            for part in parts
        ]
    )
