"""Position policies: which keys a query sees, and at which perceived distance."""

from backend.positions.policy import CLIPPED, COMPRESSED, NEAR, Policy, Segment
from backend.positions.rope import Rope

__all__ = ["CLIPPED", "COMPRESSED", "NEAR", "Policy", "Rope", "Segment"]
