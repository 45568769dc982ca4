"""The buttons that start a run and end it within a token, or take it out of the queue where it has not begun."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gradio as gr

from app.numbers import refused
from app.runs import Runs

LAST_FRAME_SECONDS = 20
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}


class Start(NamedTuple):
    """What starts a run beside the button: an event, the generator that it runs, and that one's inputs."""

    trigger: Callable[..., Any]
    write: Callable[..., Any]
    inputs: Sequence[Any]


@dataclass
class Buttons:
    """go: starts. stop: ends what runs for `place`. others: usable only while something runs, as `stop` is. resting:
    usable only while nothing does, as `go` is. link: copies what the form holds.
    """

    place: str
    go: gr.Button
    stop: gr.Button
    others: Sequence[gr.Button] = field(default=())
    resting: Sequence[Any] = field(default=())
    link: gr.Button | None = None

    def shares(self, form: Mapping[str, Any]) -> None:
        """Lets `link` copy an address that holds a form: its parts by their names. The server hears nothing of it."""
        assert self.link is not None
        named = json.dumps([f"#{self.link.elem_id}", self.place, [*form]])[1:-1]
        copies = f"(...values) => LengthLab.shareForm({named}, values)"
        self.link.click(None, [*form.values()], None, js=copies, **QUIET)

    def starts(
        self,
        runs: Runs,
        write: Callable[..., Any],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        queue: gr.HTML,
        figures: str,
        others: Sequence[Start] = (),
    ) -> None:
        """Lets `go` run the generator `write`, one run at a time; `queue` tells the place of those who wait.

        figures: the name of those that say what is going on. others: what else starts a run there. The buttons are no
        outputs of `write`, because an update of a button at each frame costs more than the frame.
        """
        # The first press shows at once that it was heard, also while others are before this visitor in the queue.
        waits = f"() => {{ LengthLab.waits('{figures}'); return {self._running(True)} }}"
        events = []
        for start in (Start(self.go.click, write, inputs), *others):
            start.trigger(None, None, self.all, js=waits, **QUIET)
            event = start.trigger(
                start.write,
                list(start.inputs),
                list(outputs),
                show_progress="minimal",
                show_progress_on=[queue],
                concurrency_id="model",
                api_visibility="private",
            )
            event.failure(None, list(start.inputs), None, js=refused(figures, start.inputs))
            self.free_after(event)
            events.append(event)
        self._stops(runs, events, figures)

    def free_after(self, event: Any) -> None:
        """Shows that nothing runs once `event` has ended, in whatever way."""
        # Whatever Gradio's documentation says, an event that failed does not call what comes after `then`.
        for ended in (event.then, event.failure):
            ended(None, None, self.all, js=f"() => {self._running(False)}", **QUIET)

    def busy_during(self, button: gr.Button) -> Any:
        """Shows that something runs as soon as `button` is pressed; returns that event."""
        return button.click(None, None, self.all, js=f"() => {self._running(True)}", **QUIET)

    @property
    def all(self) -> list[Any]:
        """All of them, in a fixed order."""
        return [self.go, self.stop, *self.others, *self.resting]

    def _running(self, runs: bool) -> str:
        """Updates of all buttons, in JavaScript: an answer of the server could come after the run's own frames."""
        return json.dumps([*self.updates(runs).values()])

    def updates(self, runs: bool) -> dict[Any, dict[str, Any]]:
        """Updates of all buttons while something runs, or nothing does."""
        usable = [not runs, *[runs] * (1 + len(self.others)), *[not runs] * len(self.resting)]
        return {button: gr.update(interactive=each) for button, each in zip(self.all, usable, strict=True)}

    def _stops(self, runs: Runs, events: Sequence[Any], figures: str) -> None:
        # Cancelling an event drops what is still on its way to the page, so a run that has begun is only asked to end
        # and sends its own last frame. The count changes, and with it cancels the event, only where nothing had begun.
        unqueued = gr.State(0)

        async def halt(request: gr.Request, count: int) -> int:
            run = runs.of(request.session_hash, self.place)
            if run is None:
                return count + 1
            run.control.stop()
            await run.ended(LAST_FRAME_SECONDS)
            return count

        # Only an answer that came through the queue tells the page that a state changed.
        self.stop.click(halt, [unqueued], [unqueued], concurrency_limit=None, **QUIET)
        gone = f"LengthLab.gone('{figures}', 'good', 'Stopped before it began.')"
        unqueued.change(
            None,
            None,
            self.all,
            cancels=list(events),
            js=f"() => {{ {gone}; return {self._running(False)} }}",
            **QUIET,
        )
