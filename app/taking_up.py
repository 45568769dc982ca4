"""A run that goes on while its page is loaded anew or its connection is lost: the page that comes back takes it up.

It is found by the name of its stream, which cannot be guessed and which the browser's tab remembers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from app.buttons import Buttons
from app.runs import LOOK, Runs


@dataclass(frozen=True)
class Place:
    """Where a tab shows its runs: the component of its frames and its buttons. left, leaves: components of what else a
    run leaves when it has ended, and their values, of its view."""

    stream: gr.HTML
    buttons: Buttons
    left: Sequence[Any] = ()
    leaves: Callable[[Any], Sequence[Any]] = lambda view: ()


def taking_up(
    runs: Runs, places: Mapping[str, Place], moved: Callable[[str | None, str | None], None]
) -> Callable[..., AsyncIterator[dict[Any, Any]]]:
    """The event of a page that comes back: follows the run of that name to its end. moved: hears of the session that
    had the run, and of the one that has it now."""

    async def take_up(request: gr.Request, name: str) -> AsyncIterator[dict[Any, Any]]:
        run = runs.named(name)
        place = places.get(run.place) if run else None
        if run is None or place is None:
            yield gr.skip()
            return
        moved(run.session, request.session_hash)
        run.session = request.session_hash
        yield {place.stream: run.stream.invitation} | place.buttons.updates(True)
        while not run.delivered.is_set():
            await asyncio.sleep(LOOK)
        shown = {place.stream: run.last} if run.last else {}
        left = dict(zip(place.left, place.leaves(run.view), strict=True)) if run.view else {}
        yield shown | place.buttons.updates(False) | left

    return take_up
