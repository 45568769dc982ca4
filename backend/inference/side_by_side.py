"""Cases measured side by side: their runs share the steps of the model's scheduler, and none depends on another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from typing import TypeVar

Case = TypeVar("Case")
Found = TypeVar("Found")

ROWS = 16


def side_by_side(measure: Callable[[Case], Found], cases: Iterable[Case], rows: int = ROWS) -> Iterator[Found]:
    """What `measure` makes of each case, in their order, so many at a time. The first error ends it."""
    with ThreadPoolExecutor(rows) as pool:
        yield from pool.map(measure, cases)


def as_they_end(
    measure: Callable[[Case], Found], cases: Iterable[Case], rows: int = ROWS
) -> Iterator[tuple[int, Found]]:
    """The same, each with the number of its case from 0, as soon as it is there. What has not begun when the iterator
    is closed never does."""
    # With the caller's context, in which Gradio keeps the request: a ZeroGPU Space reads whose share of time it is.
    context = copy_context()
    with ThreadPoolExecutor(rows) as pool:
        begun = {pool.submit(context.copy().run, measure, case): number for number, case in enumerate(cases)}
        try:
            for ended in as_completed(begun):
                yield begun[ended], ended.result()
        finally:
            for each in begun:
                each.cancel()
