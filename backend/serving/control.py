"""A hand on a run that another process of this machine writes."""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from typing import Any

from backend.inference.control import Asked, Control

# Stopped, goal, layer and head, where 0 and −1 stand for what was not asked.
_NUMBERS = struct.Struct("4q")


class SharedMemoryControl(Control):
    """Numbers in a mapped file. It is pickled as the file's path, which whoever made it removes with `close`.

    What a multiprocessing event shares must be inherited; the processes that this reaches were there before the run.
    """

    def __init__(self, path: str | None = None) -> None:
        super().__init__()
        if path is None:
            file, path = tempfile.mkstemp(prefix="length-lab-control-")
            os.write(file, _NUMBERS.pack(0, 0, -1, -1))
            os.close(file)
        self.path = path
        with open(path, "r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), _NUMBERS.size)

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedMemoryControl, (self.path,)

    @property
    def asked(self) -> Asked:
        """What was asked so far, in any process."""
        stopped, goal, layer, head = _NUMBERS.unpack_from(self._map)
        return Asked(bool(stopped), goal or None, None if layer < 0 else (layer, head))

    def ask(self, **changes: Any) -> None:
        """Asks for more, fields of `Asked`, in all processes."""
        asked = self.asked._replace(**changes)
        _NUMBERS.pack_into(self._map, 0, asked.stopped, asked.goal or 0, *(asked.watched or (-1, -1)))

    def close(self) -> None:
        """Removes the file; whoever has it open keeps what was asked last."""
        os.unlink(self.path)
