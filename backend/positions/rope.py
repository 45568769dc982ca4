"""Rotary position embedding of real-valued frames."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from backend.refused import Refused

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# Families whose attention leaves part of a head unrotated where their config says so; the others rotate all of it.
PARTIAL_FAMILIES = frozenset({"gpt_neox", "gptj"})



@dataclass(frozen=True)
class Rope:
    """Rotation of the first `2 * len(inv_freq)` dimensions of a head.

    inv_freq [r/2]: float32, as the model computes it. scaling: attention factor of the rope type.
    interleaved: pairs are (2k, 2k+1) as in GPT-J, else (k, k + r/2). trained: the model's training length. base: of the
    frequencies, before any scaling.

    Whole-numbered frames inside the training length take the phases the model was trained with (transformers'
    float32 product), so that plain attention is equal bit for bit; all other frames take float64 phases.
    """

    inv_freq: Tensor
    scaling: float = 1.0
    interleaved: bool = False
    trained: int = 0
    base: float = 10_000.0

    @classmethod
    def of(cls, config, base_factor: float = 1.0) -> Rope:
        """The model's own rope type with its base multiplied (004 eq. 8). Raises ValueError for unsupported types."""
        if config.model_type == "gptj":
            width = rotated(config)
            inv_freq = 1.0 / (10000 * base_factor) ** (torch.arange(0, width, 2, dtype=torch.int64) / width)
            return cls(inv_freq.float(), 1.0, True, config.n_positions, 10000 * base_factor)
        config = copy.deepcopy(config)
        rope = config.rope_parameters
        kind = rope["rope_type"]
        if kind in ("dynamic", "longrope"):
            raise Refused(
                f"the rope type '{kind}' changes its base with length, so keys cannot be kept: choose another model"
            )
        rope["rope_theta"] = rope["rope_theta"] * base_factor
        if kind == "default":
            width = rotated(config)
            inv_freq = 1.0 / (rope["rope_theta"] ** (torch.arange(0, width, 2, dtype=torch.float) / width))
            return cls(inv_freq, 1.0, False, config.max_position_embeddings, rope["rope_theta"])
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        inv_freq, scaling = ROPE_INIT_FUNCTIONS[kind](config)
        return cls(inv_freq.float(), float(scaling), False, config.max_position_embeddings, rope["rope_theta"])

    @property
    def width(self) -> int:
        return 2 * len(self.inv_freq)

    def turning(self, turns: float) -> float:
        """The dimension pair that turns so many times within the training length, as a real number."""
        return self.width * math.log(self.trained / (2 * math.pi * turns)) / (2 * math.log(self.base))

    def phases(self, frames: np.ndarray, dtype: torch.dtype, device: torch.device) -> Tensor:
        """cos and signed sin [2, n, width] of frames [n], laid out for `rotate`."""
        frames = np.asarray(frames, dtype=np.float64)
        angle = torch.from_numpy(frames)[:, None] * self.inv_freq.double()
        cos, sin = angle.cos() * self.scaling, angle.sin() * self.scaling
        trained = (frames == np.floor(frames)) & (frames >= 0) & (frames < self.trained)
        if dtype != torch.float64 and trained.any():
            rows = torch.from_numpy(trained)
            learned = torch.from_numpy(frames[trained]).float()[:, None] * self.inv_freq
            cos[rows], sin[rows] = (x.mul_(self.scaling).double() for x in (learned.cos(), learned.sin()))
        if self.interleaved:
            pairs = cos.repeat_interleave(2, -1), torch.stack((-sin, sin), -1).flatten(-2)
        else:
            pairs = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
        return torch.stack(pairs).to(device, dtype)

    def rotate(self, x: Tensor, phases: Tensor) -> Tensor:
        """Rotate x [..., n, head_dim] by phases of n frames, with transformers' own arithmetic."""
        cos, sin = phases
        if self.width < x.shape[-1]:
            return torch.cat((self.rotate(x[..., : self.width], phases), x[..., self.width :]), -1)
        return x * cos + self._swapped(x) * sin

    def _swapped(self, x: Tensor) -> Tensor:
        """Both members of each pair exchanged; the sign of the rotation is in the sines."""
        return x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2) if self.interleaved else x.roll(self.width // 2, -1)


def rotated(config: PreTrainedConfig) -> int:
    """Dimensions of a head for which transformers makes frequencies, by the model's family and rope type."""
    if config.model_type == "gptj":
        return config.rotary_dim or config.n_embd
    rope = config.rope_parameters
    # The families that rotate whole heads heed the factor, and then fail, where the rope type is not the plain one.
    heeded = config.model_type in PARTIAL_FAMILIES or rope["rope_type"] != "default"
    return int(head_dim(config) * rope.get("partial_rotary_factor", 1.0)) if heeded else head_dim(config)


def head_dim(config: PreTrainedConfig) -> int:
    """Width of a head of attention."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
