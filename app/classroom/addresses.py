"""Where a class reaches the lab, and what the terminal says of it."""

from __future__ import annotations

import socket

from app.classroom.room import Room
from app.classroom.screen import JOIN, in_terminal, student_address
from app.sites import EVERYWHERE

# No host has it (RFC 5737): asked for, the system names the address of this machine that would go there.
ELSEWHERE = ("192.0.2.1", 9)


def reached(host: str | None, port: int) -> str:
    """The lab's address as its class reaches it. host: that it was asked to be bound to, if one was named."""
    name = host if host and host not in EVERYWHERE else _on_network()
    return f"http://{name}:{port}"


def _on_network() -> str:
    """This machine's address on its local network; without one, that under which it knows itself."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(ELSEWHERE)
            return str(asked.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def announced(room: Room, address: str) -> str:
    """What the teacher reads when the lab begins."""
    return (
        f"\nThe class {room.code}\n"
        f"Students open {address}{JOIN} and enter {room.code}, or scan this:\n"
        f"{in_terminal(student_address(address, room.code))}"
        f"The teacher's screen, for you alone: {address}/class/{room.secret}\n"
    )
