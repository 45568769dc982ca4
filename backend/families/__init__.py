"""Model families: how each tells positions apart, and where the engine takes hold of its attention. One file a kind."""

from __future__ import annotations

from backend.families.base import ModelFamily, Rotation, head_dim
from backend.registry import Registry

__all__ = ["ModelFamily", "Rotation", "families", "head_dim"]

families = Registry("backend.families", ModelFamily, "model family")
