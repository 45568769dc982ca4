"""Position policies that long answers are compared under, by name."""

from __future__ import annotations

from typing import Any

PLAIN, DYNAMIC = "plain", "dynamic contiguous s=4"
_DYNAMIC: dict[str, Any] = {"pic": "dynamic", "ratio": 4.0}
# Naive, NTK and dynamic PIC over ratios, the last in both readings of 004 eq. 9 and with 004's own prefill, and other
# sizes of dynamic PIC's uncompressed parts.
POLICIES: dict[str, dict[str, Any]] = {
    PLAIN: {},
    **{f"naive s={s:g}": {"pic": "naive", "ratio": s} for s in (0.25, 0.5, 2.0, 4.0, 16.0, 64.0)},
    **{f"NTK s={s:g}": {"pic": "ntk", "ratio": s} for s in (0.25, 0.5, 2.0, 4.0, 16.0, 64.0)},
    **{
        f"dynamic {reading} s={s:g}": {"pic": "dynamic", "ratio": s, "reading": reading}
        for reading, ratios in (("contiguous", (0.25, 2.0, 4.0, 16.0, 64.0)), ("literal", (0.25, 4.0, 16.0)))
        for s in ratios
    },
    "dynamic contiguous s=4, paper's prefill": _DYNAMIC | {"prefill": "paper"},
    "dynamic contiguous s=4, no initial part": _DYNAMIC | {"initial": 0},
    "dynamic contiguous s=4, initial 32": _DYNAMIC | {"initial": 32},
    "dynamic contiguous s=4, initial 128": _DYNAMIC | {"initial": 128},
    "dynamic contiguous s=4, no recent part": _DYNAMIC | {"recent": 1},
    "dynamic contiguous s=4, recent 32": _DYNAMIC | {"recent": 32},
    "dynamic contiguous s=4, recent 512": _DYNAMIC | {"recent": 512},
}
