"""What one visitor may have at a time, so that there is enough for all; `python -m app --help` lists it."""

from __future__ import annotations

from dataclasses import dataclass

from app.options import option


@dataclass(frozen=True)
class Shares:
    """Each field is an option of the command line; all are above 0. A press is whatever is no run: Stop, an export."""

    visitor_runs: int = option(16, "runs of one visitor that wait or go on")
    visitor_presses: int = option(64, "presses of one visitor that wait to be answered")
    address_visitors: int = option(8, "times as many runs and presses as a visitor's for one address")
    unread_seconds: int = option(300, "seconds that a run waits for somebody to read it")
    lost_seconds: int = option(30, "seconds that a run rests after the connection to its page was lost, before it ends")
    closed_seconds: int = option(10, "seconds that a run rests after its page was closed or loaded anew")
    trace_seconds: int = option(600, "seconds that what a run wrote is kept after it ended as its page was lost")
    kept_seconds: int = option(120, "seconds that what a visitor had is kept after they left")
    visitor_mb: int = option(128, "MB of uploads and exports of one visitor; eight times as much of all together")
