"""Pairs of a source and what is to be written of it, as training and measuring take them."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers.models import BPE
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from backend.encoder_decoder.characters import Characters
from backend.record import jsonlines
from backend.refused import Refused

IGNORED = -100
# Words of a stretch to copy, and words at the beginning of a source out of which it is taken.
STRETCH, REACHED = 12, 24


@dataclass(frozen=True)
class Pair:
    """A source, and a text that was written of it."""

    source: str
    text: str


@dataclass(frozen=True)
class Tokenizers:
    """Of sources and of what is written; of most models one."""

    source: PreTrainedTokenizerBase
    target: PreTrainedTokenizerBase

    @property
    def in_characters(self) -> bool:
        """Whether lengths of what is written are characters; else they are tokens."""
        return self.source is not self.target

    @property
    def by_character(self) -> bool:
        """Whether each token of what is written is one character."""
        return self.in_characters and self.characters is None

    @cached_property
    def characters(self) -> Characters | None:
        """Those of the tokens of what is written; None where each token counts as one."""
        if self.in_characters and isinstance(self.target.backend_tokenizer.model, BPE):
            return Characters.of(self.target)
        return None

    def read(self, source: str, longest: int) -> list[int]:
        """Token ids of a source, cut to the `longest` first, the last of which is the end token."""
        return self.source(source, truncation=True, max_length=longest)["input_ids"]

    def written(self, text: str) -> list[int]:
        """Token ids of a text, without start and end."""
        return self.target(text, add_special_tokens=False)["input_ids"]

    def length(self, tokens: Sequence[int]) -> int:
        """The length of a text of these tokens, without start and end."""
        return len(tokens) if self.characters is None else self.characters.length(tokens)


def read(file: Path, most: int | None = None, seed: int = 0) -> list[Pair]:
    """The pairs of a JSON-lines file with the fields `source` and `headline`; `most` drawn by the seed, or all in their
    order. Errors in the file are `Refused`."""
    pairs = [Pair(row["source"], row["headline"]) for row in jsonlines.read(file, "source", "headline")]
    return pairs if most is None or most >= len(pairs) else random.Random(seed).sample(pairs, most)


def copies(pairs: Sequence[Pair], seed: int = 0) -> list[Pair]:
    """Sources, each with one stretch of its own words, of twelve or less, in place of its text. A model that writes
    those learns to look words up in a source: after a word comes the one that follows it there."""
    drawn = random.Random(seed)
    found = []
    for pair in pairs:
        words = pair.source.split()
        begins = drawn.randrange(max(1, min(len(words), REACHED) - STRETCH))
        found.append(Pair(pair.source, " ".join(words[begins : begins + STRETCH])))
    return found


def padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    """Token ids [rows, longest], filled up on the right."""
    found = np.full((len(rows), max(map(len, rows))), fill)
    for place, row in zip(found, rows, strict=True):
        place[: len(row)] = row
    return torch.from_numpy(found)


@dataclass(frozen=True)
class Examples:
    """Pairs as a trainer takes them: `rows` of input_ids, labels with EOS, the text's `target`, which is its length,
    and `length` of both, by which batches are made. start, end, pad: token ids of the model's config."""

    rows: list[dict[str, Any]]
    start: int
    end: int
    pad: int

    @classmethod
    def of(
        cls,
        pairs: Sequence[Pair],
        tokenizers: Tokenizers,
        config: Any,
        longest: int,
        written: int,
        left_out: Collection[int] = (),
    ) -> Examples:
        """longest: most tokens of a source, which is cut. written: the greatest length of a text; longer ones are left
        out. left_out: lengths of texts that are left out too."""
        rows = []
        sources = tokenizers.source([pair.source for pair in pairs], truncation=True, max_length=longest)["input_ids"]
        texts = tokenizers.target([pair.text for pair in pairs], add_special_tokens=False)["input_ids"]
        for ids, labels in zip(sources, texts, strict=True):
            length = tokenizers.length(labels)
            if 0 < length <= written and length not in left_out:
                row = {"input_ids": np.array(ids), "labels": np.array([*labels, config.eos_token_id])}
                rows.append(row | {"target": length, "length": len(ids) + 2 * len(labels)})
        if not rows:
            raise Refused("no pair fits: give more data, or raise the longest text")
        return cls(rows, config.decoder_start_token_id, config.eos_token_id, config.pad_token_id)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]

    def batch(self, rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """input_ids, attention_mask, labels, decoder_input_ids, and targets [batch]: the length of each text, EOS not
        counted."""
        sources = padded([row["input_ids"] for row in rows], self.pad)
        labels = padded([row["labels"] for row in rows], IGNORED)
        inputs = labels.roll(1, 1)
        inputs[:, 0] = self.start
        inputs[(inputs == IGNORED) | (inputs == self.end)] = self.pad
        return {
            "input_ids": sources,
            "attention_mask": (sources != self.pad).long(),
            "labels": labels,
            "decoder_input_ids": inputs,
            "targets": torch.tensor([row["target"] for row in rows]),
        }
