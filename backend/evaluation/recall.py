"""What a model still makes of a long text: its continuation (002 table 2, fig. 4), and a number hidden in it.

    python -m backend evaluate recall --data FOLDER

Writes assets/results/recall.json. At each length the model goes on with a document greedily for WRITTEN tokens, which
are compared with the document's own. Truncation reads only as many of the last tokens as Λ can see, at the same cost.
The passkey lies a share of the text before the question; Λ cannot see it when it is farther back than its window.
"""

from __future__ import annotations

import copy
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backend.cache import FramedCache
from backend.engine import CHUNK, Lab
from backend.evaluation.fluency import TRUNCATION, WINDOW
from backend.evaluation.machine import provenance
from backend.evaluation.perplexity import tokenise
from backend.evaluation.quality import corpus_bleu, rouge
from backend.positions import Policy
from backend.prompt import token_ids
from backend.runner import Runner
from backend.settings import RunSettings

LENGTHS = (2048, 4096, 8192, 16384, 32768)
WRITTEN = 100
DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
KEYS = 4
POLICIES: dict[str, dict[str, Any]] = {"plain": {}, "Λ": {"window": WINDOW}, TRUNCATION: {}}
FILLER = (
    "The grass is green. The sky is blue. The sun is warm. Here we go. There and back again. ",
    "The river runs to the sea. Birds fly over the hills. The wind is cold in winter. ",
)
QUESTION = "What is the pass key? The pass key is"


@dataclass(frozen=True)
class Reader:
    """A model under one policy, which reads and goes on greedily."""

    lab: Lab
    settings: RunSettings
    truncated: bool

    @property
    def runner(self) -> Runner:
        return self.lab.runner(self.settings)

    def after(self, ids: Tensor, lengths: Sequence[int], written: int) -> Iterator[list[int]]:
        """What it writes after each of `lengths` tokens of ids [n], ascending; the text is read once."""
        cache, done = self._cache(max(lengths, default=0) + written), 0
        for length in lengths:
            if self.truncated:
                cache, done = self._cache(WINDOW + written), max(0, length - WINDOW)
            logits = self._read(ids[done:length], cache)
            done = length
            yield self._written(logits, copy.deepcopy(cache), written)

    def _cache(self, room: int) -> FramedCache:
        return self.runner.cache(Policy.of(self.settings), room)

    def _read(self, ids: Tensor, cache: FramedCache) -> Tensor:
        for chunk in ids.split(CHUNK):
            logits = self.runner.read(chunk, cache)
        return logits

    def _written(self, logits: Tensor, cache: FramedCache, count: int) -> list[int]:
        tokens = [int(logits.argmax())]
        while len(tokens) < count:
            tokens.append(int(self.runner.read(torch.tensor(tokens[-1:]), cache).argmax()))
        return tokens


def reader(lab: Lab, model: str, policy: str) -> Reader:
    """A reader under a policy of POLICIES."""
    return Reader(lab, RunSettings(prompt="-", model=model, **POLICIES[policy]), policy == TRUNCATION)


def continuations(
    lab: Lab, model: str, policy: str, texts: Mapping[str, Tensor], lengths: Sequence[int]
) -> list[dict[str, Any]]:
    """BLEU and ROUGE-Lsum of what is written after each length, over the documents' own next tokens."""
    tokenizer = lab.models.load(model).tokenizer
    pairs: dict[int, tuple[list[str], list[str]]] = {length: ([], []) for length in lengths}
    for ids in texts.values():
        fitting = [length for length in lengths if length + WRITTEN <= len(ids)]
        for length, tokens in zip(fitting, reader(lab, model, policy).after(ids, fitting, WRITTEN), strict=True):
            pairs[length][0].append(tokenizer.decode(tokens))
            pairs[length][1].append(tokenizer.decode(ids[length : length + WRITTEN].tolist()))
    return [
        {
            "policy": policy,
            "tokens": length,
            "documents": len(written),
            "BLEU": round(corpus_bleu(written, own), 2),
            "ROUGE-Lsum": round(rouge(written, own)["rougeLsum"], 4),
        }
        for length, (written, own) in pairs.items()
        if written
    ]


def passkeys(lab: Lab, model: str, policy: str, lengths: Sequence[int], keys: int = KEYS) -> list[dict[str, Any]]:
    """Share of `keys` hidden numbers that are told, by length and how deep they lie (0: at the start)."""
    tokenizer, rows = lab.models.load(model).tokenizer, []
    for length in lengths:
        for depth in DEPTHS:
            found = []
            for draw in range(keys):
                key = str(random.Random(f"{length} {depth} {draw}").randrange(10_000, 100_000))
                ids = hidden(tokenizer, key, length, depth)
                (tokens,) = reader(lab, model, policy).after(ids, [len(ids)], 16)
                found.append(key in tokenizer.decode(tokens))
            rows.append({"policy": policy, "tokens": length, "depth": depth, "told": statistics.mean(found)})
    return rows


def hidden(tokenizer, key: str, length: int, depth: float) -> Tensor:
    """Ids [about `length`] of a chat prompt with a number in filler, and the question after it."""
    line = f"The pass key is {key}. Remember it. {key} is the pass key. "
    filler = "".join(FILLER) * (length // 20)
    room = length - len(token_ids(RunSettings(prompt=f"{line}\n\n{QUESTION}"), tokenizer))
    ids = tokenizer(filler, add_special_tokens=False, verbose=False)["input_ids"][: max(0, room)]
    place = int(depth * len(ids))
    before, behind = tokenizer.decode(ids[:place]), tokenizer.decode(ids[place:])
    return token_ids(RunSettings(prompt=f"{before} {line}{behind}\n\n{QUESTION}"), tokenizer)


def evaluate(
    lab: Lab,
    model: str,
    texts: Mapping[str, str],
    lengths: Sequence[int],
    longest: int,
    report: Callable[[str], None],
    keys: int = KEYS,
) -> Iterator[dict[str, Any]]:
    """The result document after each policy. longest: where the policy stops that looks at everything.

    keys: numbers hidden at each depth.
    """
    ids = {
        name: tokenise(lab, text, RunSettings(prompt="-", model=model), max(lengths) + WRITTEN)
        for name, text in texts.items()
    }
    result = provenance(seed=0) | {"model": model, "window": WINDOW, "keys": keys, "continuations": [], "passkeys": []}
    for policy in POLICIES:
        mine = [length for length in lengths if policy != "plain" or length <= longest]
        result["continuations"] += continuations(lab, model, policy, ids, mine)
        result["passkeys"] += passkeys(lab, model, policy, [n for n in mine if n <= 4 * WINDOW], keys)
        rows = [*result["continuations"], *result["passkeys"]]
        report(f"{policy}: {sum(row['policy'] == policy for row in rows)} rows")
        yield result
