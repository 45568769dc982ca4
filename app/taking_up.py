"""A run that rests while its page is loaded anew or its connection is lost: the page that comes back takes it up.

It is found by the name of its stream, which cannot be guessed and which the browser's tab remembers. Of a run that was
given up meanwhile the page gets what had been written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from app.buttons import Buttons
from app.orphans import Orphan, Orphans
from app.runs import LOOK, Run, Runs


@dataclass(frozen=True)
class Place:
    """Where a tab shows its runs: the component of its frames and its buttons. left, leaves: components of what else a
    run leaves when it has ended, and their values."""

    stream: gr.HTML
    buttons: Buttons
    left: Sequence[Any] = ()
    leaves: Callable[[Run | Orphan], Sequence[Any]] = lambda run: ()

    def ended(self, run: Run | Orphan) -> dict[Any, Any]:
        """The updates that show how a run ended."""
        shown = {self.stream: run.last} if run.last else {}
        left = dict(zip(self.left, self.leaves(run), strict=True))
        return shown | self.buttons.updates(False) | left


def taking_up(
    runs: Runs, orphans: Orphans, places: Mapping[str, Place], moved: Callable[[str | None, str | None], None]
) -> Callable[..., AsyncIterator[dict[Any, Any]]]:
    """The event of a page that comes back: follows the run of that name to its end. moved: hears of the session that
    had the run, and of the one that has it now."""

    async def take_up(request: gr.Request, name: str) -> AsyncIterator[dict[Any, Any]]:
        run = runs.named(name)
        place = places.get(run.place) if run else None
        if run is None or place is None:
            orphan = orphans.take(name)
            yield places[orphan.place].ended(orphan) if orphan else gr.skip()
            return
        moved(run.session, request.session_hash)
        run.session = request.session_hash
        run.control.go_on()
        yield {place.stream: run.stream.invitation} | place.buttons.updates(True)
        while not run.delivered.is_set():
            await asyncio.sleep(LOOK)
        yield place.ended(run)

    return take_up
