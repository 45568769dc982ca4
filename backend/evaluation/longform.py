"""How position-id compression changes what a model writes at length: lengths, endings, quality (004 §4, table 7).

`python -m backend evaluate longform` writes assets/results/longform.json; with --trained, what training on long texts
adds (004 table 2, table 8 and figure 3) to pic_sft.json. A run that was stopped goes on,
and one with other settings is refused: give another --out.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend import adapters, jsonlines
from backend.batch import SLOTS, Request, Response, Sampling, write
from backend.capabilities import LLAMA_SHAPED
from backend.engine import Lab
from backend.evaluation import scores
from backend.evaluation.machine import provenance
from backend.evaluation.quality import distinct, perplexity, similarity
from backend.positions import Policy
from backend.prompt import end_ids, token_ids
from backend.settings import RunSettings, Watch
from backend.signals.units import words
from backend.steps import Finish, Step

NGRAM = 4
SEVERE = 0.5
# Answers from so many on, of at most so many tokens, are written faster together.
ENOUGH, TOGETHER = 16, 2048
# Of the bootstrap of ratios, and how many pairs it needs to tell anything.
DRAWS, PAIRS = 2000, 6
SEEDS = "a prompt's place"
QUALITY = ("distinct2", "similarity", "perplexity")
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


@dataclass(frozen=True)
class Answer:
    """One response.

    repetition: share of its token 4-grams that occurred before in it. ended: by the end mark. distinct2: different
    pairs of tokens over all. similarity: cosine of MiniLM's embeddings of it and its prompt, −1 to 1. nats: negative
    log-likelihood of its tokens under the model without a policy. wanted: words asked for. judged: what a judge said.
    """

    tokens: int
    words: int
    repetition: float
    ended: bool
    distinct2: float = 1.0
    similarity: float = 0.0
    nats: float = 0.0
    wanted: int | None = None
    judged: float | None = None

    @property
    def corrupted(self) -> bool:
        """No end before the cap, or more than half of its 4-grams repeated (004 §4.1 leaves the rule open)."""
        return not self.ended or self.repetition > SEVERE


Pair = tuple[Answer, Answer]
# Places in a list of pairs (draws × pairs), and a ratio by draw.
Draws = NDArray[np.integer]
Ratios = dict[str, NDArray[np.float64]]


def repetition(tokens: list[int]) -> float:
    """Share of the 4-grams of a response that are not its first of their kind; 0 below 4 tokens."""
    return 1 - distinct(tokens, NGRAM)


def asked(file: Path | None, count: int, least: int = 0) -> list[Asked]:
    """`count` prompts from all over a file of JSON lines with `prompt` (and `length`, in words), or of PROMPTS.

    least: words that a prompt must ask for. ValueError where none does.
    """
    if file is None:
        return [Asked(prompt) for prompt in PROMPTS[:count]]
    rows = [row for row in jsonlines.read(file, "prompt") if (row.get("length") or 0) >= least]
    if not rows:
        raise ValueError(f"no prompt in {file} asks for {least:,} words or more: give another --data or --wanted")
    chosen = [rows[i * len(rows) // count] for i in range(count)] if count < len(rows) else rows
    return [Asked(row["prompt"], row.get("length")) for row in chosen]


def judge(name: str) -> Judge:
    """The function `module:function` of (prompt, response) → score. ValueError where there is none."""
    module, _, function = name.partition(":")
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"there is no judge {name}: give MODULE:FUNCTION of a module that can be imported") from error


def earlier(found: dict[str, Any]) -> dict[str, Any]:
    """A result to go on from, checked. ValueError for one that cannot be gone on from."""
    try:
        _ = found["settings"], found["prompts"], [Answer(**row) for rows in found["answers"].values() for row in rows]
        _ = {name: found["measured"][name] for name in found["answers"]}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("it is no result of this command") from error
    return found


def responses(lab: Lab, asked: Sequence[RunSettings]) -> Iterator[tuple[int, Response]]:
    """(place, response) of settings that are alike but for prompt and seed: all at once, where batches can do it, there
    are enough of them, and none may become so long that it is written faster by itself."""
    first = asked[0]
    adapter = adapters.find(first.method, first.model)
    loaded = lab.models.load(first.model, first.precision, adapter.path if adapter else None)
    requests = [Request(token_ids(one, loaded.tokenizer), one.max_new_tokens) for one in asked]
    policy = Policy.of(first)
    short = all(len(request.ids) <= policy.initial + policy.recent for request in requests)
    alike = policy.window is None and first.repetition_penalty == 1 and (short or policy.kind != "dynamic")
    apart = len(asked) < ENOUGH or first.max_new_tokens > TOGETHER
    if apart or not alike or loaded.capabilities.family not in LLAMA_SHAPED:
        yield from ((place, _alone(lab, one)) for place, one in enumerate(asked))
        return
    sampling = Sampling(first.temperature, first.top_k, first.top_p, first.seed)
    room = first.max_new_tokens + max(len(request.ids) for request in requests)
    slots = min(len(requests), SLOTS)
    yield from write(loaded.model, requests, end_ids(loaded), room, None, sampling, slots, policy)


def _alone(lab: Lab, settings: RunSettings) -> Response:
    *steps, finish = lab.stream(settings)
    assert isinstance(finish, Finish)
    if finish.reason == "error":
        raise ValueError(finish.message)
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


def summary(answers: Iterable[Answer], reference: Iterable[Answer] = ()) -> dict[str, float | None]:
    """Means over responses; the medians of lengths as well, because a response that never ends stretches the mean, and
    the mean words of the responses that are not corrupted (None for none).

    reference: responses to the same prompts, see `beside`. s_l: LongBench-Write's length score, where the prompts ask
    for lengths; judged: where a judge was asked.
    """
    found = list(answers)
    pairs = [(a.words, a.wanted) for a in found if a.wanted]
    judged = [a.judged for a in found if a.judged is not None]
    whole = [a.words for a in found if not a.corrupted]
    return {
        "responses": len(found),
        "tokens_mean": statistics.mean(a.tokens for a in found),
        "tokens_median": statistics.median(a.tokens for a in found),
        "words_mean": statistics.mean(a.words for a in found),
        "words_whole": statistics.mean(whole) if whole else None,
        **beside(found, reference),
        "repetition_mean": statistics.mean(a.repetition for a in found),
        "ended": statistics.mean(a.ended for a in found),
        "corrupted": statistics.mean(a.corrupted for a in found),
        **_quality(found),
        **({"s_l": scores.s_l(pairs)} if pairs else {}),
        **({"judged": statistics.mean(judged)} if judged else {}),
    }


def beside(answers: Iterable[Answer], reference: Iterable[Answer]) -> dict[str, float | None]:
    """Answers over a reference's to the same prompts, as 004 compares them (appendix A).

    Of those alone that neither answered corruptly, shared in number: lengthening, words to words; shared_…, quality to
    quality. lengthening_apart: mean words of the uncorrupted answers to those of the reference's own, 004's measure
    where more than a fifth are corrupted. Each with its bounds …_low and …_high (`_drawn`); None where unknown.
    """
    pairs = list(zip(answers, reference, strict=False))
    shared = [(a, b) for a, b in pairs if not (a.corrupted or b.corrupted)]
    return {"shared": len(shared), **_drawn(shared, _ratios), **_drawn(pairs, _apart)}


def _drawn(pairs: Sequence[Pair], ratios: Callable[[Sequence[Pair], Draws], Ratios]) -> dict[str, float | None]:
    """Ratios over pairs, and between which values, …_low and …_high, each lies in 95 % of draws of as many pairs from
    among them (the percentile bootstrap). None where there is nothing to divide by, bounds for fewer than PAIRS too."""
    count = len(pairs)
    found = ratios(pairs, np.arange(count)[None])
    among = ratios(pairs, np.random.default_rng(0).integers(max(1, count), size=(DRAWS, count)))
    known: dict[str, float | None] = {}
    for key, (ratio,) in found.items():
        told = count >= PAIRS and bool(np.isfinite(among[key]).all())
        low, high = np.percentile(among[key], (2.5, 97.5)).tolist() if told else (None, None)
        known |= {key: float(ratio) if np.isfinite(ratio) else None, f"{key}_low": low, f"{key}_high": high}
    return known


def _ratios(pairs: Sequence[Pair], drawn: Draws) -> Ratios:
    """Lengthening and qualities by draw; not finite where there is nothing to divide by."""
    measures = [[(a.words, a.distinct2, a.similarity, a.nats, a.tokens) for a in pair] for pair in pairs]
    sums = np.array(measures, dtype=float).reshape(-1, 2, 5)[drawn].sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        words, distinct2, similarity = (sums[:, 0, :3] / sums[:, 1, :3]).T
        ours, theirs = (sums[..., 3] / sums[..., 4]).T
        qualities = dict(zip(QUALITY, (distinct2, similarity, np.exp(ours - theirs)), strict=True))
    return {"lengthening": words} | {f"shared_{key}": ratios for key, ratios in qualities.items()}


def _apart(pairs: Sequence[Pair], drawn: Draws) -> Ratios:
    """Lengthening by draw, each side over its own uncorrupted answers; not finite where one has none."""
    measures = [[(a.words * (not a.corrupted), not a.corrupted) for a in pair] for pair in pairs]
    sums = np.array(measures, dtype=float).reshape(-1, 2, 2)[drawn].sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = sums[..., 0] / sums[..., 1]
        return {"lengthening_apart": means[:, 0] / means[:, 1]}


def _quality(answers: Sequence[Answer]) -> dict[str, float]:
    """Measures of quality that need no judge, over at least one answer."""
    distinct2, similarity = (statistics.mean(getattr(a, key) for a in answers) for key in ("distinct2", "similarity"))
    nats = sum(a.nats for a in answers) / max(1, sum(a.tokens for a in answers))
    return dict(zip(QUALITY, (distinct2, similarity, exp(nats)), strict=True))


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

    A prompt's place is its seed; under one for all, runs would draw and end alike. Policies draw alike too where all
    are written singly or all in batches (see `responses`), which turn a seed into tokens otherwise.
    """
    head = {"settings": dict(common), "prompts": [each.prompt for each in prompts]}
    if before is not None and any(before[key] != value for key, value in head.items()):
        raise ValueError("the result to go on from has other settings or prompts: give another --out, or delete it")
    result = provenance(seed=0, before=before) | head
    answers: dict[str, list[dict[str, Any]]] = dict(before["answers"]) if before else {}
    measured = dict(before["measured"]) if before else {}
    for name, policy in compared.items():
        now = _measured({**common, **policy}, policy, score)
        if measured.get(name) != now:
            measured[name], answers[name] = now, []
        given = {**common, **policy, "watch": Watch(enabled=False)}
        for row in _rows(lab, prompts, given, len(answers[name]), score):
            answers[name] = [*answers[name], row]
            report(f"{name}: {len(answers[name])} of {len(prompts)} answers")
            yield result | {"measured": dict(measured), "answers": dict(answers), "summary": _summaries(answers)}
        found = _summaries(answers)
        report(f"{name}: " + ", ".join(f"{key} {value:.3g}" for key, value in found[name].items() if value is not None))
        yield result | {"measured": dict(measured), "answers": dict(answers), "summary": found}


def _rows(
    lab: Lab, prompts: Sequence[Asked], given: Mapping[str, Any], first: int, score: Judge | None
) -> Iterator[dict[str, Any]]:
    """Measured answers in the order of the prompts, from the first one asked for on."""
    left = list(enumerate(prompts))[first:]
    settings = [RunSettings(prompt=each.prompt, seed=place, **given) for place, each in left]
    early: dict[int, dict[str, Any]] = {}
    due = 0
    for turn, response in responses(lab, settings) if settings else ():
        early[turn] = asdict(answer(lab, left[turn][1], settings[turn], response, score))
        while due in early:
            yield early.pop(due)
            due += 1


def _measured(settings: Mapping[str, Any], policy: Mapping[str, Any], score: Judge | None) -> dict[str, Any]:
    """What tells the answers of one name from those of another: policy, seeds, adapter's checksum, judge."""
    adapter = adapters.find(settings.get("method", "none"), settings.get("model", "embedded"))
    judged = {"judge": f"{score.__module__}:{score.__qualname__}"} if score else {}
    return {**policy, "seeds": SEEDS, **({"adapter": adapter.sha256} if adapter else {}), **judged}


def _summaries(answers: Mapping[str, list[dict[str, Any]]]) -> dict[str, dict[str, float | None]]:
    """By name; the first one's answers are what the others are compared with."""
    found = {name: [Answer(**row) for row in rows] for name, rows in answers.items() if rows}
    reference = next(iter(found.values()), [])
    return {name: summary(rows, reference) for name, rows in found.items()}
