"""Model families: how each tells positions apart, and where the engine takes hold of it. One file a kind."""

from __future__ import annotations

from backend.families.base import EncoderDecoder, ModelFamily, Rotation, head_dim
from backend.registry import Registry

__all__ = ["EncoderDecoder", "ModelFamily", "Rotation", "encoder_decoders", "families", "head_dim"]

families = Registry("backend.families", ModelFamily, "model family")
encoder_decoders = Registry("backend.families", EncoderDecoder, "family of encoder-decoders")
