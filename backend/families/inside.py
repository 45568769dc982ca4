"""Another forward for a layer's attention while the engine reads, for families that have an attention of their own."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn


def instead(module: nn.Module, inside: Callable[[], bool], forward: Callable[..., tuple[Tensor, None]]) -> None:
    """Lets a module's forward be `forward(module, hidden)` while `inside` is true, its own else."""
    own = module.forward

    def chosen(self: nn.Module, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        return forward(self, hidden_states) if inside() else own(hidden_states, *args, **kwargs)

    module.forward = MethodType(chosen, module)


def heads(x: Tensor, width: int) -> Tensor:
    """[batch, n, heads · width] as [batch, heads, n, width]."""
    return x.unflatten(-1, (-1, width)).transpose(1, 2)
