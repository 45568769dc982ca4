"""The queue of what visitors ask for: who is let in, what begins, and what is kept of whom.

Gradio's own is one for all: a message that cannot be delivered ends it, its size is shared by runs and by Stop, and it
computes for readers who never come.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import orjson
from gradio.block_function import BlockFunction
from gradio.data_classes import PredictBodyInternal
from gradio.queueing import Event, Queue
from gradio.server_messages import (
    EventMessage,
    HeartbeatMessage,
    ProcessCompletedMessage,
    ProcessGeneratingMessage,
)
from starlette.exceptions import HTTPException
from starlette.requests import Request

from app.presence import Present
from app.runs import Runs
from app.shares import Shares
from app.visitors import visitor

# Gradio looks into its queue a thousand times a second, and each look takes the interpreter's lock from the run.
PERIOD = 0.03
# Seconds between looks for what can be let go, and before a task that failed is begun again.
TIDYING, REST = 2.0, 0.5
# Seconds before who asks for more than a share hears so: one who asks again at once takes no time from the others.
REFUSING = 1.0
# What programs ask for of the events that are not in the API's description.
COMPLETION = "chat_completion"
SESSION = re.compile(r"[\w-]{1,64}", re.ASCII)
# Events of all visitors that wait or go on.
PLACES = 2000
# When a session was last heard of that nobody can come back to.
GONE = float("-inf")

log = logging.getLogger("length_lab")


class Asked(NamedTuple):
    """Who asked for an event: the visitor apart from others at one address, and that address."""

    alone: tuple[str, ...]
    address: str


class Mailboxes(dict[str, Any]):
    """Messages by session. Gradio's holds 2,000 sessions, of which those that pass push out those that wait. Where a
    reader is cut off it deletes the session's, and with it what the session has asked for since and is about to read;
    here `Admission.left` says what a reader leaves behind."""

    def __delitem__(self, session: str) -> None:
        pass


class Admission(Queue):
    """Gradio's queue, with limits a visitor and an address. Runs begin when they are read; else they rest, then end.

    runs: of all sessions. forgets: lets go of what else is kept of a session. tidies: called every
    TIDYING seconds, with the owners of files that are there.
    """

    def __init__(
        self,
        blocks: Any,
        shares: Shares,
        concurrency: int,
        runs: Runs,
        forgets: Callable[[str], None],
        tidies: Callable[[set[str]], None],
    ) -> None:
        super().__init__(True, PLACES, 1, PLACES, blocks, default_concurrency_limit=concurrency)
        self.sleep_when_free = self.progress_update_sleep_when_free = PERIOD
        # Nobody asks for statistics of the last ten thousand events, which are made anew after each.
        self.ANALYTICS_MAX_EVENTS = 0
        self.pending_messages_per_session = Mailboxes()  # type: ignore[assignment]
        self.shares = shares
        self.present = Present()
        self._runs, self._forgets, self._tidies = runs, forgets, tidies
        self._asked: WeakKeyDictionary[Event, Asked] = WeakKeyDictionary()
        self._seen: dict[str, float] = {}
        self._nameless: set[str] = set()
        # When what a session asked for ends unless somebody comes back; of them, those whose page was closed, of which
        # nothing is kept then; sessions whose run another has taken up.
        self._ending: dict[str, float] = {}
        self._closed: set[str] = set()
        self._taken: set[str] = set()
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begins the tasks that serve all, each of which is begun again should it ever fail."""
        self._loop = asyncio.get_running_loop()
        # Each place is a task, not a thread: what only waits takes no place from what serves.
        self.active_jobs = [None] * PLACES
        self._closing = False
        self._kept = [
            self._loop.create_task(self._kept_up(task))
            for task in (self.start_processing, self.start_progress_updates, self._tidying)
        ]

    async def _kept_up(self, task: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while not self._closing:
            try:
                await task()
            except Exception:
                if self._closing:
                    return
                log.exception("a task of the queue failed and is begun again")
                await asyncio.sleep(REST)
            self.stopped = self._closing

    def close(self) -> None:
        """Ends the tasks that serve all, and lets those who read hear of it before their streams are cut."""
        self._closing = True
        super().close()
        # Nobody ends any more what rests.
        for session in [*self._ending]:
            self._runs.stop(session)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        # Whatever Gradio's stream gets once the queue is stopped, it tells that instead.
        for messages in self.pending_messages_per_session.values():
            messages.put_nowait(HeartbeatMessage())

    def _cancel_asyncio_tasks(self) -> None:
        """Gradio's task ends everybody's events with it: only where the queue is closed."""
        if self._closing:
            super()._cancel_asyncio_tasks()

    def send_message(self, event: Event, event_message: EventMessage) -> None:
        """Delivers a message, or drops it where its session is gone."""
        if event.session_hash in self.pending_messages_per_session:
            super().send_message(event, _deliverable(event_message))

    def compute_analytics_summary(self, records: Any) -> dict[str, Any]:
        """Nothing: no statistics are kept."""
        return self.cached_event_analytics_summary

    async def push(self, body: PredictBodyInternal, request: Request, username: str | None) -> Any:
        """Takes an event into the queue. HTTPException 400 for a session that is none, 404 for a function that is none,
        429, after REFUSING, beyond a share."""
        if body.session_hash is not None and not SESSION.fullmatch(body.session_hash):
            raise HTTPException(400, "A session_hash is 1 to 64 letters, digits, - or _: send one, or leave it out.")
        who = visitor(request.scope)
        asked = Asked(who.alone(body.session_hash), who.address)
        function = self._function(body)
        try:
            self._refuse(asked, body.session_hash, function)
        except HTTPException:
            await asyncio.sleep(REFUSING)
            raise
        nameless = body.session_hash is None
        pushed = await super().push(body, request, username)
        if pushed[0] and (event := self.event_ids_to_events.get(str(pushed[1]))):
            self._asked[event] = asked
            self.saw(event.session_hash)
            if nameless:
                self._nameless.add(event.session_hash)
        return pushed

    def _function(self, body: PredictBodyInternal) -> BlockFunction:
        session = self.blocks.state_holder.session_data.get(body.session_hash or "")
        functions = (session.blocks_config if session else self.blocks).fns
        if body.fn_index not in functions:
            raise HTTPException(404, "There is no function of that number: open the page anew.")
        return functions[body.fn_index]

    def _refuse(self, asked: Asked, session: str | None, function: BlockFunction) -> None:
        """HTTPException where the visitor, or all at the address, have as much in the queue as they may."""
        run = function.types_generator
        most, what = (self.shares.visitor_runs, "runs") if run else (self.shares.visitor_presses, "presses")
        unread = self.pending_event_ids_session.get(session or "", ())
        if len(unread) >= self.shares.visitor_runs + self.shares.visitor_presses:
            raise HTTPException(429, "Too much waits to be read: read the events of this session, then ask again.")
        there = [
            other
            for event in self.event_ids_to_events.values()
            if event.fn.types_generator == run and (other := self._asked.get(event))
        ]
        if sum(other.alone == asked.alone for other in there) >= most:
            raise HTTPException(429, f"You have {most} {what} waiting: try again when one of them has ended.")
        most *= self.shares.address_visitors
        if sum(other.address == asked.address for other in there) >= most:
            raise HTTPException(429, f"Your address has {most} {what} waiting: try again when one of them has ended.")

    def get_events(self) -> tuple[list[Event], bool, str] | None:
        """The next event to begin: the first in its line that is read, or is a press."""
        lines = list(self.event_queue_per_concurrency_id.values())
        random.shuffle(lines)
        for line in lines:
            if line.concurrency_limit is not None and line.current_concurrency >= line.concurrency_limit:
                continue
            for event in line.queue:
                if not self._unread_run(event):
                    line.queue.remove(event)
                    return [event], False, line.concurrency_id
        return None

    def waits(self, name: str) -> float:
        """About how many seconds one more run of a line would wait before it begins, by how long those there take."""
        line = self.event_queue_per_concurrency_id.get(name)
        if line is None or line.concurrency_limit is None or line.current_concurrency < line.concurrency_limit:
            return 0.0
        there = [*line.start_times_per_fn, *(event.fn for event in line.queue)]
        spent = [self.process_time_per_fn[fn].avg_time for fn in there if fn in self.process_time_per_fn]
        mean = sum(spent) / len(spent) if spent else 0.0
        return mean * (len(line.queue) + 1) / line.concurrency_limit

    def unread(self, session: str | None) -> bool:
        """Whether a session has updates of a run that it has not read; from any thread."""
        messages = self.pending_messages_per_session.get(session or "")
        waiting = tuple(messages._queue) if messages else ()
        return any(isinstance(each, ProcessGeneratingMessage) for each in waiting)

    def session_of(self, event: str) -> str:
        """The session of an event that runs, waits, or has ended unread."""
        if found := self.event_ids_to_events.get(event):
            return found.session_hash
        return next((name for name, events in self.pending_event_ids_session.items() if event in events), event)

    def left(self, session: str, whole: bool) -> None:
        """Takes note that nobody reads a session any more; what it asked for ends, where that was not read whole. A
        page has time to come back, in which its runs rest; a program has not."""
        if not whole:
            asked = [event.fn for event in self._events(session)]
            page = any(fn.api_visibility == "private" and fn.api_name != COMPLETION for fn in asked)
            self._end_in(session, self.shares.lost_seconds if page else 0)
        if session in self._nameless:
            self._seen[session] = GONE

    def closed(self, session: str) -> None:
        """Takes note that a page was closed, or is loaded anew."""
        if self._events(session):
            self._closed.add(session)
            self._end_in(session, self.shares.closed_seconds)

    def came(self, session: str) -> None:
        """Takes note that a session is read."""
        self._closed.discard(session)
        if self._ending.pop(session, None) is not None:
            self._runs.go_on(session)

    def taken_up(self, before: str | None, session: str | None) -> None:
        """Lets what a session asked for go on, since another has taken up its run."""
        if before and before != session:
            self._taken.add(before)

    def knows(self, session: str) -> bool:
        """Whether anything is kept of a session, which was heard of just now."""
        known = session in self.blocks.state_holder.session_data
        if known:
            self.saw(session)
        return known

    def _events(self, session: str) -> list[Event]:
        return [each for each in self.event_ids_to_events.values() if each.session_hash == session]

    def _end_in(self, session: str, seconds: float) -> None:
        due = time.monotonic() + seconds
        self._ending[session] = min(due, self._ending.get(session, due))
        self._runs.pause(session)
        if not seconds or self._closing:
            self._end(session)

    def _end(self, session: str) -> None:
        del self._ending[session]
        if session not in self._taken:
            for event in self._events(session):
                self._drop(event)
            if session in self._closed:
                self._runs.stop(session)
            else:
                self._runs.lose(session)
        self._closed.discard(session)
        self.pending_messages_per_session.pop(session, None)
        self.pending_event_ids_session.pop(session, None)

    async def clean_events(self, *, session_hash: str | None = None, event_id: str | None = None) -> None:
        """What Gradio does as soon as a reader is gone; here `left` says when."""

    def _drop(self, event: Event) -> None:
        event.alive = False
        self.pending_event_ids_session.get(event.session_hash, set()).discard(event._id)
        line = self.event_queue_per_concurrency_id[event.concurrency_id].queue
        if event in line:
            line.remove(event)
            del self.event_ids_to_events[event._id]

    def saw(self, session: str) -> None:
        """Notes that a session was heard of."""
        if self._seen.get(session) != GONE:
            self._seen[session] = time.monotonic()

    async def _tidying(self) -> None:
        while not self.stopped:
            self._tidy()
            await asyncio.to_thread(self._tidies, set(self.present.owners))
            await asyncio.sleep(TIDYING)

    def _tidy(self) -> None:
        """Lets go of runs that nobody came to read, and of what is kept of sessions that are gone."""
        now = time.monotonic()
        for session in [name for name, due in self._ending.items() if now >= due]:
            self._end(session)
        for session in {
            *self.blocks.state_holder.session_data,
            *self.pending_messages_per_session,
            *self.pending_event_ids_session,
        }:
            self._seen.setdefault(session, now)
        busy = set()
        for event in list(self.event_ids_to_events.values()):
            if now - event.enqueue_time > self.shares.unread_seconds and self._waits_unread(event):
                self._drop(event)
            else:
                busy.add(event.session_hash)
        for session in [name for name in self._seen if name in self.present or name in busy]:
            self.saw(session)
        idle = sorted(set(self._seen) - busy - self.present.sessions, key=self._seen.__getitem__)
        for place, session in enumerate(reversed(idle)):
            if now - self._seen[session] > self.shares.kept_seconds or place >= PLACES:
                self.forget(session)

    def _unread_run(self, event: Event) -> bool:
        """Whether it is a run that nobody reads."""
        return event.fn.types_generator and not self.present.readers[event.session_hash]

    def _waits_unread(self, event: Event) -> bool:
        return self._unread_run(event) and event in self.event_queue_per_concurrency_id[event.concurrency_id].queue

    def forget(self, session: str) -> None:
        """Keeps nothing of a session."""
        self._seen.pop(session, None)
        self._nameless.discard(session)
        self._ending.pop(session, None)
        self._closed.discard(session)
        self._taken.discard(session)
        for kept in (
            self.pending_messages_per_session,
            self.pending_event_ids_session,
            self.blocks.pending_streams,
            self.blocks.pending_diff_streams,
        ):
            kept.pop(session, None)
        self._forgets(session)


def _deliverable(message: EventMessage) -> EventMessage:
    """A message as it is, or that it cannot be sent: Gradio would end its session's stream with an event's last."""
    if not isinstance(message, ProcessCompletedMessage):
        return message
    try:
        orjson.dumps(message.model_dump(), default=str)
    except TypeError:
        words = "What was sent is not valid Unicode text (it holds half a surrogate pair): paste it again."
        return message.model_copy(update={"success": False, "output": {"error": words}})
    return message
