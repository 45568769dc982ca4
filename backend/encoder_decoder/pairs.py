"""Pairs of a source and what is to be written of it, as training and measuring take them."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from backend.record import jsonlines
from backend.refused import Refused

IGNORED = -100


@dataclass(frozen=True)
class Pair:
    """A source, and a text that was written of it."""

    source: str
    text: str


class Tokenizers(NamedTuple):
    """Of sources and of what is written; of most models one."""

    source: PreTrainedTokenizerBase
    target: PreTrainedTokenizerBase

    @property
    def by_character(self) -> bool:
        """Whether each token of what is written is one character."""
        return self.source is not self.target

    def read(self, source: str, longest: int) -> list[int]:
        """Token ids of a source, cut to the `longest` first, the last of which is the end token."""
        return self.source(source, truncation=True, max_length=longest)["input_ids"]

    def written(self, text: str) -> list[int]:
        """Token ids of a text, without start and end."""
        return self.target(text, add_special_tokens=False)["input_ids"]


def read(file: Path, most: int | None = None, seed: int = 0) -> list[Pair]:
    """The pairs of a JSON-lines file with the fields `source` and `headline`; `most` drawn by the seed, or all in their
    order. Errors in the file are `Refused`."""
    pairs = [Pair(row["source"], row["headline"]) for row in jsonlines.read(file, "source", "headline")]
    return pairs if most is None or most >= len(pairs) else random.Random(seed).sample(pairs, most)


def padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    """Token ids [rows, longest], filled up on the right."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])


@dataclass(frozen=True)
class Examples:
    """Pairs as a trainer takes them: `rows` of input_ids, labels with EOS, and `length` of both, by which batches are
    made. start, end, pad: token ids of the model's config."""

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
        """longest, written: most tokens of a source and of a text; longer texts are left out, sources cut. left_out:
        lengths of texts that are left out too."""
        rows = []
        for pair in pairs:
            labels = tokenizers.written(pair.text)
            if 0 < len(labels) <= written and len(labels) not in left_out:
                ids = tokenizers.read(pair.source, longest)
                row = {"input_ids": ids, "labels": [*labels, config.eos_token_id]}
                rows.append(row | {"length": len(ids) + 2 * len(labels)})
        if not rows:
            raise Refused("no pair fits: give more data, or raise the longest text")
        return cls(rows, config.decoder_start_token_id, config.eos_token_id, config.pad_token_id)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]

    def batch(self, rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """input_ids, attention_mask, labels, decoder_input_ids, and targets [batch]: tokens of each text, EOS not
        counted."""
        sources = padded([row["input_ids"] for row in rows], self.pad)
        labels = padded([row["labels"] for row in rows], IGNORED)
        inputs = padded([[self.start, *row["labels"][:-1]] for row in rows], self.pad)
        return {
            "input_ids": sources,
            "attention_mask": (sources != self.pad).long(),
            "labels": labels,
            "decoder_input_ids": inputs,
            "targets": torch.tensor([len(row["labels"]) - 1 for row in rows]),
        }
