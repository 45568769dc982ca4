"""The streamed text as the page receives it: a string that only grows, so that only what is new travels."""

from __future__ import annotations

import orjson

from app.series import Series


def lines(series: Series, before: str = "") -> str:
    """`before` (this function's last value for the same run) and one JSON line for each token since.

    The first line names the run; each other one is [text, p, spread in nats, remaining or null].
    """
    known = before.count("\n") - 1
    head = before or f"{series.run}\n"
    return head + "".join(_line(series, i) for i in range(max(known, 0), len(series)))


def _line(series: Series, i: int) -> str:
    row = [series.text[i], round(series.p[i], 4), round(series.spread[i], 3), series.remaining[i]]
    return orjson.dumps(row).decode() + "\n"
