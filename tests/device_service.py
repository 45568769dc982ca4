"""ZeroGPU's device service, run in a process of its own: it prints its port and ends with who began it.

A process that forks its workers must not hold the other end of their requests.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SCHEDULED: list[dict[str, str]] = []
# By token: the GPU that a run has.
GRANTED: dict[str, int] = {}
TOKENS = itertools.count(1)
ONE_AT_A_TIME = threading.Lock()


def granted() -> dict[str, Any]:
    """The first GPU that no run has; the worker of an earlier run may still wait there."""
    token, free = str(next(TOKENS)), set(range(len(GRANTED) + 1)) - {*GRANTED.values()}
    GRANTED[token] = min(free)
    return {"idle": True, "nvidiaIndex": GRANTED[token], "nvidiaUUID": "none", "allowToken": token}


class Devices(BaseHTTPRequestHandler):
    """Grants every request a GPU, and takes it back; says to a test what was asked."""

    def do_GET(self) -> None:
        self.answer(SCHEDULED)

    def do_POST(self) -> None:
        asked = urllib.parse.urlparse(self.path)
        given = dict(urllib.parse.parse_qsl(asked.query))
        answer: dict[str, Any] = {}
        with ONE_AT_A_TIME:
            if asked.path == "/schedule":
                SCHEDULED.append(given)
                answer = granted()
            elif asked.path == "/release":
                GRANTED.pop(given["allowToken"], None)
        self.answer(answer)

    def answer(self, what: Any) -> None:
        body = json.dumps(what).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *given: Any) -> None:
        pass


if __name__ == "__main__":
    began = os.getppid()
    service = ThreadingHTTPServer(("127.0.0.1", 0), Devices)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    print(service.server_port, flush=True)
    while os.getppid() == began:
        time.sleep(0.5)
