"""What a model goes on with after a long text, beside the text's own next words (002 table 2, fig. 4).

    python -m backend evaluate continuation --data FOLDER

At each length the model goes on with a document greedily for WRITTEN tokens, which are compared with the document's
own. Truncation reads only as many of the last tokens as Λ can see, at the same cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from backend.engine import Lab
from backend.evaluation.card import Card
from backend.evaluation.experiment import Case, Experiment, Plan, Results, Row, Say
from backend.evaluation.markdown import decimal, figure, table
from backend.evaluation.quality import corpus_bleu, rouge
from backend.evaluation.reader import Reader
from backend.evaluation.texts import LAMBDA, PLAIN, TRUNCATION, WINDOW, TextFlags
from backend.record.results import counted

WRITTEN = 100
POLICIES: dict[str, dict[str, Any]] = {PLAIN: {}, LAMBDA: {"window": WINDOW}, TRUNCATION: {}}


def continuations(
    lab: Lab, model: str, policy: str, texts: Mapping[str, Tensor], lengths: Sequence[int]
) -> list[Row]:
    """BLEU and ROUGE-Lsum of what is written after each length, over the documents' own next tokens."""
    tokenizer = lab.models.load(model).tokenizer
    reader = Reader.of(lab, model, POLICIES[policy], policy == TRUNCATION)
    pairs: dict[int, tuple[list[str], list[str]]] = {length: ([], []) for length in lengths}
    for ids in texts.values():
        fitting = [length for length in lengths if length + WRITTEN <= len(ids)]
        for length, tokens in zip(fitting, reader.after(ids, fitting, WRITTEN), strict=True):
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


class Continuation(Experiment):
    name = "continuation"
    title = "Writing on after a long text"
    question = "How near to a long text's own next words does a model write on?"
    paper = "002 table 2, figure 4"
    order = 80
    files = ("continuation.json",)
    needs = ("sacrebleu", "rouge_score")
    recipe = ("backend evaluate continuation --data {data}/novels --longest 16384 {more}",)

    class Options(TextFlags):
        lengths: tuple[Annotated[int, Field(ge=64)], ...] = Field(
            (2048, 4096, 8192, 16384, 32768), description="tokens after which to measure"
        )
        longest: int = Field(8192, description="where plain attention stops")

    def plan(self, options: Options, say: Say) -> Plan:
        lab, lengths = options.lab(), sorted(options.lengths)
        ids = options.ids(lab, lengths[-1] + WRITTEN)

        def measured(policy: str) -> Iterator[Row]:
            mine = [length for length in lengths if policy != PLAIN or length <= options.longest]
            rows = continuations(lab, options.model, policy, ids, mine)
            found = {row["tokens"]: row["documents"] for row in rows}
            for length in lengths:
                why = f"without {WRITTEN} tokens after that, or past where the policy stops"
                say(counted(f"{policy}, {length:,} tokens", "continuations", len(ids), found.get(length, 0), why))
            yield from rows

        common = {"model": options.model, "window": WINDOW}
        return Plan(common, [Case(policy, partial(measured, policy)) for policy in POLICIES])

    def card(self, results: Results) -> Card:
        (result,) = results.values()
        rows = [
            [row["policy"], f"{row['tokens']:,}", figure(row["documents"]), decimal(row["BLEU"]),
             figure(100 * row["ROUGE-Lsum"])]
            for row in result["rows"]
        ]  # fmt: skip
        words = (
            "100 tokens written after a long text, always the likeliest, beside the text's own next words. Scores were "
            "not kept text by text, so that they have no intervals and no rows are compared:"
        )
        columns = ["policy", "tokens read", "texts", "BLEU, of 100", "ROUGE-Lsum, of 100"]
        return Card(f"{words}\n\n{table(columns, rows)}")
