"""What is written to the terminal is bounded, and nothing is left out in silence."""

from __future__ import annotations

import io
import logging
import re

from hypothesis import given
from hypothesis import strategies as st

from app.log import MINUTE, Bounded, Repeats

MOST = 100


@given(st.lists(st.tuples(st.text(max_size=60), st.floats(0, 2 * MINUTE)), max_size=60))
def test_a_minute_writes_at_most_so_much_and_the_rest_is_counted(written):
    now = [0.0]
    out = io.StringIO()
    log = Bounded(out, MOST, lambda: now[0])
    for text, later in written:
        assert log.write(text) == len(text)
        now[0] += later
    now[0] += MINUTE
    log.write("")
    whole = sum(len(text) for text, _ in written)
    notes = re.findall(r"\n\[([\d,]+) characters left out\]\n", out.getvalue())
    characters = len(out.getvalue()) - sum(len(f"\n[{note} characters left out]\n") for note in notes)
    assert characters + sum(int(note.replace(",", "")) for note in notes) == whole
    minutes = 1 + sum(later for _, later in written) // MINUTE
    assert characters <= MOST * minutes


def test_little_is_written_as_it_comes():
    out = io.StringIO()
    log = Bounded(out, MOST)
    print("The lab is open.", file=log, flush=True)
    assert out.getvalue() == "The lab is open.\n" and log.isatty() is False


@given(st.lists(st.tuples(st.sampled_from(["no %s", "out of files\nsocket %s"]), st.floats(0, MINUTE)), max_size=60))
def test_a_message_that_comes_again_is_written_a_few_times_a_minute(messages):
    now = [0.0]
    repeats = Repeats(3, lambda: now[0])
    written: dict[str, list[float]] = {}
    for number, (message, later) in enumerate(messages):
        now[0] += later
        recent = [then for then in written.setdefault(message, []) if now[0] - then < MINUTE]
        shown = repeats.filter(logging.LogRecord("asyncio", logging.ERROR, "", 0, message, (number,), None))
        assert shown == (len(recent) < 3)
        if shown:
            written[message].append(now[0])
