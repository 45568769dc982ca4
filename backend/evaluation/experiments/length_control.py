"""How well a method keeps to a length: held-out prompts of three kinds, targets in and beyond training (000, 001, 003).

    python -m backend evaluate length_control --method ldpe
    python -m backend evaluate length_control --method pre --data FOLDER --prompts 20
    python -m backend evaluate length_control --method ldpe --landing 8

With --ranges it measures these alone and keeps what the result holds of the others. The questions are the lab's own;
FOLDER adds abstracts (scitldr_test.jsonl) and articles (hellobench_ht.jsonl). Greedy decoding, as a person's are
written.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path, PurePath
from typing import Any, Literal, get_args

import torch
from pydantic import Field
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from backend.engine import Lab
from backend.evaluation.answers import SUMMARIES, Answer
from backend.evaluation.card import UNEQUAL, Card
from backend.evaluation.experiment import Experiment, ModelFlags, Result, Results, Say
from backend.evaluation.markdown import decimal, figure, listed
from backend.evaluation.quality import ENCODER, bert_score, perplexity, rouge
from backend.inference.control import Control
from backend.inference.side_by_side import side_by_side
from backend.measures import length_error as scores
from backend.measures.overlap import distinct, repetition
from backend.methods import LengthMethod, methods
from backend.methods.signal import SignalMethod
from backend.models import adapters
from backend.models.adapters import Adapter
from backend.models.pool import Loaded
from backend.record import jsonlines
from backend.refused import Refused
from backend.settings import MAX_LANDING, Method, RunSettings, Unit, Watch
from backend.splits import SUMMARISE
from backend.steps import Finish, Step
from backend.text.prompt import token_ids
from backend.text.sentences import final
from backend.text.units import length
from backend.training.data import QUESTIONS

Range = Literal["range", "beyond", "words", "characters", "changed", "summaries"]
COMMAND = "backend evaluate length_control --data {data} {more} --method"
IN_RANGE = (10, 20, 40, 60, 80, 100, 120, 150, 200)
EDGES = (5, 300)
BEYOND = (300, 500, 700, 1000)
# The shortest three in characters are those of 001 table 4.
COUNTS: dict[Unit, tuple[int, ...]] = {"words": (10, 25, 50, 100), "characters": (30, 50, 75, 150, 300, 600)}
SUMMARIES_ASKED, BIN = 36, 10
CHANGES = ((120, 60), (60, 120), (40, 150), (150, 80))
CHANGE_AT = 30
# One cap for all: relative to the target it would bound the error of what does not heed a target.
MOST = max(BEYOND) + 48


@dataclass(frozen=True)
class Written:
    """An answer with its prompt and tokens."""

    answer: Answer
    text: str
    tokens: list[int]


@dataclass(frozen=True)
class Case:
    """One response to ask for."""

    kind: str
    prompt: int
    text: str
    target: int
    unit: Unit = "tokens"
    changed_from: int | None = None


def prompts(count: int, folder: Path | None = None) -> dict[str, list[str]]:
    """Held-out prompts by kind, `count` of each; abstracts and articles, which lie in `folder`, where one is given."""
    found = {"questions": QUESTIONS.read_text("utf-8").splitlines()[:count]}
    if folder is not None:
        found["abstracts"] = [SUMMARISE + row["abstract"] for row in _abstracts(folder, count)]
        found["articles"] = [row["prompt"] for row in jsonlines.read(folder / "hellobench_ht.jsonl", "prompt")[:count]]
    return found


def _abstracts(folder: Path, count: int) -> list[dict[str, str]]:
    return jsonlines.read(folder / "scitldr_test.jsonl", "abstract", "tldr")[:count]


def cases(asked: dict[str, list[str]], ranges: Sequence[str]) -> list[Case]:
    """Every prompt under every target of the named ranges: 'range', 'beyond', 'words', 'characters', 'changed'."""
    found = []
    for kind, texts in asked.items():
        for index, text in enumerate(texts):
            if "range" in ranges:
                found += [Case(kind, index, text, target) for target in (*IN_RANGE, *EDGES)]
            if "beyond" in ranges:
                found += [Case(kind, index, text, target) for target in BEYOND if target not in EDGES]
            for unit, targets in COUNTS.items():
                found += [Case(kind, index, text, target, unit) for target in targets if unit in ranges]
            if "changed" in ranges:
                found += [Case(kind, index, text, new, changed_from=old) for old, new in CHANGES]
    return found


def summary_cases(folder: Path, tokenizer: PreTrainedTokenizerBase) -> list[Case]:
    """Abstracts to be summed up in as many tokens as their authors took."""
    return [
        Case(SUMMARIES, index, SUMMARISE + row["abstract"], len(tokenizer(row["tldr"])["input_ids"]))
        for index, row in enumerate(_abstracts(folder, SUMMARIES_ASKED))
    ]


def range_of(answer: Answer) -> str:
    """The range of targets that an answer belongs to, as `cases` names it."""
    if answer.kind == SUMMARIES:
        return SUMMARIES
    if answer.changed_from is not None:
        return "changed"
    if answer.unit != "tokens":
        return answer.unit
    return "range" if answer.target in (*IN_RANGE, *EDGES) else "beyond"


def answers(
    lab: Lab, model: str, method: Method, asked: Sequence[Case], landing: int, report: Say
) -> Iterator[Written]:
    """Ask for the cases as a person would, in their order, some at a time."""
    tokenizer = lab.models.load(model).tokenizer

    def written(case: Case) -> Written:
        settings = _settings(method, case, model=model, landing=landing, watch=Watch(enabled=False))
        control, tokens, ended = Control(), [], False
        for event in lab.stream(settings, control):
            if isinstance(event, Finish):
                if event.reason == "error":
                    raise Refused(event.message)
                ended = event.reason == "eos"
                continue
            tokens.append(event.token)
            if event.index == CHANGE_AT and case.changed_from is not None:
                control.retarget(case.target)
        return _written(case, tokens, ended, tokenizer)

    for done, one in enumerate(side_by_side(written, asked), 1):
        if done % 50 == 0:
            report(f"{done} of {len(asked)} answers")
        yield one


def _written(case: Case, tokens: list[int], ended: bool, tokenizer: PreTrainedTokenizerBase) -> Written:
    text = tokenizer.decode(tokens)
    answer = Answer(
        kind=case.kind,
        prompt=case.prompt,
        target=case.target,
        unit=case.unit,
        count=length(case.unit, text, len(tokens)),
        tokens=len(tokens),
        ended=ended,
        natural=final(text),
        changed_from=case.changed_from,
    )
    return Written(answer, case.text, tokens)


def summary(found: Sequence[Answer]) -> dict[str, float]:
    """Measures of 000 §5.1, 001 §4, 003 §4 and the field over answers."""
    return {
        "answers": len(found),
        **scores.summary((answer.count, answer.target) for answer in found),
        "ended": statistics.mean(answer.ended for answer in found),
        "natural": statistics.mean(answer.natural for answer in found),
    }


def ranges_of(found: Sequence[Answer]) -> dict[str, list[Answer]]:
    """The answers by the range they belong to; in and beyond training also by kind of prompt."""
    plain = [a for a in found if a.plain]
    grouped: dict[str, list[Answer]] = {
        "10-200": [a for a in plain if 10 <= a.target <= 200],
        "5-300": [a for a in plain if a.target <= 300],
        "300-1000": [a for a in plain if a.target >= 300],
        **{unit: [a for a in found if a.unit == unit] for unit in COUNTS},
        "changed": [a for a in found if a.changed_from is not None],
        SUMMARIES: [a for a in found if a.kind == SUMMARIES],
    }
    for kind, name in product(dict.fromkeys(a.kind for a in plain), ("10-200", "300-1000")):
        grouped[f"{name} {kind}"] = [a for a in grouped[name] if a.kind == kind]
    return {name: group for name, group in grouped.items() if group}


def quality(lab: Lab, model: str, written: Sequence[Written]) -> dict[str, float] | None:
    """All answers beside the base model's own to the same prompts, cut to the same lengths; None without text.

    Perplexities are under the base model; ROUGE and BERTScore take its own answers as references. Of each pair the
    longer one is cut to the shorter. stop_p: mean probability under it of the last token, a full stop mostly, of the
    answers that end as a sentence does; stop_likeliest: share where it is the likeliest.
    """
    loaded = lab.models.load(model)
    asked = {(w.answer.kind, w.answer.prompt): w.text for w in written}
    own = _plain(lab, model, asked, max(len(w.tokens) for w in written))
    rows = []
    for w in written:
        ids, tokens = own[w.answer.kind, w.answer.prompt]
        if shared := min(len(w.tokens), len(tokens)):
            rows.append((ids, w.tokens[:shared], tokens[:shared]))
    if not rows:
        return None
    mine = _perplexity(loaded, [(ids, tokens) for ids, tokens, _ in rows])
    plain = _perplexity(loaded, [(ids, tokens) for ids, _, tokens in rows])
    texts = [loaded.tokenizer.decode(tokens) for _, tokens, _ in rows]
    references = [loaded.tokenizer.decode(tokens) for _, _, tokens in rows]
    return {
        "answers": len(rows),
        "perplexity": mine,
        "perplexity_plain": plain,
        "perplexity_ratio": mine / plain,
        **rouge(texts, references),
        "bert_score": bert_score(texts, references).f1,
        "distinct2": statistics.mean(distinct(tokens, 2) for _, tokens, _ in rows),
        "repetition": statistics.mean(repetition(tokens) for _, tokens, _ in rows),
        "repetition_plain": statistics.mean(repetition(tokens) for _, _, tokens in rows),
        **_stops(loaded, [(own[w.answer.kind, w.answer.prompt][0], w.tokens) for w in written if w.answer.natural]),
    }


@torch.inference_mode()
def _stops(loaded: Loaded, ended: Sequence[tuple[Tensor, list[int]]]) -> dict[str, float]:
    found = []
    for ids, tokens in ended:
        read = torch.cat([ids, torch.tensor(tokens[:-1], dtype=ids.dtype)])[None].to(loaded.model.device)
        likely = torch.softmax(loaded.model(read, logits_to_keep=1).logits[0, -1].float(), -1)
        found.append((float(likely[tokens[-1]]), int(likely.argmax()) == tokens[-1]))
    if not found:
        return {}
    return {
        "stop_p": statistics.mean(p for p, _ in found),
        "stop_likeliest": statistics.mean(best for _, best in found),
    }


def summaries(loaded: Loaded, written: Sequence[Written], references: Sequence[str]) -> list[dict[str, Any]]:
    """Summaries of abstracts against their authors' own, by target in tens of tokens (000 fig. 3, table 2)."""
    rows = []
    for low in range(0, max((w.answer.target for w in written), default=0) + 1, BIN):
        mine = [w for w in written if low <= w.answer.target < low + BIN and w.tokens]
        if mine:
            texts = [loaded.tokenizer.decode(w.tokens) for w in mine]
            wanted = [references[w.answer.prompt] for w in mine]
            pairs = [(w.answer.count, w.answer.target) for w in mine]
            rows.append(
                {"target": f"{low} to {low + BIN - 1}", "answers": len(mine), "mae": scores.mae(pairs)}
                | {"bert_score": bert_score(texts, wanted).f1}
                | rouge(texts, wanted)
            )
    return rows


def _plain(
    lab: Lab, model: str, asked: dict[tuple[str, int], str], most: int
) -> dict[tuple[str, int], tuple[Tensor, list[int]]]:
    """Prompt ids and greedy answer of the base model, of at most so many tokens, for each prompt."""
    tokenizer, found = lab.models.load(model).tokenizer, {}
    for name, text in asked.items():
        settings = RunSettings(prompt=text, model=model, max_new_tokens=most, watch=Watch(enabled=False))
        steps = [event.token for event in lab.stream(settings) if isinstance(event, Step)]
        found[name] = token_ids(settings, tokenizer), steps
    return found


def _perplexity(loaded: Loaded, pairs: Sequence[tuple[Tensor, list[int]]]) -> float:
    found = perplexity(loaded.model, [ids.tolist() for ids, _ in pairs], [tokens for _, tokens in pairs])
    return math.exp(sum(nats for nats, _ in found) / sum(tokens for _, tokens in found))


def _settings(method: Method, case: Case, **more: Any) -> RunSettings:
    first = case.changed_from or case.target
    return RunSettings(
        prompt=case.text, method=method, target=first, limit=first, unit=case.unit, max_new_tokens=MOST, **more
    )


def _ranges(method: LengthMethod) -> str:
    """What neither trains nor asks the model is measured in tokens alone."""
    return "" if method.adapter or method.asks else " --ranges range beyond"


class LengthControl(Experiment):
    name = "length_control"
    title = "How near length methods end to their targets"
    question = "How well does a method keep to a length?"
    paper = "000, 001, 003"
    files = ("length/*.json",)
    resumes = True
    needs = ("rouge_score", ENCODER)
    withdrawn = UNEQUAL
    recipe = (
        *(f"{COMMAND} {each.name}{_ranges(each)}" for each in methods if each.causal and not each.compression),
        *(f"{COMMAND} {method} --landing 8 --ranges range" for method in ("ldpe", "orpe")),
        "backend.training.card",
    )

    class Options(ModelFlags):
        method: Method
        data: Path | None = Field(None, description="folder with scitldr_test.jsonl and hellobench_ht.jsonl")
        adapter: Path | None = Field(None, description="an adapter's folder, in the place of the lab's own")
        prompts: int = Field(12, ge=1, description="prompts of each kind")
        ranges: tuple[Range, ...] = Field(get_args(Range), description="targets to ask for; others are kept")
        landing: int = Field(0, ge=0, le=MAX_LANDING, description="endings to try near the target")

    def file(self, options: Options) -> str:
        return f"length/{options.method}{'_landing' * bool(options.landing)}.json"

    def measure(self, options: Options, before: Result | None, say: Say) -> Iterator[dict[str, Any]]:
        """All of it at once: answers, summary by range, quality. Other ranges of `before` are kept where it was made of
        the same adapter and prompts."""
        method, model, ranges = options.method, options.model, options.ranges
        if options.landing and methods[method].bound != "target":
            raise Refused(f"{method} has no target to land on: leave out --landing")
        adapter = _adapter(method, model, options.adapter)
        models = options.lab().models
        untouched = models.load(model)
        asked = cases(prompts(options.prompts, options.data), ranges)
        if SUMMARIES in ranges and options.data:
            asked += summary_cases(options.data, untouched.tokenizer)
        asked = [case for case in asked if _heeded(method, case)]
        if not asked:
            raise Refused(f"{method} heeds no target of that kind: give other --ranges")
        made = {
            "method": method, "model": model, "landing": options.landing, "adapter": adapter and adapter.sha256
        }  # fmt: skip
        written = list(answers(Lab(models, adapter), model, method, asked, options.landing, say))
        if before is None or any(before.get(name) != value for name, value in made.items()):
            before = {}
        new = [w.answer for w in written]
        kept = _others(before.get("answers", ()), new)
        short = [w for w in written if w.answer.kind == SUMMARIES]
        authors = [row["tldr"] for row in _abstracts(options.data, SUMMARIES_ASKED)] if short and options.data else []
        found = {name: summary(group) for name, group in ranges_of([*kept, *new]).items()}
        good = before.get("quality") if kept else quality(Lab(models), model, written)
        for name, row in found.items():
            say(f"{method:14} {name:20} " + "  ".join(f"{key} {value:.3g}" for key, value in row.items()))
        say(f"{method:14} quality {json.dumps(good)}")
        yield made | {
            "summaries": summaries(untouched, short, authors) if short else before.get("summaries", []),
            "answers": [_record(answer) for answer in [*kept, *new]],
            "summary": found,
            "quality": good,
        }

    def card(self, results: Results) -> Card:
        rows = [
            [PurePath(name).stem.replace("_", " "), group, figure(row["answers"]), decimal(row["mae"])]
            for name, result in results.items()
            for group, row in result["summary"].items()
        ]
        return Card(listed(["method", "targets", "answers", "mean error"], rows))


def _adapter(method: Method, model: str, path: Path | None) -> Adapter | None:
    """The adapter in `path`, or the lab's own, None for a method without. ValueError where there is none that fits."""
    adapter = Adapter.load(path) if path else adapters.required(method, model)
    if adapter and adapter.method != method:
        raise Refused(f"the adapter in {adapter.path} is for {adapter.method}: give --method {adapter.method}")
    return adapter


def _others(before: Sequence[dict[str, Any]], new: Sequence[Answer]) -> list[Answer]:
    """Earlier answers of the ranges that were not measured now; none where they are to other prompts."""
    measured = set(map(range_of, new))
    kept = [answer for answer in (Answer(**row) for row in before) if range_of(answer) not in measured]
    asked, earlier = ({(a.kind, a.prompt) for a in group if a.kind != SUMMARIES} for group in (new, kept))
    return kept if asked == earlier or not asked or not earlier else []


def _record(answer: Answer) -> dict[str, Any]:
    """An answer without what is as usual."""
    return {field.name: value for field in fields(answer) if (value := getattr(answer, field.name)) != field.default}


def _heeded(method: Method, case: Case) -> bool:
    """Whether a method can be asked so: what stands in a prompt cannot be changed."""
    return case.changed_from is None or isinstance(methods[method], SignalMethod)
