"""A recorded run shown again, in the time that it took. It keeps no thread while it waits."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable

from anyio import CapacityLimiter, to_thread

from app.frames import PERIOD, Frame
from app.runs import LOOK
from app.view import View
from backend.record.trace import Trace
from backend.steps import Finish, Step

# However many replays go on, so many frames of theirs are made at a time.
DRAWING = CapacityLimiter(2)


async def frames(trace: Trace, stopped: Callable[[], bool]) -> AsyncIterator[Frame]:
    """The frames of a recorded run; the last shows its end, or where it was stopped."""
    view = View.begun(trace)
    async for events in paced(trace, stopped):
        view.add(events)
        yield await to_thread.run_sync(view.frame, limiter=DRAWING)
    view.cut_short(trace)
    yield view.frame()


async def paced(
    trace: Trace, stopped: Callable[[], bool], period: float = PERIOD
) -> AsyncIterator[list[Step | Finish]]:
    """What has come of a recorded run, at most once every `period` seconds, until `stopped` says so."""
    started, shown = time.monotonic(), float("-inf")
    coming = deque(trace.events())
    while coming and not stopped():
        passed = time.monotonic() - started
        if passed - shown >= period and _has_come(coming[0], passed):
            events = []
            while coming and _has_come(coming[0], passed):
                events.append(coming.popleft())
            shown = passed
            yield events
        else:
            await asyncio.sleep(LOOK)


def _has_come(event: Step | Finish, passed: float) -> bool:
    return not isinstance(event, Step) or event.seconds <= passed
