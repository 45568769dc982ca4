"""Weights in eight bits on disk: each matrix as whole numbers from −127 to 127 and one scale a row.

    python -m backend.models.eight_bits FOLDER     # a saved model's weights, in place of those that are there
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from backend.models.disk import disk_errors
from backend.models.embedded import cache, sha256

if TYPE_CHECKING:
    from torch import Tensor

WHOLE, EIGHT = "model.safetensors", "model.int8.safetensors"
MOST, SCALE = 127, ".scale"


def packed(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A model's weights by their names, matrices as int8 with their rows' scales beside them in float32, others in
    float16."""
    import torch

    found: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if weight.dim() != 2:
            found[name] = weight.half()
            continue
        # A row of zeros has a scale too.
        scale = (weight.float().abs().amax(-1) / MOST).clamp(min=torch.finfo(torch.float32).tiny)
        found[name] = (weight.float() / scale[:, None]).round().clamp(-MOST, MOST).to(torch.int8)
        found[name + SCALE] = scale
    return found


def unpacked(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights again, in float16."""
    return {
        name: (weight.float() * stored[name + SCALE][:, None]).half() if name + SCALE in stored else weight
        for name, weight in stored.items()
        if not name.endswith(SCALE)
    }


def pack(folder: Path) -> Path:
    """Write a saved model's weights in eight bits, in the place of the whole ones; the new file."""
    from safetensors.torch import load_file, save_file

    with disk_errors():
        save_file(packed(load_file(folder / WHOLE)), folder / EIGHT)
    (folder / WHOLE).unlink()
    return folder / EIGHT


def readable(folder: Path) -> Path:
    """A model's folder as transformers takes it: itself, or where it has eight bits alone a copy in the cache with all
    its weights, made on the first call. Concurrent callers wait; it appears whole or not at all."""
    if not (folder / EIGHT).is_file():
        return folder
    from filelock import FileLock

    ready = cache() / f"{folder.name}-{sha256(folder / EIGHT)[:12]}"
    with disk_errors():
        ready.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{ready}.lock"):
            if not ready.is_dir():
                _make(folder, ready)
    return ready


def _make(folder: Path, ready: Path) -> None:
    from safetensors.torch import load_file, save_file

    with tempfile.TemporaryDirectory(dir=ready.parent, prefix=f"{folder.name}-") as scratch:
        made = Path(scratch) / "made"
        shutil.copytree(folder, made, ignore=shutil.ignore_patterns(EIGHT))
        save_file(unpacked(load_file(folder / EIGHT)), made / WHOLE, {"format": "pt"})
        made.rename(ready)


if __name__ == "__main__":
    print(pack(Path(sys.argv[1])))
