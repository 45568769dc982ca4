"""Numbers in the form that are out of range while they are typed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import gradio as gr


def in_range(parts: Iterable[Any]) -> str:
    """JavaScript for an event with these inputs: moves numbers into their ranges, and an empty one to the least.

    Gradio refuses others before any code of the page runs, and outside its queue answers with an internal error.
    """
    ranges = [[part.minimum, part.maximum] if isinstance(part, gr.Slider | gr.Number) else None for part in parts]
    return f"(...values) => LengthLab.inRange(values, {json.dumps(ranges)})"
