"""The characters that the tokens of a text have, so that its length is known at each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

# The first two bits of a byte that goes on with a character of UTF-8.
MARK, GOES_ON = 0b1100_0000, 0b1000_0000


@dataclass(frozen=True)
class Characters:
    """Of the tokens of a byte-level BPE. A character counts where its first byte stands.

    widths [vocabulary]: characters that a token begins; 0 of a special one. leads [vocabulary]: 1 of a token with a
    space at its beginning, which says nothing where it opens a text (see `headlines.whole`).
    """

    widths: Tensor
    leads: Tensor

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> Characters:
        """Those of the tokens of such a tokenizer."""
        byte_of = {character: byte for byte, character in bytes_to_unicode().items()}
        widths, leads = torch.zeros(len(tokenizer), dtype=torch.long), torch.zeros(len(tokenizer), dtype=torch.long)
        for token, number in tokenizer.get_vocab().items():
            if number not in tokenizer.all_special_ids:
                said = [byte_of[character] for character in token]
                widths[number] = sum(byte & MARK != GOES_ON for byte in said)
                leads[number] = said[0] == ord(" ")
        return cls(widths, leads)

    def written(self, tokens: Tensor) -> Tensor:
        """How many characters texts have up to and with each of their tokens [..., n]; n may be 0."""
        return self.widths.to(tokens.device)[tokens].cumsum(-1) - self.leads.to(tokens.device)[tokens[..., :1]]

    def length(self, tokens: Sequence[int]) -> int:
        """How many characters a text has."""
        return int(self.written(torch.tensor(tokens))[-1]) if tokens else 0
