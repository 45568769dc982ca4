"""ZeroGPU's device service, and a GPU whose memory is the processor's: what a Space has, without either.

Imported before torch; `spaces` then takes this process for one on ZeroGPU, forks its workers and moves weights into
them as it would there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any


def scheduled() -> list[dict[str, str]]:
    """What each run asked of the device service, in order."""
    with urllib.request.urlopen(os.environ["SPACES_ZERO_DEVICE_API_URL"]) as answer:
        return json.load(answer)


def begin() -> int:
    """Makes this process one on ZeroGPU; returns the device service's process."""
    command = [sys.executable, Path(__file__).with_name("device_service.py")]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    port = int(service.stdout.readline())
    folder = Path(tempfile.mkdtemp(prefix="zerogpu-"))
    (folder / "cgroup").write_text("0::/fake\n")
    os.environ |= {
        "SPACES_ZERO_GPU": "true",
        "SPACES_ZERO_DEVICE_API_URL": f"http://127.0.0.1:{port}",
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
    return service.pid
