"""Several runs that write at once, in one stream of frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from app import text
from app.frames import Frame
from app.runs import Run, batches, merged
from app.view import View
from backend.inference.control import Control
from backend.steps import Progress

PERIOD = 0.33
# The parts of a frame: of the views, of how near one of them is to its first token while none has one, by its number.
Draw = Callable[[Sequence[View], "Progress | None", int], Mapping[str, str]]


def follow_all(
    lab: Any, views: list[View], run: Run, controls: Sequence[Control], period: float = PERIOD
) -> Iterator[list[View]]:
    """Runs the settings of all views at once, each in the hand of its control, as `app.view.follow` does one; yields
    the same views, grown."""
    run.views = views
    streams = [
        lab.stream(view.series.settings, control, progress=True)
        for view, control in zip(views, controls, strict=True)
    ]
    for events in batches(merged(streams), period):
        for number, view in enumerate(views):
            if view.series.training_length is None:
                view.knows(lab.capabilities(view.series.settings.model, view.series.settings.precision))
            view.add(event for of, event in events if of == number)
        yield views


def frames(
    lab: Any, views: list[View], run: Run, controls: Sequence[Control], names: Sequence[str], draw: Draw,
    period: float = PERIOD,
) -> Iterator[Frame]:  # fmt: skip
    """The texts, by `names`, and what `draw` makes, until all have run or were stopped, once a period at most."""
    texts: dict[str, tuple[Any, ...]] = dict.fromkeys(names, ())
    numbers = count(1)
    for grown in follow_all(lab, views, run, controls, period):
        for name, view in zip(texts, grown, strict=False):
            texts[name] = text.pieces(view.series, texts[name])
        # What one of them waits for is said while none writes.
        writes = any(len(view.series) for view in grown)
        coming = None if writes else next((view.progress for view in grown if view.progress), None)
        yield Frame(draw(grown, coming, next(numbers)), dict(texts), running=True)


def streamed(run: Run, shown: Iterator[Frame]) -> Iterator[str]:
    """Shows the frames of a run in its stream; yields what the page is handed, the last frame at the end."""
    yield run.stream.invitation
    for frame in shown:
        run.stream.show(frame)
    yield run.ends(replace(frame, running=False))
