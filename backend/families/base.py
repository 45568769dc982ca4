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


class EncoderDecoder(ABC):
    """A family of encoder-decoders, named as transformers' model_type: where a signal reaches its decoder."""

    name: ClassVar[str]

    def decoder(self, model: PreTrainedModel) -> nn.Module:
        """The decoder, which takes `input_ids` or `inputs_embeds`."""
        return model.get_decoder()

    @abstractmethod
    def to_source(self, decoder: nn.Module) -> nn.Module:
        """The last layer's attention to the source, one of transformers' attention functions."""

    def positions(self, decoder: nn.Module) -> nn.Module | None:
        """What gives the decoder a vector for each absolute position, None where nothing does."""
        return None

    def scale(self, decoder: nn.Module) -> float:
        """What the decoder multiplies the embeddings with that it is given."""
        return 1.0
