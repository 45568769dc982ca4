"""Headlines of an asked number of characters by every method for encoder-decoders (001 tables 2 and 4, 003 table 1).

    python -m backend evaluate headline_lengths --data DATA/headlines --parts .cache/headlines/parts

All rows start from one model without control and were trained on as many updates. A row is an adapter of the headline
model in assets/adapters, or a folder of `parts`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field
from scipy.stats import ttest_rel

from backend.encoder_decoder import many, pairs
from backend.encoder_decoder.model import Writer, load
from backend.encoder_decoder.pairs import Pair
from backend.evaluation import headlines as measure
from backend.evaluation.card import PROMPTS, Card
from backend.evaluation.experiment import Case, Experiment, Flags, Plan, Results, Row, Say
from backend.evaluation.markdown import UNKNOWN, decimal, estimate, fine, listed, percent, table
from backend.evaluation.quality import RECALLED, bert_score, corpus_bleu, rouge_recalls
from backend.measures.bootstrap import Bounded, bounded, difference, ratio
from backend.methods import methods
from backend.models import adapters, headlines
from backend.models.adapters import Adapter
from backend.record import jsonlines
from backend.record.results import RESULTS, counted
from backend.refused import Refused
from backend.text.words import spoken
from backend.training.budget import LOG

# Targets in characters: 001's three, and two that the data have many of. References of 75 and more are few.
TARGETS = (30, 40, 50, 60, 75)
JOINT = (30, 40, 50, 60)
LONGEST_SOURCE, CAP = 96, 128
FREE = "none"
# What a row is called in 001's tables, and the columns of its English targets of 30, 50 and 75 characters.
PUBLISHED = RESULTS.parent / "published" / "001.json"
IN_001 = {
    "none": "Transformer", "len_init": "LenInit", "lc": "LC", "ldpe": "LDPE", "ldpe+pe": "LDPE+PE", "lrpe": "LRPE",
    "lrpe+pe": "LRPE+PE", "ldpe, left out": "LDPE, lengths left out of training",
}  # fmt: skip
# Rows whose best of a wide search are ranked by the source's words, at which target.
RERANKED, WIDE, BETWEEN = ("ldpe", "lrpe+pe"), 20, 50
# Signed errors in characters, and lengths of references, from and up to.
ERRORS = (("shorter", -999, -6), ("−5 to −2", -5, -2), ("−1", -1, -1), ("0", 0, 0), ("+1", 1, 1), ("+2 to +5", 2, 5),
          ("longer", 6, 999))  # fmt: skip
BUCKETS = ((1, 30), (31, 45), (46, 60), (61, 999))
VARIANCE, RECALL = (0, (4, 5, 6)), (1, (1, 4, 7))


class HeadlineLengths(Experiment):
    name = "headline_lengths"
    title = "Headlines of an asked length"
    question = "How near does each method come to a headline of an asked number of characters, and how good is it?"
    paper = "001 tables 2 and 4, 003 table 1"
    order = 62
    files = ("headline_lengths.json",)
    key = ("row",)
    withdrawn = "the model without control was trained for two hours, not a night: its headlines are not to be kept"
    recipe = ("backend evaluate headline_lengths --data {data}/headlines {more}",)

    class Options(Flags):
        data: Path = Field(description="folder of train.jsonl and test.jsonl")
        parts: Path = Field(Path(".cache/headlines/parts"), description="folder of adapters, one for each further row")
        model: Path = Field(headlines.FOLDER, description="folder of the model without control")
        split: str = Field("test", description="file of the folder that is asked")
        sources: int = Field(300, ge=1, description="sources drawn")
        beams: int = Field(5, ge=1, description="width of the search")
        seed: int = 0

    def plan(self, options: Options, say: Say) -> Plan:
        asked = pairs.read(options.data / f"{options.split}.jsonl", options.sources, options.seed)
        words = {
            word for pair in pairs.read(options.data / "train.jsonl") for word in spoken(pair.text)
        }
        rows = _rows(options)
        if FREE not in rows:
            raise Refused(f"{options.parts} has no row '{FREE}', beside which others are measured: train it too")
        base = load(str(options.model))
        asking = partial(_asked, base, asked, words, options.beams, say)
        free = _texts(_writer(options, rows[FREE]), asked, None, options.beams)

        def measured(row: str) -> Iterator[Row]:
            yield {"row": row, **asking(row, _writer(options, rows[row]), free)}

        trained = jsonlines.read(options.model / LOG)[-1:]
        common = {"split": options.split, "sources": len(asked), "beams": options.beams, "targets": TARGETS}
        common |= {"base": {name: line[name] for line in trained for name in ("step", "epoch", "eval_loss")}}
        common |= {"width": base.model.config.d_model, "lengths": [len(pair.text) for pair in asked]}
        kept = [
            measure.complete(p.text, words | set(spoken(p.source))) and measure.sensible(p.text, p.source)
            for p in asked
        ]
        common |= {"references": bounded(np.mean, kept).keys("kept")}
        return Plan(common, [Case((row,), partial(measured, row)) for row in [FREE, *sorted(rows.keys() - {FREE})]])

    def card(self, results: Results) -> Card:
        (result,) = results.values()
        rows, count = result["rows"], result["sources"]
        words = (
            f"A small Transformer of the lab's own (3 + 3 layers, width {result['width']}), trained on descriptions of "
            f"packages and their one-line synopses; {count} sources of the {result['split']} set, beam "
            f"{result['beams']}. Every row goes on from one model without control, with a LoRA on its decoder and as "
            "many updates on the same texts. The papers' data and models are other and larger: orders and ratios are "
            "what can be compared. Few references have 75 characters, so that recall there is beyond what they can "
            "tell."
        )
        parts = [
            words,
            "### Variance of the length (001 table 4)",
            table(["row", *(f"at {target}" for target in TARGETS), "001 at 30, 50, 75"], [_variances(r) for r in rows]),
            "### Recall of ROUGE-1 (001 table 2)",
            table(["row", *(f"at {target}" for target in TARGETS), "001 at 30, 50, 75"], [_recalls(r) for r in rows]),
            "### Headlines that end well",
            "Of all asked for at 30 to 60 characters: within a character, an end that was drawn, a last word that is "
            "whole and no article, preposition or conjunction, no bracket or quote open, at most one word said again, "
            "a third of its words from the source, and a chance of at least 5 % that the model without control ends "
            f"there. What can be asked of a text alone, {_kept_of(result)} of the references meet. Beside it, recall "
            "at just the length that the row without control wrote, over that row's.",
            table(["row", "joint rate (95 %)", "recall over the free row's (95 %)"], [_ends(r, count) for r in rows]),
            "### Re-ranked by the source's words (001 table 3)",
            table(
                ["row", f"gain in ROUGE-1 at {BETWEEN} by the best of {WIDE}", "001, re-ranked less not, at 75"],
                [_gains(r, count) for r in rows if r.get("reranked")],
            ),
            "### At the reference's own length (003 table 1)",
            table(
                ["row", "mean error", "its deviation", "ROUGE-1", "ROUGE-2", "ROUGE-L", "BLEU", "BERTScore"],
                [_references(r) for r in rows],
            ),
            "### Errors at 50 characters (001 figure 1)",
            table(["row", *(name for name, *_ in ERRORS)], [_histogram(r) for r in rows]),
            "### Mean error by the reference's length (003)",
            table(
                ["row", *(_bucket(low, high, result["lengths"]) for low, high in BUCKETS)],
                [_by_length(r, result["lengths"]) for r in rows],
            ),
            "### Paired t-tests of the error at the reference's length (003)",
            table(["rows", "mean difference", "t", "p"], list(_tested(rows))),
            "### Drawn by a seed",
            listed(["row", "asked", "written"], [line for r in rows for line in _drawn(r)]),
        ]
        return Card("\n\n".join(parts), few="" if count >= PROMPTS else f"{count} sources")


def _rows(options: Any) -> dict[str, Adapter]:
    """By name: those that come with the headline model, "+pe" where its own positions stay, and those of `parts`."""
    found: dict[str, Adapter] = {}
    for method in methods.names() if options.model == headlines.FOLDER else ():
        adapter = adapters.find(method, headlines.NAME)
        if adapter and adapter.settings:
            found[f"{method}+pe" if adapter.settings.beside else method] = adapter
    folders = options.parts.iterdir() if options.parts.is_dir() else ()
    return found | {each.name: Adapter.load(each) for each in folders if (each / adapters.SIGNAL).is_file()}


def _writer(options: Any, adapter: Adapter) -> Writer:
    return load(str(options.model), adapter)


def _texts(writer: Writer, asked: Sequence[Pair], targets: Sequence[int] | None, beams: int) -> list[dict[str, Any]]:
    """What is written of each source: its text, tokens, length in characters, and whether it drew its end."""
    sources = [pair.source for pair in asked]
    found = many.search(writer, sources, targets, beams, CAP, LONGEST_SOURCE)
    best = [hypotheses[0] for hypotheses in found]
    length = writer.tokenizers.length
    return [
        {"text": writer.text(one.tokens), "tokens": one.tokens, "length": length(one.tokens), "ended": one.ended}
        for one in best
    ]


def _asked(
    base: Writer,
    asked: Sequence[Pair],
    dictionary: set[str],
    beams: int,
    say: Say,
    row: str,
    writer: Writer,
    free: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    def write(targets: Sequence[int]) -> Sequence[Mapping[str, Any]]:
        # Without control every target gives the same texts.
        return free if row == FREE else _texts(writer, asked, targets, beams)

    references = [pair.text for pair in asked]
    known = [dictionary | set(spoken(pair.source)) for pair in asked]
    at: dict[str, Any] = {}
    joint: list[list[bool]] = []
    for target in TARGETS:
        written = write([target] * len(asked))
        lengths = np.array([one["length"] for one in written])
        found: dict[str, Any] = {"variance": bounded(np.mean, (lengths - target) ** 2.0).keys("mean")}
        found["recall"] = _recall([one["text"] for one in written], references)
        chances = many.end_chances(base, [p.source for p in asked], [o["tokens"] for o in written], LONGEST_SOURCE)
        ends = [
            measure.joint(one["text"], one["ended"], target, chance, words, pair.source)
            for one, chance, words, pair in zip(written, chances, known, asked, strict=True)
        ]
        if target in JOINT:
            joint.append(ends)
        found |= {"joint": float(np.mean(ends)), "written": _kept(written, chances)}
        at[str(target)] = found
    say(counted(row, "headlines", len(TARGETS) * len(asked), len(TARGETS) * len(asked), "not written"))
    ranked = _reranked(writer, asked) if row in RERANKED else None
    own = write([one["length"] for one in free])
    recalls = [
        [each["rouge1"] for each in rouge_recalls([one["text"] for one in texts], references)] for texts in (own, free)
    ]
    like = write([writer.tokenizers.length(writer.tokenizers.written(text)) for text in references])
    return {
        "at": at,
        "joint": bounded(np.mean, np.mean(joint, axis=0)).keys("mean"),
        "own_length": ratio(*recalls).keys("ratio") | difference(*recalls).keys("difference"),
        "reference_length": _like(like, references),
        "reranked": ranked,
    }


def _reranked(writer: Writer, asked: Sequence[Pair]) -> dict[str, Any]:
    """What 001's re-ranking of the best of a wide search gains in recall at its middle target (001 §3.4)."""
    sources, references = [pair.source for pair in asked], [pair.text for pair in asked]
    found = many.search(writer, sources, [BETWEEN] * len(asked), WIDE, CAP, LONGEST_SOURCE)
    texts = [[writer.text(one.tokens) for one in hypotheses] for hypotheses in found]
    taken = [each[measure.reranked(each, source)] for each, source in zip(texts, sources, strict=True)]
    recalls = [
        [each["rouge1"] for each in rouge_recalls(which, references)] for which in (taken, [each[0] for each in texts])
    ]
    return {"target": BETWEEN, "beams": WIDE} | difference(*recalls).keys("gain")


def _recall(texts: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    found = rouge_recalls(texts, references)
    return {kind: 100 * float(np.mean([each[kind] for each in found])) for kind in RECALLED}


def _like(written: Sequence[Mapping[str, Any]], references: Sequence[str]) -> dict[str, Any]:
    texts = [one["text"] for one in written]
    errors = np.array([abs(len(o["text"]) - len(r)) for o, r in zip(written, references, strict=True)], dtype=float)
    return {
        "error": bounded(np.mean, errors).keys("mean"),
        "deviation": float(errors.std()),
        "recall": _recall(texts, references),
        "bleu": corpus_bleu(texts, references),
        "bert_score": 100 * bert_score(texts, references).f1,
        "errors": errors.tolist(),
    }


def _kept(written: Sequence[Mapping[str, Any]], chances: Sequence[float]) -> list[dict[str, Any]]:
    return [
        {"text": one["text"], "ended": one["ended"], "chance": round(chance, 4)}
        for one, chance in zip(written, chances, strict=True)
    ]


def _variances(row: Mapping[str, Any]) -> list[str]:
    shown = [fine(row["at"][str(target)]["variance"]["mean"]) for target in TARGETS]
    return [f"`{row['row']}`", *shown, _in_001(row["row"], *VARIANCE)]


def _recalls(row: Mapping[str, Any]) -> list[str]:
    shown = [decimal(row["at"][str(target)]["recall"]["rouge1"]) for target in TARGETS]
    return [f"`{row['row']}`", *shown, _in_001(row["row"], *RECALL)]


def _in_001(row: str, table: int, columns: Sequence[int]) -> str:
    """001's own figures for a row, "–" where it has none."""
    lines = json.loads(PUBLISHED.read_text("utf-8"))["tables"][table]["rows"]
    found = next((line for line in lines if line[0] == IN_001.get(row)), None)
    return " / ".join(found[column] for column in columns) if found else UNKNOWN


def _ends(row: Mapping[str, Any], count: int) -> list[str]:
    return [
        f"`{row['row']}`",
        estimate(Bounded.of(row["joint"], "mean"), count, "sources", percent),
        estimate(Bounded.of(row["own_length"], "ratio"), count, "sources"),
    ]


def _kept_of(result: Mapping[str, Any]) -> str:
    return estimate(Bounded.of(result["references"], "kept"), result["sources"], "sources", percent)


def _histogram(row: Mapping[str, Any]) -> list[str]:
    errors = np.array([len(one["text"]) for one in row["at"][str(BETWEEN)]["written"]]) - BETWEEN
    return [f"`{row['row']}`", *(percent(float(np.mean((errors >= a) & (errors <= b)))) for _, a, b in ERRORS)]


def _within(low: int, high: int, lengths: Sequence[int]) -> np.ndarray:
    return (np.array(lengths) >= low) & (np.array(lengths) <= high)


def _bucket(low: int, high: int, lengths: Sequence[int]) -> str:
    return f"{f'{low} to {high}' if high < 999 else f'{low} and more'} ({int(_within(low, high, lengths).sum())})"


def _by_length(row: Mapping[str, Any], lengths: Sequence[int]) -> list[str]:
    errors = np.array(row["reference_length"]["errors"])
    within = [errors[_within(low, high, lengths)] for low, high in BUCKETS]
    return [f"`{row['row']}`", *(decimal(float(each.mean())) if each.size else UNKNOWN for each in within)]


def _tested(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Each row beside the one without control, and PRE beside RPE."""
    errors = {row["row"]: np.array(row["reference_length"]["errors"]) for row in rows}
    pairs = [(name, FREE) for name in errors if name != FREE] + [("pre", "rpe")]
    for one, other in pairs:
        if one in errors and other in errors:
            gap = errors[one] - errors[other]
            found = ttest_rel(errors[one], errors[other]) if gap.std() > 0 else None
            shown = (f"{found.statistic:.2f}", f"{found.pvalue:.2g}") if found else (UNKNOWN, UNKNOWN)
            yield [f"`{one}` less `{other}`", decimal(float(gap.mean())), *shown]


def _gains(row: Mapping[str, Any], count: int) -> list[str]:
    shown = Bounded(*(None if found is None else 100 * found for found in Bounded.of(row["reranked"], "gain")))
    return [f"`{row['row']}`", estimate(shown, count, "sources"), "1.19" if row["row"] == "lrpe+pe" else UNKNOWN]


def _references(row: Mapping[str, Any]) -> list[str]:
    found = row["reference_length"]
    recall = [decimal(found["recall"][kind]) for kind in RECALLED]
    scores = [decimal(found["bleu"]), decimal(found["bert_score"])]
    return [f"`{row['row']}`", decimal(found["error"]["mean"]), decimal(found["deviation"]), *recall, *scores]


def _drawn(row: Mapping[str, Any]) -> Iterator[list[str]]:
    drawn = np.random.default_rng(0).integers(len(row["at"]["50"]["written"]), size=len(TARGETS))
    for target, place in zip(TARGETS, drawn, strict=True):
        yield [f"`{row['row']}`", str(target), row["at"][str(target)]["written"][place]["text"]]
