"""The loss of training: nats of the wanted tokens, and the KL divergence from the base model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from backend.inference.precision import precision

# Logits at a time, by device. On a CPU 24 MiB, which the C library keeps for the next ones: larger blocks go back to
# the system, and each page of the next is zeroed anew. With all logits of a long text at once a quarter of a step went
# there.
HEAD_ELEMENTS = {"cpu": 6 * 2**20, "cuda": 6 * 2**26}


class Likelihood(nn.Module):
    """A causal LM as training needs it: embeddings [b, n, d], wanted ids [b, n] (−1: none) → nats [k] of the wanted.

    plain [b, n, d]: embeddings without a signal; then also the KL divergence [k] of the tuned model's next token from
    the base model's, which reads these and whose own EOS tokens are left out: when to end is the signal's to say.
    Zeros without. ends: ids of all EOS tokens.
    """

    def __init__(self, lora: Any, ends: list[int]):
        super().__init__()
        self.lora, self.ends = lora, ends

    def forward(self, embeds: Tensor, wanted: Tensor, plain: Tensor | None = None) -> tuple[Tensor, Tensor]:
        labelled = wanted >= 0
        hidden, base = self._hidden(embeds, labelled), None
        if plain is not None:
            with torch.no_grad(), self.lora.disable_adapter():
                base = self._hidden(plain, labelled)
        head = self.lora.get_base_model().get_output_embeddings()
        rows = max(1, HEAD_ELEMENTS[embeds.device.type] // head.weight.shape[0])
        asked = wanted[labelled].split(rows)
        others = [None] * len(asked) if base is None else base.split(rows)
        parts = [
            checkpoint(self._losses, *part, use_reentrant=False)
            for part in zip(hidden.split(rows), asked, others, strict=True)
        ]
        nll, kl = zip(*parts, strict=True)
        return torch.cat(nll), torch.cat(kl)

    def _hidden(self, embeds: Tensor, labelled: Tensor) -> Tensor:
        """Last hidden states [k, d] of the labelled places; padding on the right is never seen by causal attention."""
        body = self.lora.get_base_model().base_model
        with _products(embeds.device):
            return body(inputs_embeds=embeds, use_cache=False).last_hidden_state[labelled]

    def _losses(self, hidden: Tensor, wanted: Tensor, base: Tensor | None) -> tuple[Tensor, Tensor]:
        likely = torch.log_softmax(self._logits(hidden), -1)
        nll = -likely.gather(-1, wanted[:, None])[:, 0]
        if base is None:
            return nll, torch.zeros_like(nll)
        with torch.no_grad(), self.lora.disable_adapter():
            other = self._logits(base)
            other[:, self.ends] = -torch.inf
            other = other.softmax(-1)
        return nll, -(other * likely).sum(-1) - torch.special.entr(other).sum(-1)

    def _logits(self, hidden: Tensor) -> Tensor:
        with _products(hidden.device):
            return self.lora.get_base_model().get_output_embeddings()(hidden).float()


def _products(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=precision(device) == "bf16")


def last_of_row(labelled: Tensor) -> Tensor:
    """Of the labelled places in row order, which are their row's last: the EOS tokens."""
    last = torch.zeros_like(labelled)
    width = labelled.shape[1]
    places = width - 1 - labelled.flip(1).int().argmax(1)
    last[torch.arange(len(labelled)), places] = True
    return last[labelled]
