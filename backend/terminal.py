"""The terminal: arguments whose errors are a sentence, and a line of progress that stays out of the way of the text."""
from __future__ import annotations

import argparse
import io
import shutil
import sys
import time
from typing import NoReturn

from backend.record import bom
from backend.refused import Refused

REDRAWS_A_SECOND = 10
# The exit status of a wrong setting.
WRONG = 2


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG, f"{message} (see {self.prog} --help)\n")


def let_any_text_through() -> None:
    """Writes as escapes what the encoding of stdout lacks, which would end the program."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def carries(text: str) -> bool:
    """Whether stdout can write the text as it is."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def typed() -> str:
    """What stdin holds: UTF-8, by its byte order mark, or in the terminal's own encoding. Raises ValueError if none."""
    if not hasattr(sys.stdin, "buffer"):
        return sys.stdin.read()
    data = sys.stdin.buffer.read()
    try:
        text = bom.decoded(data)
    except UnicodeDecodeError as error:
        try:
            text = data.decode(sys.stdin.encoding)
        except UnicodeDecodeError:
            raise Refused(f"the prompt on stdin is not UTF-8 ({error}): save it as UTF-8") from error
    return io.StringIO(text, newline=None).read()


def say(line: str) -> None:
    """A line of a long command's report, at once also where stdout is a file."""
    print(line, flush=True)


class StatusLine:
    """Shows the latest of many short messages on stderr; silent where stderr is no terminal.

    With the text on the same terminal the line takes the bottom row and the text scrolls above it; with the text
    going to a file or a pipe the line redraws itself in place.
    """

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._shared = self._shown and sys.stdout.isatty()
        self._rows = 0
        self._drawn = 0.0

    def __enter__(self) -> StatusLine:
        if self._shared:
            self._rows = shutil.get_terminal_size().lines
            self._write(f"\n\x1b7\x1b[1;{self._rows - 1}r\x1b8\x1b[1A")
        return self

    def show(self, message: str) -> None:
        """Replace the line; messages that come faster than the eye reads are dropped."""
        now = time.monotonic()
        if not self._shown or now - self._drawn < 1 / REDRAWS_A_SECOND:
            return
        self._drawn = now
        line = message[: shutil.get_terminal_size().columns - 1]
        self._write(f"\x1b7\x1b[{self._rows};1H\x1b[K{line}\x1b8" if self._shared else f"\r\x1b[K{line}")

    def __exit__(self, *_: object) -> None:
        if self._shared:
            self._write(f"\x1b7\x1b[r\x1b[{self._rows};1H\x1b[K\x1b8")
        elif self._shown:
            self._write("\r\x1b[K")

    def _write(self, codes: str) -> None:
        sys.stdout.flush()
        sys.stderr.write(codes)
        sys.stderr.flush()
