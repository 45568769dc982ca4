"""From a person's message to the model's token ids, and from new ids back to text, piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from backend.models import Loaded
from backend.settings import PROMPTED_METHODS, RunSettings
from backend.signals.prompted import prompted

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LONGEST = 131_072


def token_ids(settings: RunSettings, tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Ids [n] of the prompt in the model's chat template (the bare text where it has none), up to the assistant's turn.

    Raises ValueError where the prompt is too long to be read.
    """
    text = settings.prompt
    if settings.method in PROMPTED_METHODS:
        text = prompted(text, settings.target, settings.unit)
    if tokenizer.chat_template:
        encoded = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=True
        )
        ids = encoded["input_ids"]
    else:
        ids = tokenizer(text)["input_ids"]
    if not ids:
        raise ValueError("the model's tokenizer finds no token in the prompt: type some text")
    if len(ids) > LONGEST:
        raise ValueError(f"the prompt has {len(ids):,} tokens, more than {LONGEST:,}: shorten it")
    return torch.tensor(ids)


def end_ids(loaded: Loaded) -> list[int]:
    """Ids that end a response: those of the generation config, then the tokenizer's own; none where neither has one.

    Ids that the model cannot write are left out: transformers' generate takes them, and never meets them.
    """
    config = loaded.model.generation_config
    stored = config.eos_token_id if config else None
    named = [*(stored if isinstance(stored, (list, tuple)) else [stored]), loaded.tokenizer.eos_token_id]
    return list(dict.fromkeys(int(end) for end in named if end is not None and 0 <= end < loaded.capabilities.vocab))


class TextStream:
    """Text of a growing list of tokens, given out only when later tokens can no longer change it."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self.tokenizer = tokenizer
        self.tokens: list[int] = []
        self.text = ""
        self._start = 0
        self._given = 0

    def add(self, token: int) -> str:
        """The text that one more token adds; "" while a character is incomplete."""
        self.tokens.append(token)
        before = self._decode(self.tokens[self._start : self._given])
        now = self._decode(self.tokens[self._start :])
        if now.endswith("\ufffd") or len(now) <= len(before):
            return ""
        new = now[len(before) :]
        self._start, self._given = self._given, len(self.tokens)
        self.text += new
        return new

    def _decode(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
