"""A connection between a browser and a server that can be cut."""
from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Cable(socketserver.ThreadingTCPServer):
    """Passes on what comes to `address`. whole: whether it does; while it is cut, nobody is let through."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Passing)
        self.port, self.whole = port, True
        self.address = f"http://127.0.0.1:{self.server_address[1]}/"
        self.ends: set[socket.socket] = set()

    def cut(self) -> None:
        """Ends every connection, and lets no other through."""
        self.whole = False
        for end in [*self.ends]:
            ended(end)

    def mend(self) -> None:
        """Lets connections through again."""
        self.whole = True


class Passing(socketserver.BaseRequestHandler):
    """One connection."""

    server: Cable

    def handle(self) -> None:
        if not self.server.whole:
            return
        with socket.create_connection(("127.0.0.1", self.server.port)) as there:
            ends = {self.request, there}
            self.server.ends |= ends
            back = threading.Thread(target=passed, args=(there, self.request))
            back.start()
            passed(self.request, there)
            back.join()
            self.server.ends -= ends


def passed(given: socket.socket, taken: socket.socket) -> None:
    """Passes on what one end gives, until one of them ends."""
    with suppress(OSError):
        while data := given.recv(65536):
            taken.sendall(data)
    for end in (given, taken):
        ended(end)


def ended(end: socket.socket) -> None:
    """Ends a connection, if it has not ended before."""
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextmanager
def cable(port: int) -> Iterator[Cable]:
    """A cable to a port of this machine."""
    with Cable(port) as made:
        threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
        yield made
        made.cut()
        made.shutdown()
