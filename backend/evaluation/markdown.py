"""Figures and tables as Markdown: numbers to be read, each difference with its interval and what it rests on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from backend.measures.bootstrap import Bounded

UNKNOWN = "–"


def figure(value: Any) -> str:
    """A number with three significant digits or all of its whole ones; "–" for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return UNKNOWN
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    return (f"{value:,.{max(0, digits)}f}" if isinstance(value, float) else f"{value:,}").replace("-", "−")


def decimal(value: Any) -> str:
    """A number with two decimals; "–" for what is none."""
    return UNKNOWN if figure(value) == UNKNOWN else f"{value:,.2f}".replace("-", "−")


def fine(value: Any) -> str:
    """A number with three decimals; "–" for what is none."""
    return UNKNOWN if figure(value) == UNKNOWN else f"{value:,.3f}"


def percent(share: Any) -> str:
    """A share as a whole percentage; "–" for what is no number."""
    return UNKNOWN if figure(share) == UNKNOWN else f"{100 * share:.0f} %"


def points(share: Any, places: int = 0) -> str:
    """A difference of shares in points, with its sign; "–" for what is no number."""
    return UNKNOWN if figure(share) == UNKNOWN else f"{100 * share:+.{places}f}".replace("-", "−")


def estimate(found: Bounded, count: int | None, of: str, show: Callable[[Any], str] = decimal) -> str:
    """A figure with its interval and what it rests on: "0.75 (0.52 to 1.08; 32 prompts)"; "–" without one."""
    if not found.known:
        return UNKNOWN
    return f"{show(found.value)} ({show(found.low)} to {show(found.high)}; {figure(count)} {of})"


def verdict(found: Bounded, more: str, less: str, same: float = 1.0) -> str:
    """What an interval says of two rows: which has more, or that they cannot be distinguished."""
    if not found.known or not found.differs(same):
        return "not distinguished"
    return more if found.value is not None and found.value > same else less


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table of figures; the first column to the left, the others to the right."""
    return _lines(columns, ["---", *["---:"] * (len(columns) - 1)], rows)


def listed(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table of words, all to the left."""
    return _lines(columns, ["---"] * len(columns), rows)


def _lines(columns: Sequence[str], sides: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, sides, *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '∣') for cell in line)} |" for line in lines)
