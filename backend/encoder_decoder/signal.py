"""A length signal at the input of a decoder that has an encoder (001 eq. 3–7, 003 §3)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from backend.encoder_decoder.characters import Characters
from backend.encoder_decoder.length_aware import scale_attention
from backend.families import encoder_decoders
from backend.methods import methods
from backend.methods.laam import scaled
from backend.methods.signal import SignalMethod, SignalSettings
from backend.refused import Refused


class DecoderSignal(nn.Module):
    """What a method shows a decoder at each input; while `targets` is None the decoder is as it was.

    The start token is response position 0 and the last symbol is shown the count 1, where the end is due. Its rows are
    added as they are, times the signal's constant, to embeddings as the decoder has them, scaled. targets [batch]: the
    wanted lengths, EOS not counted; in target tokens, or in characters where the signal was given those of the tokens.
    A token is then at the response position of its last character. learned: the method's own trained vector, if it has
    one.
    """

    targets: Tensor | None = None
    # Response positions [batch] of the input that is given with a cache (see `follow`).
    begins: Tensor | None = None

    def __init__(self, model: PreTrainedModel, settings: SignalSettings, characters: Characters | None = None):
        """Takes hold of the model's decoder for good. ValueError for another family or method."""
        super().__init__()
        family, method = encoder_decoders[model.config.model_type], methods[settings.kind]
        if not isinstance(method, SignalMethod) or not method.encoder_decoder:
            raise Refused(f"{method.label} shows no signal to an encoder-decoder: choose another method")
        decoder = family.decoder(model)
        self.settings, self.method, self.scale = settings, method, family.scale(decoder)
        self.characters = characters
        self.width = model.config.d_model
        self.learned = nn.Parameter(_learned(method, settings, self.width)) if method.learned else None
        decoder.register_forward_pre_hook(self._shown, with_kwargs=True)
        if method.scales_attention:
            scale_attention(family.to_source(decoder), self._scaled)
        positions = family.positions(decoder)
        if positions is not None and not settings.beside and not method.scales_attention:
            positions.register_forward_hook(self._instead)

    def _instead(self, _: nn.Module, __: Any, own: Tensor) -> Tensor:
        return own if self.targets is None else torch.zeros_like(own)

    def _shown(self, decoder: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        if self.targets is None:
            return None
        ids, embeddings = given.pop("input_ids", None), given.get("inputs_embeds")
        if embeddings is None:
            embeddings = decoder.embed_tokens(ids)
        past = given.get("past_key_values")
        response = self._response(ids, embeddings, past.get_seq_length() if past is not None else 0)
        self.remaining = (self.targets[:, None] - response).clamp(min=1)
        return args, given | {"inputs_embeds": self.show(embeddings, response)}

    def follow(self, inputs: Tensor) -> None:
        """Take all inputs [batch, n] so far, start token and all, before their last alone is given with a cache."""
        self.begins = None if self.characters is None else self._counted(inputs)[:, -1]

    def _response(self, ids: Tensor | None, embeddings: Tensor, before: int) -> Tensor:
        """Response positions [batch, n] of inputs, `before` of which a cache has."""
        if self.characters is None:
            places = torch.arange(before, before + embeddings.shape[1], device=embeddings.device)
            return places.expand(embeddings.shape[:2])
        if before:
            assert self.begins is not None and embeddings.shape[1] == 1
            return self.begins[:, None]
        assert ids is not None
        return self._counted(ids)

    def _counted(self, inputs: Tensor) -> Tensor:
        """Characters [batch, n] that were written with each of all inputs, the first of which is the start token."""
        assert self.characters is not None
        return nn.functional.pad(self.characters.written(inputs[:, 1:]), (1, 0))

    def _scaled(self, weights: Tensor, ends: Tensor) -> Tensor:
        return weights if self.targets is None else scaled(weights, self.remaining, ends)

    def show(self, embeddings: Tensor, response: Tensor) -> Tensor:
        """Embeddings [batch, n, width] at response positions [batch, n], with the signal."""
        assert self.targets is not None
        made = self.method.training_rows if self.training else self.method.rows
        rows = (made(response, self.targets[:, None], self.width) * self.settings.constant).to(embeddings.dtype)
        shown = rows if self.learned is None else rows * self.learned
        return embeddings * shown if self.method.learned == "factor" else embeddings + shown / self.scale


def _learned(method: SignalMethod, settings: SignalSettings, width: int) -> Tensor:
    """The trained vector; before training, a factor of one for fifty symbols, or about as strong as a sinusoid."""
    if settings.learned:
        return torch.tensor(settings.learned)
    if method.learned == "factor":
        return torch.full((width,), 1 / 50)
    return torch.randn(width) / 50
