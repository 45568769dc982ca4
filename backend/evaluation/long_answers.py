"""Long answers under several policies: lengths, endings, quality (004 §4, table 7), and tables of them.

Answers are written one at a time, as a user's run is. A run that was stopped goes on, and one with other settings is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from backend.engine import Lab
from backend.evaluation.experiment import Experiment, ModelFlags, Result, Say, chosen, not_gone_on
from backend.evaluation.lengthening import Answer, summary
from backend.evaluation.markdown import decimal, estimate, figure, percent, points, table, verdict
from backend.evaluation.quality import ENCODER, perplexity, similarity
from backend.inference.responses import Response
from backend.measures.bootstrap import Bounded
from backend.measures.overlap import distinct, repetition
from backend.models import adapters
from backend.record import jsonlines
from backend.record.results import counted
from backend.refused import Refused
from backend.settings import RunSettings, Watch
from backend.steps import Finish, Step
from backend.text.prompt import token_ids
from backend.text.units import words

SEEDS, PATH = "a prompt's place", "Lab.stream"
# Of recipes.
HELLOBENCH, LONGBENCH = "--data {data}/hellobench_ht.jsonl", "--data {data}/longbench_write_en.jsonl"
SAMPLED = "--temperature 1 --top-p 0.95"
PROMPTS = (
    "Explain how a refrigerator keeps food cold.",
    "Describe the life cycle of a star for a curious teenager.",
    "Write a guide to growing tomatoes on a balcony.",
    "What should I see in three days in Rome?",
    "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
    "How did the invention of printing change the lives of ordinary people?",
)
PLAIN, DYNAMIC = "plain", "dynamic contiguous s=4"
_DYNAMIC: dict[str, Any] = {"pic": "dynamic", "ratio": 4.0}
# Naive, NTK and dynamic PIC over ratios, the last in both readings of 004 eq. 9 and with 004's own prefill, and other
# sizes of dynamic PIC's uncompressed parts.
POLICIES: dict[str, dict[str, Any]] = {
    PLAIN: {},
    **{f"naive s={s:g}": {"pic": "naive", "ratio": s} for s in (0.25, 0.5, 2.0, 4.0, 16.0, 64.0)},
    **{f"NTK s={s:g}": {"pic": "ntk", "ratio": s} for s in (0.25, 0.5, 2.0, 4.0, 16.0, 64.0)},
    **{
        f"dynamic {reading} s={s:g}": {"pic": "dynamic", "ratio": s, "reading": reading}
        for reading, ratios in (("contiguous", (0.25, 2.0, 4.0, 16.0, 64.0)), ("literal", (0.25, 4.0, 16.0)))
        for s in ratios
    },
    "dynamic contiguous s=4, paper's prefill": _DYNAMIC | {"prefill": "paper"},
    "dynamic contiguous s=4, no initial part": _DYNAMIC | {"initial": 0},
    "dynamic contiguous s=4, initial 32": _DYNAMIC | {"initial": 32},
    "dynamic contiguous s=4, initial 128": _DYNAMIC | {"initial": 128},
    "dynamic contiguous s=4, no recent part": _DYNAMIC | {"recent": 1},
    "dynamic contiguous s=4, recent 32": _DYNAMIC | {"recent": 32},
    "dynamic contiguous s=4, recent 512": _DYNAMIC | {"recent": 512},
}
Judge = Callable[[str, str], float]


@dataclass(frozen=True)
class Asked:
    """A prompt, and the number of words it asks for, if any (LongBench-Write)."""

    prompt: str
    words: int | None = None


def asked(file: Path | None, count: int, least: int = 0) -> list[Asked]:
    """`count` prompts from all over a file of JSON lines with `prompt` (and `length`, in words), or of PROMPTS.

    least: words that a prompt must ask for. ValueError where none does.
    """
    if file is None:
        return [Asked(prompt) for prompt in PROMPTS[:count]]
    rows = [row for row in jsonlines.read(file, "prompt") if (row.get("length") or 0) >= least]
    if not rows:
        raise Refused(f"no prompt in {file} asks for {least:,} words or more: give another --data or --wanted")
    chosen = [rows[i * len(rows) // count] for i in range(count)] if count < len(rows) else rows
    return [Asked(row["prompt"], row.get("length")) for row in chosen]


def judge(name: str) -> Judge:
    """The function `module:function` of (prompt, response) → score. ValueError where there is none."""
    module, _, function = name.partition(":")
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise Refused(f"there is no judge {name}: give MODULE:FUNCTION of a module that can be imported") from error


def response(lab: Lab, settings: RunSettings) -> Response:
    """What a user's run of these settings writes. ValueError for one that fails."""
    *steps, finish = lab.stream(settings)
    assert isinstance(finish, Finish)
    if finish.reason == "error":
        raise Refused(finish.message)
    return Response([step.token for step in steps if isinstance(step, Step)], finish.reason == "eos")


def answer(lab: Lab, asked: Asked, settings: RunSettings, response: Response, score: Judge | None = None) -> Answer:
    """Measure a response."""
    loaded = lab.models.load(settings.model, settings.precision)
    ids, tokens = token_ids(settings, loaded.tokenizer).tolist(), response.tokens
    text = loaded.tokenizer.decode(tokens, skip_special_tokens=True)
    return Answer(
        tokens=len(tokens),
        words=words(text),
        repetition=repetition(tokens),
        ended=response.ended,
        distinct2=distinct(tokens, 2),
        similarity=similarity([text], [settings.prompt]),
        nats=perplexity(loaded.model, [ids], [tokens])[0].nats if tokens else 0.0,
        wanted=asked.words,
        judged=score(settings.prompt, text) if score else None,
        text=text,
    )


def evaluate(
    lab: Lab,
    prompts: Sequence[Asked],
    compared: Mapping[str, Mapping[str, Any]],
    common: Mapping[str, Any],
    before: Mapping[str, Any] | None = None,
    score: Judge | None = None,
    report: Say = print,
) -> Iterator[dict[str, Any]]:
    """The result after each answer, the last one whole. compared: settings by name. common: settings of all runs.

    before: a result to go on from, at the first prompt that a policy has no answer to. What was measured under another
    policy of that name, another adapter or by another judge is measured anew. ValueError where it has other settings or
    prompts.

    A prompt's place is its seed; under one for all, runs would draw and end alike. A policy's summary is made once it
    has answered all prompts.
    """
    head = {"settings": dict(common), "prompts": [each.prompt for each in prompts]}
    if before is not None and any(before[key] != value for key, value in head.items()):
        raise not_gone_on("it has other settings or prompts")
    answers: dict[str, list[dict[str, Any]]] = dict(before["answers"]) if before else {}
    measured = dict(before["measured"]) if before else {}
    found: dict[str, Any] = dict(before.get("summary", {})) if before else {}
    for name, policy in compared.items():
        now = _measured({**common, **policy}, policy, score)
        if measured.get(name) != now:
            measured[name], answers[name] = now, []
            found.pop(name, None)
        given = {**common, **policy, "watch": Watch(enabled=False)}
        for place, each in list(enumerate(prompts))[len(answers[name]) :]:
            settings = RunSettings(prompt=each.prompt, seed=place, **given)
            row = answer(lab, each, settings, response(lab, settings), score)
            answers[name] = [*answers[name], asdict(row)]
            report(f"{name}: {len(answers[name])} of {len(prompts)} answers")
            yield head | {"measured": dict(measured), "answers": dict(answers), "summary": dict(found)}
        found = _summaries(answers, len(prompts), report)
        yield head | {"measured": dict(measured), "answers": dict(answers), "summary": dict(found)}


def recount(before: Result, report: Say) -> dict[str, Any]:
    """A result with its summaries made anew of the answers that it holds; none is written."""
    kept = {key: before[key] for key in ("settings", "prompts", "measured", "answers")}
    found = _summaries(kept["answers"], len(kept["prompts"]), report)
    return kept | {"summary": found}


def _measured(settings: Mapping[str, Any], policy: Mapping[str, Any], score: Judge | None) -> dict[str, Any]:
    """What tells the answers of one name from those of another: policy, seeds, how they
    were written, adapter's checksum, judge."""
    adapter = adapters.find(settings.get("method", "none"), settings.get("model", "embedded"))
    judged = {"judge": f"{score.__module__}:{score.__qualname__}"} if score else {}
    return {**policy, "seeds": SEEDS, "path": PATH, **({"adapter": adapter.sha256} if adapter else {}), **judged}


def _summaries(
    answers: Mapping[str, list[dict[str, Any]]], prompts: int, report: Say
) -> dict[str, dict[str, float | None]]:
    """Of each policy that answered all prompts; the first one's answers are what the others are compared with."""
    rows = {name: [Answer(**row) for row in found] for name, found in answers.items()}
    reference = next(iter(rows.values()), [])
    found = {}
    for name, mine in rows.items():
        if len(mine) == prompts:
            found[name] = summary(mine, reference)
            figures = (f"{key} {value:.3g}" for key, value in found[name].items() if value is not None)
            report(f"{name}: {', '.join(figures)}")
        report(counted(name, "answers", prompts, len(mine), "not written yet: run the command again"))
    return found


class LongAnswers(Experiment):
    """What experiments share that have long answers written. policies: settings by name; the first is what the others
    are compared with."""

    policies: ClassVar[Mapping[str, Mapping[str, Any]]]
    resumes = True
    needs = (ENCODER,)

    class Options(ModelFlags):
        data: Path | None = Field(
            None, description="JSON lines with prompt, and length in words where one is asked for"
        )
        prompts: int = Field(12, ge=1, description="prompts to ask, without data at most 6")
        wanted: int = Field(0, description="words that a prompt must ask for at least")
        policy: tuple[str, ...] = Field((), description="policies, or all")
        cap: int = Field(1024, ge=1, description="hard cap on tokens")
        recent: int = Field(200, description="dynamic PIC: recent tokens uncompressed")
        repetition_penalty: float = Field(1.0, description="1 is off")
        temperature: float = Field(0.0, description="0 is greedy")
        top_p: float = Field(1.0, description="1 is off")
        judge: str | None = Field(None, description="MODULE:FUNCTION that scores (prompt, response) → number")
        recount: bool = Field(False, description="make the summaries of a result anew; write no answers")

    def measure(self, options: Options, before: Result | None, say: Say) -> Iterator[dict[str, Any]]:
        _check(before)
        if options.recount:
            if before is None:
                raise Refused("there is no result to make the summaries of: give its file as --out")
            yield recount(before, say)
            return
        compared = {name: self.policies[name] for name in chosen(options.policy, self.policies)}
        common = {"model": options.model, "max_new_tokens": options.cap} | options.model_dump(
            include={"recent", "repetition_penalty", "temperature", "top_p"}
        )
        score = judge(options.judge) if options.judge else None
        prompts = asked(options.data, options.prompts, options.wanted)
        yield from evaluate(options.lab(), prompts, compared, common, before, score, say)


def _check(before: Result | None) -> None:
    try:
        if before is not None:
            _ = before["settings"], before["prompts"], [before["measured"][name] for name in before["answers"]]
            _ = [Answer(**row) for rows in before["answers"].values() for row in rows]
    except (KeyError, TypeError, AttributeError) as error:
        raise not_gone_on("it is no result of this command") from error


def tables(result: Mapping[str, Any]) -> str:
    """Measures of each row, and each beside the first."""
    summary, settings = result["summary"], result["settings"]
    first = next(iter(summary))
    head = (
        f"{len(result['prompts'])} prompts, cap {settings['max_new_tokens']:,} tokens, "
        f"temperature {settings['temperature']:g}, top-p {settings['top_p']:g}, recent {settings['recent']}:"
    )
    columns = [
        "policy", "answers", "words, mean", "median", "half exceed (95 %)", "ended by itself (95 %)", "corrupted",
        "corrupted, 004", "4-grams repeated", "base perplexity",
    ]  # fmt: skip
    rows = [
        [
            name, figure(row["answers"]), f"{row['words_mean']:,.0f}", f"{row['words_median']:,.0f}", _half(row),
            _share(row, "ended"), percent(row["corrupted"]), percent(row["corrupted_004"]),
            percent(row["repetition_mean"]), figure(row["perplexity"]),
        ]
        for name, row in summary.items()
    ]  # fmt: skip
    return "\n\n".join([head, table(columns, rows), _beside(summary, first)])


def _beside(summary: Mapping[str, Any], first: str) -> str:
    """Every other row over the first one's answers to the same prompts."""
    columns = [
        f"over {first}", "words", "distinguished", "mean up to a horizon", "ratio up to it", "ended, points",
        "words, 004", "perplexity", "similarity to the prompt",
    ]  # fmt: skip
    rows = [[name, *_ratios(row)] for name, row in summary.items() if name != first]
    return table(columns, rows)


def _ratios(row: Mapping[str, Any]) -> list[str]:
    count = row["compared"]
    longer, theirs = Bounded.of(row, "lengthening"), Bounded.of(row, "lengthening_004")
    horizon = f"{estimate(Bounded.of(row, 'restricted_mean'), count, 'prompts', figure)} of {row['horizon']:,.0f}"
    return [
        estimate(longer, count, "prompts"),
        verdict(longer, "longer", "shorter"),
        horizon,
        estimate(Bounded.of(row, "restricted_ratio"), count, "prompts"),
        estimate(Bounded.of(row, "ended_more"), count, "prompts", points),
        estimate(theirs, row["compared_004"], "answers at least"),
        estimate(Bounded.of(row, "perplexity_ratio"), count, "prompts"),
        estimate(Bounded.of(row, "similarity_ratio"), count, "prompts"),
    ]


def _half(row: Mapping[str, Any]) -> str:
    value, low, high = Bounded.of(row, "words_half")
    middle = "beyond the cap" if value is None else f"{value:,.0f}"
    low_end, high_end = (decimal(end).removesuffix(".00") if end is not None else "cap" for end in (low, high))
    return f"{middle} ({low_end} to {high_end})"


def _share(row: Mapping[str, Any], key: str) -> str:
    value, low, high = Bounded.of(row, key)
    return f"{percent(value)} ({percent(low)} to {percent(high)})"
