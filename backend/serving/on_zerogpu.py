"""Whether this is a ZeroGPU Space; read before torch is, which `spaces` has to be imported before."""

from __future__ import annotations

import os


def on_zerogpu() -> bool:
    """What ZeroGPU says of itself, as `spaces` reads it."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "true", "t")
