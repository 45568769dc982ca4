"""A hub of one model on this machine, as far as huggingface_hub asks one for it."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0" * 40
HALF, REST = 12_000_000, 1.0


@contextmanager
def serving(repo: str, folder: Path, lists: bool = True) -> Iterator[str]:
    """The address of a hub that has the files of a folder; it rests for REST seconds HALF way through a large one.
    lists: whether it says which files there are."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answers(False)

        def do_GET(self) -> None:
            self._answers(True)

        def _answers(self, whole: bool) -> None:
            path = self.path.split("?")[0]
            file = folder / path.removeprefix(f"/{repo}/resolve/{COMMIT}/").removeprefix(f"/{repo}/resolve/main/")
            if not lists and "/tree" in path:
                self.send_response(403)
                self._ends({}, 0)
            elif path.startswith(f"/api/models/{repo}/tree"):
                files = [{"type": "file", "path": each.name, "size": each.stat().st_size, "oid": each.name}
                         for each in folder.iterdir()]  # fmt: skip
                self._sends(json.dumps(files).encode(), {"Content-Type": "application/json"})
            elif path.startswith(f"/api/models/{repo}"):
                about = {"id": repo, "sha": COMMIT, "siblings": [{"rfilename": each.name} for each in folder.iterdir()]}
                self._sends(json.dumps(about).encode(), {"Content-Type": "application/json"})
            elif "/resolve/" in path and file.is_file():
                data = file.read_bytes()
                name = hashlib.sha256(data).hexdigest()
                self._sends(data if whole else b"", {"ETag": f'"{name}"', "X-Repo-Commit": COMMIT}, len(data))
            else:
                self.send_response(404)
                self._ends({"X-Error-Code": "EntryNotFound"}, 0)

        def _sends(self, data: bytes, headers: dict[str, str], size: int | None = None) -> None:
            self.send_response(200)
            self._ends(headers, len(data) if size is None else size)
            self.wfile.write(data[:HALF])
            if data[HALF:]:
                time.sleep(REST)
                self.wfile.write(data[HALF:])

        def _ends(self, headers: dict[str, str], size: int) -> None:
            for name, value in {**headers, "Content-Length": str(size)}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
