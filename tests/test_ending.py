"""How the served lab ends: by a signal, idle or in a run, with nothing left behind; and what many half requests do.

Each test starts the real `python -m app`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

PATIENCE = 300
LONG = {"prompt": "Write a very long story.", "max_new_tokens": 3000, "repetition_penalty": 1.3, "temperature": 1}
READING = {"prompt": "The keeper collected clouds. " * 3000, "max_new_tokens": 5}
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither these signals nor ulimit")


class Server:
    """The lab in a process of its own, with a temporary folder of its own."""

    def __init__(self, folder: Path, before: Sequence[str] = ()) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.folder, self.said = folder / "tmp", folder / "said"
        self.folder.mkdir(exist_ok=True)
        command = [*before, sys.executable, "-m", "app", "--port", str(self.port), "--end-seconds", "20"]
        # A lab of this process has put its own folder for uploads there.
        environment = {name: value for name, value in os.environ.items() if name != "GRADIO_TEMP_DIR"}
        environment["TMPDIR"] = str(self.folder)
        with self.said.open("wb") as said:
            # A program in the background is started with Ctrl-C ignored.
            heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
            self.process = subprocess.Popen(command, stdout=said, stderr=said, env=environment, preexec_fn=heeds)

    def get(self, path: str, body: object = None) -> urllib.request.Request:
        data = None if body is None else json.dumps(body).encode()
        return urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}
        )

    def run(self, **settings: object) -> Iterator[str]:
        """The lines of a run's events."""
        with urllib.request.urlopen(self.get("/gradio_api/call/v2/generate", settings), timeout=PATIENCE) as answer:
            event = json.load(answer)["event_id"]
        with urllib.request.urlopen(self.get(f"/gradio_api/call/generate/{event}"), timeout=PATIENCE) as events:
            for line in events:
                yield line.decode()

    def upload(self) -> None:
        form = b'--b\r\nContent-Disposition: form-data; name="files"; filename="x.json"\r\n\r\n{}\r\n--b--\r\n'
        request = self.get("/gradio_api/upload")
        request.data, request.headers["Content-type"] = form, "multipart/form-data; boundary=b"
        urllib.request.urlopen(request, timeout=PATIENCE).close()

    def left(self) -> list[Path]:
        """Files of visitors in the temporary folder, and the lab's own folders."""
        found = self.folder.rglob("*")
        return [path for path in found if path.is_file() or path.name.startswith("length-lab")]


@pytest.fixture
def start(tmp_path) -> Iterator[object]:
    started: list[Server] = []

    def serve(*before: str) -> Server:
        server = Server(tmp_path, before)
        started.append(server)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                "".join(server.run(prompt="Hi", max_new_tokens=2))
                return server
            except OSError:
                assert server.process.poll() is None and time.monotonic() < end, server.said.read_text()
                time.sleep(0.1)

    yield serve
    for server in started:
        server.process.kill()
        server.process.wait()


@pytest.mark.parametrize(
    ("number", "settings"),
    [
        pytest.param(signal.SIGTERM, LONG, id="terminated in a run"),
        pytest.param(signal.SIGINT, LONG, id="interrupted in a run", marks=pytest.mark.attacks),
        pytest.param(signal.SIGTERM, READING, id="terminated while it reads", marks=pytest.mark.attacks),
    ],
)
def test_a_signal_ends_runs_and_leaves_nothing(start, number, settings):
    server = start()
    server.upload()
    assert server.left()
    heard: list[str] = []
    begun = threading.Event()

    def listen() -> None:
        try:
            for line in server.run(**settings):
                heard.append(line)
                begun.set()
        except OSError:
            heard.append("event: cut off")

    visitor = threading.Thread(target=listen)
    visitor.start()
    if settings is LONG:
        assert begun.wait(PATIENCE)
    else:
        time.sleep(1)
    ended(server, number)
    visitor.join(PATIENCE)
    assert not visitor.is_alive() and any(line.startswith("event: ") for line in heard)
    if settings is LONG:
        assert '"reason": "stopped"' in "".join(heard)


@pytest.mark.attacks
def test_what_a_killed_lab_leaves_goes_when_the_next_begins_and_no_one_else_s(start):
    living = start()
    kept = set(living.folder.iterdir())
    killed = start()
    killed.upload()
    lost = set(killed.folder.iterdir()) - kept
    killed.process.kill()
    killed.process.wait()
    start()
    there = set(living.folder.iterdir())
    assert kept <= there and lost and not lost & there


def ended(server: Server, number: signal.Signals) -> None:
    """Sends the signal; nothing may be left, and nothing said but that the lab ends."""
    server.process.send_signal(number)
    assert server.process.wait(PATIENCE) == 0
    assert server.left() == []
    said = server.said.read_text()
    assert "Traceback" not in said and "The lab ends." in said
    socket.create_server(("127.0.0.1", server.port)).close()


@pytest.mark.attacks
def test_more_half_requests_than_files_keep_nobody_out_and_an_idle_end(start):
    server = start("bash", "-c", 'ulimit -n 256; exec "$@"', "x")
    held = [socket.create_connection(("127.0.0.1", server.port), PATIENCE) for _ in range(400)]
    for connection in held:
        try:
            connection.sendall(b"POST /gradio_api/queue/join HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n")
        except OSError:
            pass
    assert "event: complete" in "".join(server.run(prompt="Hi", max_new_tokens=2))
    assert "Too many open files" not in server.said.read_text()
    for connection in held:
        connection.close()
    assert "event: complete" in "".join(server.run(prompt="Hi", max_new_tokens=2))
    ended(server, signal.SIGTERM)
