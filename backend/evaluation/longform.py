"""How position-id compression changes what a model writes at length: lengths, endings, quality (004 §4, table 7).

`python -m backend evaluate longform` writes assets/results/longform.json; with --trained, what training on long texts
adds (004 table 2, table 8 and figure 3) to pic_sft.json. Answers are written one at a time, as a user's run is. A run
that was stopped goes on, and one with other settings is refused: give another --out. With --recount FILE … the
summaries of such files are made anew of their answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from backend.engine import Lab
from backend.evaluation.lengthening import Answer, summary
from backend.evaluation.quality import perplexity, similarity
from backend.inference.responses import Response
from backend.measures.overlap import distinct, repetition
from backend.models import adapters
from backend.record import jsonlines
from backend.record.provenance import provenance
from backend.record.results import counted
from backend.refused import Refused
from backend.settings import RunSettings, Watch
from backend.steps import Finish, Step
from backend.text.prompt import token_ids
from backend.text.units import words

SEEDS, PATH = "a prompt's place", "Lab.stream"
PROMPTS = (
    "Explain how a refrigerator keeps food cold.",
    "Describe the life cycle of a star for a curious teenager.",
    "Write a guide to growing tomatoes on a balcony.",
    "What should I see in three days in Rome?",
    "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
    "How did the invention of printing change the lives of ordinary people?",
)
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


def earlier(found: dict[str, Any]) -> dict[str, Any]:
    """A result to go on from, checked. ValueError for one that cannot be gone on from."""
    try:
        _ = found["settings"], found["prompts"], [Answer(**row) for rows in found["answers"].values() for row in rows]
        _ = {name: found["measured"][name] for name in found["answers"]}
    except (KeyError, TypeError, AttributeError) as error:
        raise Refused("it is no result of this command") from error
    return found


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


def policies() -> dict[str, dict[str, Any]]:
    """The settings compared: plain; naive, NTK and dynamic PIC over ratios, the last in both readings of 004 eq. 9 and
    with 004's own prefill; and other sizes of dynamic PIC's uncompressed parts."""
    dynamic = {"pic": "dynamic", "ratio": 4.0}
    return {
        "plain": {},
        **{f"naive s={s:g}": {"pic": "naive", "ratio": s} for s in (0.25, 0.5, 2.0, 4.0, 16.0, 64.0)},
        **{f"NTK s={s:g}": {"pic": "ntk", "ratio": s} for s in (0.25, 0.5, 2.0, 4.0, 16.0, 64.0)},
        **{
            f"dynamic {reading} s={s:g}": {"pic": "dynamic", "ratio": s, "reading": reading}
            for reading, ratios in (("contiguous", (0.25, 2.0, 4.0, 16.0, 64.0)), ("literal", (0.25, 4.0, 16.0)))
            for s in ratios
        },
        "dynamic contiguous s=4, paper's prefill": dynamic | {"prefill": "paper"},
        "dynamic contiguous s=4, no initial part": dynamic | {"initial": 0},
        "dynamic contiguous s=4, initial 32": dynamic | {"initial": 32},
        "dynamic contiguous s=4, initial 128": dynamic | {"initial": 128},
        "dynamic contiguous s=4, no recent part": dynamic | {"recent": 1},
        "dynamic contiguous s=4, recent 32": dynamic | {"recent": 32},
        "dynamic contiguous s=4, recent 512": dynamic | {"recent": 512},
    }


def trained() -> dict[str, dict[str, Any]]:
    """004's table 2 and table 8: no training, plain training and PIC-SFT, each read plainly and with compression."""
    reading = {
        "plain": {},
        "NTK s=16": {"pic": "ntk", "ratio": 16.0},
        "dynamic s=4": {"pic": "dynamic", "ratio": 4.0, "initial": 10, "recent": 600},
    }
    asked_of = {
        "w/o SFT": ("none", ("plain",)),
        "SFT": ("sft", ("plain", "NTK s=16", "dynamic s=4")),
        "NTK PIC-SFT": ("sft_ntk", ("plain", "NTK s=16")),
        "dynamic PIC-SFT": ("sft_dynamic", ("plain", "dynamic s=4")),
    }
    return {
        f"{name}, {how}": {"method": method} | reading[how] for name, (method, ways) in asked_of.items() for how in ways
    }


def evaluate(
    lab: Lab,
    prompts: Sequence[Asked],
    compared: Mapping[str, Mapping[str, Any]],
    common: Mapping[str, Any],
    before: Mapping[str, Any] | None = None,
    score: Judge | None = None,
    report: Callable[[str], None] = print,
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
        raise Refused("the result to go on from has other settings or prompts: give another --out, or delete it")
    result = provenance(seed=0, before=before) | head
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
            yield result | {"measured": dict(measured), "answers": dict(answers), "summary": dict(found)}
        found = _summaries(answers, len(prompts), report)
        yield result | {"measured": dict(measured), "answers": dict(answers), "summary": dict(found)}


def recount(before: Mapping[str, Any], report: Callable[[str], None] = print) -> dict[str, Any]:
    """A result with its summaries made anew of the answers that it holds; none is written."""
    kept = {key: before[key] for key in ("settings", "prompts", "measured", "answers")}
    found = _summaries(kept["answers"], len(kept["prompts"]), report)
    return provenance(seed=0, before=before) | kept | {"summary": found}


def _measured(settings: Mapping[str, Any], policy: Mapping[str, Any], score: Judge | None) -> dict[str, Any]:
    """What tells the answers of one name from those of another: policy, seeds, how they
    were written, adapter's checksum, judge."""
    adapter = adapters.find(settings.get("method", "none"), settings.get("model", "embedded"))
    judged = {"judge": f"{score.__module__}:{score.__qualname__}"} if score else {}
    return {**policy, "seeds": SEEDS, "path": PATH, **({"adapter": adapter.sha256} if adapter else {}), **judged}


def _summaries(
    answers: Mapping[str, list[dict[str, Any]]], prompts: int, report: Callable[[str], None]
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
