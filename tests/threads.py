"""Works that are done by threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """What each returns or raises; all begin at the same moment."""
    found: list[Any] = [None] * len(works)
    begin = threading.Barrier(len(works))

    def work(index: int) -> None:
        begin.wait()
        try:
            found[index] = works[index]()
        except Exception as error:
            found[index] = error

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
