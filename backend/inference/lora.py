"""LoRA beside the weights (LoRA, eq. 3): what an adapter adds to a model's products, for each sequence its own.

The model stays as it is, in whatever precision, and serves every adapter at once. A sequence's cache names the
adapter that makes its keys and values.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from backend.adapters import CONFIG, WEIGHTS
from backend.refused import Refused

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Before the names of a model's own modules in peft's files; between them and the weights' own.
PREFIX, DOWN, UP = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
# Settings of peft under which a LoRA adds something else than up · down · x, of one scale.
OTHERS = ("use_dora", "rank_pattern", "alpha_pattern", "fan_in_fan_out", "lora_bias")

_attaching = threading.Lock()


@dataclass(frozen=True, eq=False)
class Lora:
    """parts: down [rank, in] and up [out, rank] in float32, by the module to whose output up · down · x is added.

    Alike only with itself, copies included: it is never changed.
    """

    parts: Mapping[str, tuple[Tensor, Tensor]]

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
        tensors = load_file(folder / WEIGHTS, device=str(model.device))
        parts = {}
        for name in [name.removesuffix(DOWN) for name in tensors if name.endswith(DOWN)]:
            down, up = tensors.pop(name + DOWN).float(), tensors.pop(name + UP).float()
            rank = len(down) ** (0.5 if config.get("use_rslora") else 1)
            parts[name.removeprefix(PREFIX)] = down, up * (alpha / rank)
        if tensors:
            raise Refused(f"it holds {next(iter(tensors))}, which is no part of a LoRA")
        fitting = dict(_linears(model))
        for name, (down, up) in parts.items():
            if name not in fitting:
                raise Refused(f"the model has no product {name}, or it is its head")
            found, module = (up.shape[0], down.shape[1]), fitting[name]
            if found != (module.out_features, module.in_features):
                raise Refused(f"{name} is {module.out_features} × {module.in_features}, and its LoRA {found}")
        return cls(parts)

    def added(self, name: str, x: Tensor, out: Tensor) -> Tensor:
        """out [..., out] of a module with x [..., in], with its part added; rounded once, as peft does."""
        if name not in self.parts:
            return out
        down, up = self.parts[name]
        return (out + x.float() @ down.T @ up.T).to(out.dtype)


_beside: ContextVar[Sequence[Lora | None]] = ContextVar("beside")


@contextmanager
def beside(loras: Sequence[Lora | None]) -> Iterator[None]:
    """Let the products of an attached model in this context have these adapters added: one for each sequence of a
    batch, or one for all."""
    token = _beside.set(loras if any(loras) else ())
    try:
        yield
    finally:
        _beside.reset(token)


def attach(model: PreTrainedModel) -> None:
    """Make a loaded model heed `beside`; safe to call again, and from threads."""
    with _attaching:
        if not getattr(model, "lora_attached", False):
            for name, module in _linears(model):
                module.register_forward_hook(partial(_add, name))
            model.lora_attached = True


def _linears(model: PreTrainedModel) -> Iterator[tuple[str, nn.Linear]]:
    """The products of the model but for its head, by name."""
    inside = set(model.base_model.modules())
    return ((name, each) for name, each in model.named_modules() if isinstance(each, nn.Linear) and each in inside)


def _add(name: str, module: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> Tensor | None:
    loras, [x] = _beside.get(()), given
    if not loras:
        return None
    if len(loras) == 1:
        return loras[0].added(name, x, out) if loras[0] else None
    rows = zip(loras, x, out, strict=True)
    return torch.stack([lora.added(name, each, found) if lora else found for lora, each, found in rows])
