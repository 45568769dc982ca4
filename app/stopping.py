"""The Stop button: ends a run within a token, or takes it out of the queue where it has not begun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from app.runs import Runs

LAST_FRAME_SECONDS = 20


def stoppable(stop: gr.Button, event: Any, runs: Runs, buttons: Sequence[gr.Button], idle: Sequence[Any]) -> None:
    """Wires `stop` to the runs that `event` starts; `idle` are the buttons' updates for when nothing runs."""
    # Cancelling an event drops what is still on its way to the page, so a run that has begun is only asked to end and
    # sends its own last frame. The count changes, and with it cancels the event, only where nothing had begun.
    unqueued = gr.State(0)
    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": None}

    def halt(request: gr.Request, count: int) -> int:
        run = runs.of(request.session_hash)
        if run is None:
            return count + 1
        run.control.stop()
        run.delivered.wait(LAST_FRAME_SECONDS)
        return count

    # Only an answer that came through the queue tells the page that a state changed.
    stop.click(halt, [unqueued], [unqueued], **quiet)
    unqueued.change(lambda: list(idle), None, list(buttons), cancels=[event], **quiet)
