"""The cap on new tokens, which follows what is aimed at until somebody gives it another value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from app.buttons import QUIET
from backend.settings import CAP


def follows(cap: Any, aims: Sequence[Any], wanted: Callable[..., int]) -> None:
    """Lets the box `cap` follow the boxes `aims`. wanted: the cap that leaves room for their values."""
    followed = gr.State(CAP)

    def follow(given: int | None, before: int, *values: Any) -> list[Any]:
        now = min(wanted(*values), cap.maximum)
        # What is already there is not sent: it could arrive after another value was typed.
        return [now if given == before != now else gr.skip(), now]

    gr.on(
        [part.change for part in aims], follow, [cap, followed, *aims], [cap, followed],
        trigger_mode="always_last", concurrency_limit=None, **QUIET,
    )  # fmt: skip
