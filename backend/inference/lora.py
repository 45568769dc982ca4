"""LoRA beside the weights (LoRA, eq. 3): what an adapter adds to a model's products, for each sequence its own.

The model stays as it is, in whatever precision, and serves every adapter at once. A sequence's cache names the
adapter that makes its keys and values.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from backend.models.lora import Lora, linears

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_attaching = threading.Lock()


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
            for name, module in linears(model):
                module.register_forward_hook(partial(_add, name))
            model.lora_attached = True


def _add(name: str, module: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> Tensor | None:
    loras, [x] = _beside.get(()), given
    if not loras:
        return None
    if len(loras) == 1:
        return loras[0].added(name, x, out) if loras[0] else None
    rows = zip(loras, x, out, strict=True)
    return torch.stack([lora.added(name, each, found) if lora else found for lora, each, found in rows])
