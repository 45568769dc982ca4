"""Whether a model tells a number that is hidden in a long text.

    python -m backend evaluate passkey_retrieval --data FOLDER

A passkey lies a share of the documents' text before the question; Λ cannot see it when it is farther back than its
window.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from backend.engine import Lab
from backend.evaluation.card import Card
from backend.evaluation.experiment import Case, Experiment, Plan, Result, Results, Row, Say
from backend.evaluation.markdown import estimate, percent, table
from backend.evaluation.reader import Reader
from backend.evaluation.texts import PLAIN, TextFlags
from backend.measures.bootstrap import Bounded, share
from backend.record.results import counted

DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
# Tokens written where a passkey is asked for; lengths of a text that fillers are drawn from.
ANSWER_TOKENS, STRETCHES = 12, 16
# Windows so small that a model tells under plain attention what lies outside them.
WINDOWS: dict[str, dict[str, Any]] = {PLAIN: {}, "Λ 256": {"window": 256}, "Λ 128": {"window": 128}}
QUESTION = "What is the pass key? The pass key is"


def passkeys(
    lab: Lab, model: str, policy: str, texts: Sequence[Tensor], lengths: Sequence[int], keys: int
) -> list[Row]:
    """Share of `keys` hidden numbers recalled, by length and how deep they lie (0: at the start), with the tokens
    `back` from where they begin to the end. A length that none of texts [n] has is left out."""
    tokenizer, rows = lab.models.load(model).tokenizer, []
    reads = Reader.of(lab, model, WINDOWS[policy])
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


def hidden(tokenizer: Any, key: str, filler: Tensor, depth: float) -> tuple[Tensor, int]:
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


class PasskeyRetrieval(Experiment):
    name = "passkey_retrieval"
    title = "Recalling a number hidden in a text"
    question = "Does a model recall a number in a long text that lies within its window, and one outside it?"
    order = 81
    files = ("passkeys.json",)
    recipe = ("backend evaluate passkey_retrieval --data {data}/novels {more}",)

    class Options(TextFlags):
        lengths: tuple[Annotated[int, Field(ge=64)], ...] = Field(
            (128, 256, 512, 1024), description="tokens of the texts"
        )
        keys: int = Field(6, ge=1, description="numbers hidden at each depth")

    def plan(self, options: Options, say: Say) -> Plan:
        lab, lengths = options.lab(), sorted(options.lengths)
        ids = [*options.ids(lab, STRETCHES * lengths[-1]).values()]

        def measured(policy: str) -> Iterator[Row]:
            rows = passkeys(lab, options.model, policy, ids, lengths, options.keys)
            asked = options.keys * len(DEPTHS) * len(lengths)
            say(counted(policy, "passkeys", asked, options.keys * len(rows), "no text is so long"))
            yield from rows

        windows = {policy: settings.get("window") for policy, settings in WINDOWS.items()}
        common = {"model": options.model, "keys": options.keys, "windows": windows}
        return Plan(common, [Case(policy, partial(measured, policy)) for policy in WINDOWS])

    def card(self, results: Results) -> Card:
        (result,) = results.values()
        rows = [
            [policy, where, estimate(found, count, "keys", percent), estimate(plain, count, "keys", percent)]
            for (policy, where), (found, plain, count) in _keys(result).items()
        ]
        words = (
            "Numbers hidden in texts of 128 to 1,024 tokens and asked for at their end; of texts longer than the "
            "window, by whether the number lies in it:"
        )
        return Card(f"{words}\n\n{table(['policy', 'where', 'recalled', 'recalled by plain attention'], rows)}")


def _keys(part: Result) -> dict[tuple[str, str], tuple[Bounded, Bounded, int]]:
    """Of each windowed policy the numbers recalled within its window and outside it, by it and by plain attention."""
    rows, keys = part["rows"], part["keys"]
    plain = {(row["tokens"], row["depth"]): row["recalled"] for row in rows if row["policy"] == PLAIN}
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row in rows:
        window, place = part["windows"].get(row["policy"]), (row["tokens"], row["depth"])
        if window is not None and row["tokens"] > window and place in plain:
            where = "outside the window" if row["back"] > window else "within the window"
            pair = round(row["recalled"] * keys), round(plain[place] * keys)
            found.setdefault((row["policy"], where), []).append(pair)
    totals = {key: (*map(sum, zip(*pairs, strict=True)), keys * len(pairs)) for key, pairs in found.items()}
    return {key: (share(own, count), share(other, count), count) for key, (own, other, count) in totals.items()}
