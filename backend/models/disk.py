"""Weights on their way to the disk."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def disk_errors() -> Iterator[None]:
    """Raises what safetensors says of a full or failing disk as the OSError that it was."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        if found := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(found[1]), os.strerror(int(found[1]))) from error
        raise
