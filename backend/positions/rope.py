"""Rotary position embedding of real-valued frames.

Settings read this folder, so that none of its files imports torch before a model needs it.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from backend.families import families
from backend.refused import Refused

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedConfig


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
    def of(cls, config: PreTrainedConfig, base_factor: float = 1.0) -> Rope:
        """The model's own rope type with its base multiplied (004 eq. 8). Raises ValueError for unsupported types."""
        import torch

        own = families[config.model_type].rotation(config)
        assert own is not None
        base = own.base * base_factor
        if own.kind in ("dynamic", "longrope"):
            raise Refused(
                f"the rope type '{own.kind}' changes its base with length, so keys cannot be kept: choose another model"
            )
        if own.kind == "default":
            inv_freq = 1.0 / (base ** (torch.arange(0, own.width, 2, dtype=torch.float) / own.width))
            return cls(inv_freq, 1.0, own.interleaved, own.trained, base)
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        config = copy.deepcopy(config)
        config.rope_parameters["rope_theta"] = base
        inv_freq, scaling = ROPE_INIT_FUNCTIONS[own.kind](config)
        return cls(inv_freq.float(), float(scaling), own.interleaved, own.trained, base)

    @property
    def width(self) -> int:
        return 2 * len(self.inv_freq)

    def turning(self, turns: float) -> float:
        """The dimension pair that turns so many times within the training length, as a real number."""
        return self.width * math.log(self.trained / (2 * math.pi * turns)) / (2 * math.log(self.base))

    def phases(self, frames: np.ndarray, dtype: torch.dtype, device: torch.device) -> Tensor:
        """cos and signed sin [2, n, width] of frames [n], laid out for `rotate`."""
        import torch

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
        import torch

        cos, sin = phases
        if self.width < x.shape[-1]:
            return torch.cat((self.rotate(x[..., : self.width], phases), x[..., self.width :]), -1)
        return x * cos + self._swapped(x) * sin

    def _swapped(self, x: Tensor) -> Tensor:
        """Both members of each pair exchanged; the sign of the rotation is in the sines."""
        return x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2) if self.interleaved else x.roll(self.width // 2, -1)
