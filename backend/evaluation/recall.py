"""What a model still makes of a long text: its continuation (002 table 2, fig. 4), and a number hidden in it.

    python -m backend evaluate recall --data FOLDER
    python -m backend evaluate recall --data FOLDER --only passkeys

Writes assets/results/recall.json, in two parts of which --only measures one and keeps the other. At each length the
model goes on with a document greedily for WRITTEN tokens, which are compared with the document's own. Truncation reads
only as many of the last tokens as Λ can see, at the same cost. A passkey lies a share of the documents' text before
the question; Λ cannot see it when it is farther back than its window.
"""

from __future__ import annotations

import copy
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from backend.engine import Lab
from backend.evaluation.fluency import TRUNCATION, WINDOW
from backend.evaluation.perplexity import tokenise
from backend.evaluation.quality import corpus_bleu, rouge
from backend.inference.chunks import CHUNK
from backend.inference.kv_cache import FramedCache
from backend.inference.model_runner import Runner
from backend.positions import policy_of
from backend.record.provenance import provenance
from backend.record.results import counted
from backend.refused import Refused
from backend.settings import RunSettings

# Of each part: tokens after which it is measured.
LENGTHS = {"continuations": (2048, 4096, 8192, 16384, 32768), "passkeys": (128, 256, 512, 1024)}
WRITTEN = 100
DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
# Tokens written where a passkey is asked for; lengths of a text that fillers are drawn from.
ANSWER_TOKENS, STRETCHES = 12, 16
POLICIES: dict[str, dict[str, Any]] = {"plain": {}, "Λ": {"window": WINDOW}, TRUNCATION: {}}
# Of passkeys: windows so small that a model tells under plain attention what lies outside them.
WINDOWS: dict[str, dict[str, Any]] = {"plain": {}, "Λ 256": {"window": 256}, "Λ 128": {"window": 128}}
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
            yield list(go_on(self.runner, logits, copy.deepcopy(cache), written))

    def _cache(self, room: int) -> FramedCache:
        return self.runner.cache(policy_of(self.settings), room)

    def _read(self, ids: Tensor, cache: FramedCache) -> Tensor:
        for chunk in ids.split(CHUNK):
            logits = self.runner.read(chunk, cache)
        return logits


def go_on(runner: Runner, logits: Tensor, cache: FramedCache, count: int) -> Iterator[int]:
    """The likeliest next tokens, `count` of them, after those of a cache; logits [1, vocabulary] are the last one's."""
    for number in range(count):
        token = int(logits.argmax())
        yield token
        if number < count - 1:
            logits = runner.read(torch.tensor([token]), cache)


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


def passkeys(
    lab: Lab, model: str, policy: str, texts: Sequence[Tensor], lengths: Sequence[int], keys: int
) -> list[dict[str, Any]]:
    """Share of `keys` hidden numbers recalled, by length and how deep they lie (0: at the start), with the tokens
    `back` from where they begin to the end. A length that none of texts [n] has is left out."""
    tokenizer, rows = lab.models.load(model).tokenizer, []
    reads = Reader(lab, RunSettings(prompt="-", model=model, **WINDOWS[policy]), truncated=False)
    for length in lengths:
        fitting = [ids for ids in texts if len(ids) >= length]
        for depth in DEPTHS if fitting else ():
            recalled = []
            for draw in range(keys):
                # The same under every policy.
                chance = random.Random(f"{length} {depth} {draw}")
                key = str(chance.randrange(10_000, 100_000))
                ids, back = hidden(tokenizer, key, _stretch(chance, fitting, length), depth)
                (tokens,) = reads.after(ids, [length], ANSWER_TOKENS)
                recalled.append(key in tokenizer.decode(tokens))
            share = statistics.mean(recalled)
            rows.append({"policy": policy, "tokens": length, "depth": depth, "back": back, "recalled": share})
    return rows


def _stretch(chance: random.Random, texts: Sequence[Tensor], length: int) -> Tensor:
    """`length` ids from anywhere in one of texts [≥ length]."""
    ids = chance.choice(texts)
    begin = chance.randrange(len(ids) - length + 1)
    return ids[begin : begin + length]


def hidden(tokenizer, key: str, filler: Tensor, depth: float) -> tuple[Tensor, int]:
    """Ids [n] of a text to go on with: of filler [n] as much as has place, a number in it, and the question at its end;
    and how many tokens there are from where the number stands to the end. No chat template: in one, the embedded
    model tells none."""
    line, question = (
        tokenizer(f"\n\n{text}", add_special_tokens=False)["input_ids"]
        for text in (f"The pass key is {key}. Remember it. {key} is the pass key.\n\n", QUESTION)
    )
    around = filler.tolist()[: len(filler) - len(line) - len(question)]
    place = int(depth * len(around))
    behind = line + around[place:] + question
    return torch.tensor(around[:place] + behind), len(behind)


def continuing(
    lab: Lab, model: str, texts: Mapping[str, str], lengths: Sequence[int], longest: int, report: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """What is written after each of `lengths`, after each policy. longest: where the policy stops that looks at
    everything."""
    ids = _tokenised(lab, model, texts, max(lengths) + WRITTEN)
    part = provenance(seed=0) | {"model": model, "window": WINDOW, "rows": []}
    for policy in POLICIES:
        mine = [length for length in lengths if policy != "plain" or length <= longest]
        part["rows"] += continuations(lab, model, policy, ids, mine)
        report(f"continuations, {policy}: {len(part['rows'])} rows")
        found = {row["tokens"]: row["documents"] for row in part["rows"] if row["policy"] == policy}
        for length in lengths:
            why = f"without {WRITTEN} tokens after that, or past where the policy stops"
            report(counted(f"{policy}, {length:,} tokens", "continuations", len(ids), found.get(length, 0), why))
        yield part


def telling(
    lab: Lab, model: str, texts: Mapping[str, str], lengths: Sequence[int], keys: int, report: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Which passkeys are recalled, after each policy. keys: numbers hidden at each depth."""
    ids = list(_tokenised(lab, model, texts, STRETCHES * max(lengths)).values())
    windows = {policy: settings.get("window") for policy, settings in WINDOWS.items()}
    part = provenance(seed=0) | {"model": model, "keys": keys, "windows": windows, "rows": []}
    for policy in WINDOWS:
        part["rows"] += passkeys(lab, model, policy, ids, lengths, keys)
        report(f"passkeys, {policy}: {len(part['rows'])} rows")
        count = keys * sum(row["policy"] == policy for row in part["rows"])
        report(counted(policy, "passkeys", keys * len(DEPTHS) * len(lengths), count, "no text is so long"))
        yield part


def _tokenised(lab: Lab, model: str, texts: Mapping[str, str], most: int) -> dict[str, Tensor]:
    return {name: tokenise(lab, text, RunSettings(prompt="-", model=model), most) for name, text in texts.items()}


def earlier(found: dict[str, Any]) -> dict[str, Any]:
    """A result whose other part is kept, checked. ValueError for one that is none of this command."""
    try:
        _ = [part["rows"] for part in found.values()]
    except (KeyError, TypeError, AttributeError) as error:
        raise Refused("it is no result of this command") from error
    return found


def evaluate(
    lab: Lab,
    model: str,
    texts: Mapping[str, str],
    lengths: Mapping[str, Sequence[int]],
    longest: int,
    keys: int,
    before: Mapping[str, Any] | None = None,
    report: Callable[[str], None] = print,
) -> Iterator[dict[str, Any]]:
    """The result document after each policy of the parts in `lengths` (names of LENGTHS).

    before: a document whose other part is kept. Each part has a provenance of its own.
    """
    measures = {"continuations": partial(continuing, longest=longest), "passkeys": partial(telling, keys=keys)}
    result = dict(before or {})
    for name, mine in lengths.items():
        for part in measures[name](lab, model, texts, mine, report=report):
            yield (result := result | {name: part})
