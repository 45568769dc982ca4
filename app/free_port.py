"""A port for a server in a process of its own."""

from __future__ import annotations

import socket


def free_port() -> int:
    """One of this machine's own address that nobody listens at now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
