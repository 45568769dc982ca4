"""What the lab has to know of a model family. Positions read this folder: no file imports torch before a model does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedConfig, PreTrainedModel


class Attend(Protocol):
    """The engine's attention, as transformers calls one: of queries, keys and values [batch, heads, n, width] that are
    not rotated, without a mask. Returns [batch, n, heads, width], and None for the weights."""

    def __call__(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, scaling: float
    ) -> tuple[Tensor, Any]: ...


class Rotation(NamedTuple):
    """How a family rotates queries and keys (RoPE).

    kind: transformers' rope_type. base: of the frequencies. width: dimensions of a head for which transformers makes
    frequencies. trained: tokens of context the model was trained for. interleaved: pairs are (2k, 2k + 1), else
    (k, k + width/2).
    """

    kind: str
    base: float
    width: int
    trained: int
    interleaved: bool = False


class ModelFamily(ABC):
    """A family of models, named as transformers' model_type.

    positions: how it tells positions apart. fused: its layers are Llama's, which the fused path on the CPU reads.
    eager: its attention is its own and not one of transformers' attention functions.
    """

    name: ClassVar[str]
    positions: ClassVar[Literal["rope", "alibi"]]
    fused: ClassVar[bool] = False
    eager: ClassVar[bool] = False

    @abstractmethod
    def attach(self, model: PreTrainedModel, inside: Callable[[], bool], attend: Attend) -> None:
        """Lets a loaded model's attention be `attend`, on queries and keys that are not rotated, while `inside` is
        true. Else the model stays transformers' own."""

    def rotation(self, config: PreTrainedConfig) -> Rotation | None:
        """How a model of the family rotates, None where it does not."""
        return None

    def rotatable(self, config: PreTrainedConfig) -> bool:
        """Whether transformers' attention can rotate what the config asks for."""
        return True

    def unsupported(self, config: PreTrainedConfig) -> dict[str, str]:
        """Why controls of positions cannot work with the family, by their name; those that work are absent."""
        return {}


def head_dim(config: PreTrainedConfig) -> int:
    """Width of a head of attention."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
