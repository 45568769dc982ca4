"""Cases measured side by side: their runs share the steps of the model's scheduler, and none depends on another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Case = TypeVar("Case")
Found = TypeVar("Found")

ROWS = 16


def side_by_side(measure: Callable[[Case], Found], cases: Iterable[Case], rows: int = ROWS) -> Iterator[Found]:
    """What `measure` makes of each case, in their order, so many at a time. The first error ends it."""
    with ThreadPoolExecutor(rows) as pool:
        yield from pool.map(measure, cases)
