"""ZeroGPU's device service, and a GPU whose memory is the processor's: what a Space has, without either.

Imported before torch; `spaces` then takes this process for one on ZeroGPU, forks its workers and moves weights into
them as it would there.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
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
    """Grants every request a GPU, and takes it back."""

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
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *given: Any) -> None:
        pass


def begin() -> None:
    """Makes this process one on ZeroGPU."""
    service = ThreadingHTTPServer(("127.0.0.1", 0), Devices)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    folder = Path(tempfile.mkdtemp(prefix="zerogpu-"))
    (folder / "cgroup").write_text("0::/fake\n")
    os.environ |= {
        "SPACES_ZERO_GPU": "true",
        "SPACES_ZERO_DEVICE_API_URL": f"http://127.0.0.1:{service.server_port}",
        "ZEROGPU_OFFLOAD_DIR": str(folder / "tensors"),
        "ZEROGPU_PROC_SELF_CGROUP_PATH": str(folder / "cgroup"),
        "HF_DEACTIVATE_ASYNC_LOAD": "1",
    }
    import torch

    # A build for CUDA has these.
    torch.version.cuda = "12.8"
    torch.cuda._is_in_bad_fork = bool
    if not hasattr(torch._C, "_cuda_init"):
        torch._C._cuda_init = lambda: None

    import spaces  # noqa: F401
    from spaces.zero import torch as device
    from spaces.zero.torch import patching

    def move(callback: Any = None) -> None:
        for emulated, weights in patching.cuda_aliases.items():
            if weights is not None:
                emulated.data = torch.Tensor(weights)

    device.init, device.move = lambda uuid: None, move
    # Files from which CUDA code would read.
    device.pack = lambda: patching._total_unpacked_size()
