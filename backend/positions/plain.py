"""Plain RoPE."""

from __future__ import annotations

from dataclasses import dataclass

from backend.positions.base import PositionPolicy


@dataclass(frozen=True)
class Plain(PositionPolicy):
    """Every key is seen where it stands."""

    name = "none"
    label = "Plain"
    summary = "Positions as trained."
    order = 0
    needs = ""
