"""The rows that a length signal adds to the input embeddings, and how strong they are beside these (000 eq. 5)."""
from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from backend.methods import methods
from backend.methods.signal import Scale, SignalMethod, SignalSettings
from backend.methods.sinusoid import half
from backend.refused import Refused
from backend.text.units import tolerance


def norm(embeddings: Tensor) -> float:
    """Root mean square norm of the rows of embeddings [n, width], of any floating type."""
    norms = torch.linalg.vector_norm(embeddings.detach(), dim=-1, dtype=torch.float32).double()
    return float(norms.square().mean().sqrt())


def constant(table: Tensor, gain: float, scale: Scale = "table") -> float:
    """What a signal's rows are multiplied with.

    Every pair of a signal is a sine and a cosine of one phase, so the norm of each row is √(d/2) whatever the signal.
    "table", the lab's own: gain · (RMS row norm of the whole table of token embeddings) / √(d/2), one number for every
    text. Many rows of a table belong to rare tokens and are long: on the embedded model it is 1.14 times what 000 eq. 5
    gives the lab's own 56 validation prompts on average (1.13 to 1.16). "sequence" is the paper's: gain / √(d/2), to be
    multiplied with the prompt's own norm (`prompt_norms`); gain 1 is eq. 5. A learned gain tanh(g) is passed as a
    number.

    table [vocabulary, width]: the model's token embeddings, of any floating type.
    """
    return gain * (norm(table) if scale == "table" else 1.0) / math.sqrt(half(table.shape[-1]))


def prompt_norms(scale: Scale, table: Tensor, prompts: Sequence[Tensor]) -> Tensor | None:
    """RMS norm of the token embeddings of each prompt [b, 1] in float64; None for the scale "table".

    000 eq. 5 takes the Frobenius norms of E and R; E are the embeddings of the sequence X, which is the prompt. Per row
    of each, so that the number does not depend on how many rows the signal has.
    prompts: token ids [n] each.
    """
    if scale == "table":
        return None
    return torch.tensor([[norm(table[ids.to(table.device)])] for ids in prompts], dtype=torch.float64)


def shown(settings: SignalSettings, target: int) -> int:
    """The target that the signal is shown for where `target` tokens are asked: with slack, the most that it accepts."""
    return target + int(tolerance(target, "tokens")) if settings.slack else target


def signal_rows(
    settings: SignalSettings,
    positions: Tensor,
    prompt: int | Tensor,
    target: int | Tensor,
    width: int,
    norms: Tensor | None = None,
    training: bool = False,
) -> Tensor:
    """The vectors to add to the embeddings of some input positions.

    positions [n]: 0-based positions in prompt + response, so the response starts at `prompt`. prompt: tokens of
    the prompt. target: wanted response tokens, EOS not counted (the limit, for Max New Tokens++). width:
    of the embeddings; ValueError where it is odd. norms: of the prompts, where the scale is the sequence's. training:
    as training shows them. For a batch give positions [b, n] with prompt, target and norms [b, 1].

    Returns [n, width] (or [b, n, width]) in float32, from float64 phases.
    """
    method = methods[settings.kind]
    assert isinstance(method, SignalMethod)
    rows = method.training_rows if training else method.rows
    return (rows(positions + (1 - prompt), target, width) * strength(settings, norms)).float()


def strength(settings: SignalSettings, norms: Tensor | None = None) -> float | Tensor:
    """What rows [b, n, width] are multiplied with, a number or [b, 1, 1]. norms [b, 1]: of the prompts (see
    `prompt_norms`); ValueError without them where the scale is the sequence's."""
    if settings.scale == "table":
        return settings.constant
    if norms is None:
        raise Refused("a signal scaled by its sequence needs the norms of the prompts: give prompt_norms")
    return settings.constant * norms.unsqueeze(-1)
