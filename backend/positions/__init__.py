"""Position policies: which keys a query sees, and at which perceived distance."""

from backend.positions.policy import CAPPED, NEAR, SQUEEZED, Policy, Segment
from backend.positions.rope import Rope

__all__ = ["CAPPED", "NEAR", "SQUEEZED", "Policy", "Rope", "Segment"]
