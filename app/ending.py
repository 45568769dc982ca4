"""How the lab ends: whatever asks for it, its runs are stopped and waited for, and nothing is left behind."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
import time
from typing import NoReturn

from app.page import Page
from app.runs import THREAD, Runs


def heed_signals() -> None:
    """Makes SIGTERM, which containers send, do what Ctrl-C does: KeyboardInterrupt in the main thread."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def wait(demo: Page) -> None:
    """Until the page is closed or a signal comes."""
    while demo.is_running:
        time.sleep(0.5)


def end(demo: Page, runs: Runs, seconds: float) -> NoReturn:
    """Stops the runs, lets their visitors read how they ended, closes the page, and ends the process with status 0, all
    within `seconds` or little more."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    until = time.monotonic() + seconds
    while len(runs) and time.monotonic() < until - seconds / 2:
        runs.close()
        time.sleep(0.05)
    # Whoever still reads is cut off now, which is no fault of the server's.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    serving = [demo.server.thread] if demo.is_running else []
    demo.close(verbose=False)
    for thread in serving + [thread for thread in threading.enumerate() if thread.name == THREAD]:
        thread.join(max(0.0, until - time.monotonic()))
    _leave(0)


def _leave(status: int) -> NoReturn:
    """Ends the process where it is. Python's own end waits for threads that still compute, or aborts under them, and
    takes seconds to take the libraries apart."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)
