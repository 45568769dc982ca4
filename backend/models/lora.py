"""A LoRA as peft saves it: low-rank products to be added to those of a model (LoRA, eq. 3)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from backend.models.adapters import CONFIG, WEIGHTS
from backend.refused import Refused

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Before the names of a model's own modules in peft's files; between them and the weights' own.
PREFIX, DOWN, UP = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
# Settings of peft under which a LoRA adds something else than up · down · x, of one scale.
OTHERS = ("use_dora", "rank_pattern", "alpha_pattern", "fan_in_fan_out", "lora_bias")


@dataclass(frozen=True, eq=False)
class Lora:
    """stored: down [rank, in] and up [out, rank] as its file has them, by the module to whose output
    scale · up · down · x is added. scales: 1 where none is named.

    Alike only with itself, copies included: it is never changed.
    """

    stored: Mapping[str, tuple[Tensor, Tensor]]
    scales: Mapping[str, float] = field(default_factory=dict)

    def part(self, name: str) -> tuple[Tensor, Tensor]:
        """down and scale · up of a module in float32, made anew."""
        down, up = self.stored[name]
        return down.float(), up.float() * self.scales.get(name, 1.0)

    @cached_property
    def parts(self) -> Mapping[str, tuple[Tensor, Tensor]]:
        """Those of all modules; of use where no kernel has a copy of its own."""
        return {name: self.part(name) for name in self.stored}

    def __deepcopy__(self, memo: dict[int, Any]) -> Lora:
        return self

    @classmethod
    def read(cls, folder: Path, model: PreTrainedModel) -> Lora:
        """A folder saved by peft, for a model. ValueError where it is another kind of adapter or for another model."""
        from safetensors.torch import load_file

        config = json.loads((folder / CONFIG).read_text("utf-8"))
        if other := [name for name in OTHERS if config.get(name)]:
            raise Refused(f"it is no plain LoRA: {', '.join(other)}")
        if not isinstance(alpha := config.get("lora_alpha"), (int, float)):
            raise Refused(f"its lora_alpha is no number: {alpha}")
        tensors = load_file(folder / WEIGHTS)
        stored, scales = {}, {}
        for name in [name.removesuffix(DOWN) for name in tensors if name.endswith(DOWN)]:
            down, up = tensors.pop(name + DOWN), tensors.pop(name + UP)
            module = name.removeprefix(PREFIX)
            stored[module] = down.to(model.device), up.to(model.device)
            scales[module] = alpha / len(down) ** (0.5 if config.get("use_rslora") else 1)
        if tensors:
            raise Refused(f"it holds {next(iter(tensors))}, which is no part of a LoRA")
        fitting = dict(linears(model))
        for name, (down, up) in stored.items():
            if name not in fitting:
                raise Refused(f"the model has no product {name}, or it is its head")
            found, linear = (up.shape[0], down.shape[1]), fitting[name]
            if found != (linear.out_features, linear.in_features):
                raise Refused(f"{name} is {linear.out_features} × {linear.in_features}, and its LoRA {found}")
        return cls(stored, scales)

    def added(self, name: str, x: Tensor, out: Tensor) -> Tensor:
        """out [..., out] of a module with x [..., in], with its part added; rounded once, as peft does."""
        if name not in self.stored:
            return out
        down, up = self.parts[name]
        return (out + x.float() @ down.T @ up.T).to(out.dtype)


def linears(model: PreTrainedModel) -> Iterator[tuple[str, nn.Linear]]:
    """The products of the model but for its head, by name."""
    inside = set(model.base_model.modules())
    return ((name, each) for name, each in model.named_modules() if isinstance(each, nn.Linear) and each in inside)
