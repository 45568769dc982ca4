"""Recorded results other than length: each kind is one function from its file to what the page shows.

A new kind needs a model of its file, such a function and a line in KINDS; a file without one is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import log
from statistics import fmean, median
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from app import charts, computation, diagnoses, lengthening, lengths, published
from app.charts import Chart
from app.results import UNKNOWN, Figure, Recorded, Shown, Table, decimal, figure, percent, text
from backend import adapters, signals
from backend.settings import LONG_METHODS, RunSettings
from backend.training.budget import RECORD, trainings

PLAIN, ENGINE, ALONE, LLAMA = "transformers bf16", "engine bf16, probes", "engine bf16", "llama.cpp Q4_1"
DYNAMIC, ALGORITHM = "engine bf16, dynamic PIC", "dynamic PIC by 004's algorithm 1"
DASHES = ("solid", "dash", "dot", "dashdot")
# Of the chart of nats: tokens of a point, and where lines are cut off.
POINT, CEILING = 2048, 12.0
HARNESS = "python -m backend evaluate harness --data FOLDER"
# Columns of long answers: their key in the summary, and how they are shown. Left out where no policy has the key.
ANSWERS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "answers": ("responses", text),
    "tokens, mean": ("tokens_mean", figure),
    "tokens, median": ("tokens_median", figure),
    "words, mean": ("words_mean", figure),
    "words, uncorrupted": ("words_whole", figure),
    "repetition": ("repetition_mean", percent),
    "ended": ("ended", percent),
    "corrupted": ("corrupted", percent),
    "base perplexity": ("perplexity", figure),
    "distinct-2": ("distinct2", figure),
    "like the prompt": ("similarity", figure),
    "S_l": ("s_l", figure),
    "judged": ("judged", figure),
}
# Ratios to the first policy's answers, and how they are called: over what neither answered corruptly, where not said.
BESIDE = {
    "words": "lengthening",
    "base perplexity": "shared_perplexity",
    "distinct-2": "shared_distinct2",
    "like the prompt": "shared_similarity",
    "words, each over its own uncorrupted answers": "lengthening_apart",
}
# From which share of corrupted answers on 004 compares no prompts in common (its appendix A).
MANY = 0.2
# In the file of ablations: every part of Λ together, and each with what it mends of 002's three factors.
WHOLE = "window, sinks, limit"
PARTS = {
    "limit alone": "unseen distances",
    "window alone": "too many keys",
    "window, sinks": "too many keys, lost first tokens",
}


class Rate(BaseModel):
    """prefill, decode: tokens/s; bandwidth: share of what copying reaches in decoding, arithmetic: of what a matrix
    product reaches in reading; own_memory: bytes at the peak above what was
    there before, memory: of the whole process; cache: bytes of keys and values that are held; rotations: of keys for a
    decoded token, in each layer; decode_rounds: tokens/s of each round; gain: over transformers' decoding, cost: share
    of it that probes take, by rounds."""

    model_config = ConfigDict(extra="allow")

    case: str
    context: int
    prefill: float | None = None
    decode: float | None = None
    bandwidth: float | None = None
    arithmetic: float | None = None
    own_memory: float | None = None
    memory: float | None = None
    cache: float | None = None
    rotations: float | None = None
    decode_rounds: list[float] = Field(default_factory=list)
    gain: float | None = None
    cost: float | None = None


class Behind(Recorded):
    """The same run alone, with probes, over the API and behind the page in a browser. cost: the share that each loses
    beside the first in the same round; further: after longer prompts."""

    written: int
    tokens_per_second: dict[str, float]
    cost: dict[str, float] = Field(default_factory=dict)
    prompt_tokens: int | None = None
    further: list[Behind] = Field(default_factory=list)


class LeftOut(BaseModel):
    """What was not measured, and why."""

    case: str
    context: int
    why: str


class Bench(Recorded):
    """assets/results/bench.json."""

    short: list[Rate] = Field(default_factory=list)
    long: list[Rate] = Field(default_factory=list)
    left_out: list[LeftOut] = Field(default_factory=list)
    page: Behind | None = None


class Level(BaseModel):
    """reading, writing: milliseconds of a token by round; …_over: times the shortest context's; cache: bytes."""

    window: int
    context: int
    reading: list[float]
    writing: list[float]
    reading_over: float
    writing_over: float
    cache: int


class Flatness(Recorded):
    """assets/results/flatness.json."""

    rows: list[Level]


class Large(Recorded):
    """assets/results/bench_gpu.json. shapes: rows by a model's shape."""

    shapes: dict[str, list[Rate]]


class LongForm(Recorded):
    """assets/results/longform.json. summary: measures by position policy; measured: how each was."""

    summary: dict[str, dict[str, Any]]
    measured: dict[str, dict[str, Any]] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)


class Readings(BaseModel):
    """One text under one policy. position: tokens read at the end of each chunk; nll: mean nats of its tokens."""

    model_config = ConfigDict(extra="allow")

    document: str
    policy: str
    start: int
    position: list[int]
    nll: list[float]


class Fluency(Recorded):
    """assets/results/perplexity.json. perplexity: rows by policy; same_tokens: rows by length."""

    perplexity: list[dict[str, Any]]
    same_tokens: list[dict[str, Any]] = Field(default_factory=list)
    readings: list[Readings] = Field(default_factory=list)


class Part(Recorded):
    """What was measured by itself. rows: by policy and tokens read."""

    rows: list[dict[str, Any]] = Field(default_factory=list)


class Passkeys(Part):
    """keys: numbers hidden at each depth; windows: tokens that each policy sees, None for all."""

    keys: int = 0
    windows: dict[str, int | None] = Field(default_factory=dict)


class Recall(Recorded):
    """assets/results/recall.json."""

    continuations: Part = Part()
    passkeys: Passkeys = Passkeys()


class Read(BaseModel):
    """How a reader does on one signal: shares of responses ended within a token, and not at all; nats at the end."""

    signal: signals.Kind
    numbers: str
    reader: str
    found: float
    never: float
    loss: float


class EndMark(Recorded):
    """assets/results/endmark.json. lengths: of responses that were held out."""

    lengths: int
    rows: list[Read]


class Shape(BaseModel):
    """What little training makes of a LoRA. loss_end: nats of the end mark; mae: tokens, over `answers`."""

    targets: str
    rank: int
    bytes: int
    loss_end: float
    loss_text: float
    mae: float
    median: float
    answers: int


class Shapes(Recorded):
    """assets/results/shapes.json. samples: responses that each was trained on."""

    samples: int
    rows: list[Shape]


class Landing(Recorded):
    """assets/results/length/<method>_landing.json. landing: endings tried; summary: measures by range of targets;
    quality: of the questions in range."""

    landing: int
    summary: dict[str, dict[str, Any]]
    quality: dict[str, Any] | None = None


def speed(bench: Bench) -> Shown:
    """Tokens per second of decoding and of reading, by context, and what the page costs."""
    rates = [*bench.short, *bench.long]
    tables = _rates(rates)
    title = "Decoding speed" if bench.short else "Decoding speed, long contexts"
    drawn = Figure(title, "Tokens per second after a context; probes off", _speed_chart(rates))
    missing = [f"Left out after {one.context:,} tokens: {one.case} ({one.why})." for one in bench.left_out]
    words = " ".join(filter(None, [_gains(rates), _probing(rates), _spared(rates), *missing, published.SPEED]))
    shown = Shown(words, tables, [drawn])
    if bench.page:
        tables += [_behind(one) for one in (bench.page, *bench.page.further)]
        shown.apart = f"the run behind the page: {bench.page.provenance}"
    return shown


def flat(result: Flatness) -> Shown:
    """What a token costs under Λ by how far into a text it is."""
    told = [
        f"{doing} by {min(found):.2f} to {max(found):.2f}"
        for doing, found in (
            ("reading", [row.reading_over for row in result.rows]),
            ("writing", [row.writing_over for row in result.rows]),
        )
        if found
    ]
    words = f"Beside the shortest text a token's time is multiplied: {', '.join(told)} times." if told else ""
    columns = [
        "window", "tokens before", "reading, ms a token", "× the first", "writing, ms a token", "× the first", "cache",
    ]  # fmt: skip
    rows = [
        [
            *map(text, (row.window, row.context)),
            *(figure(median(row.reading)), decimal(row.reading_over)),
            *(figure(median(row.writing)), decimal(row.writing_over)),
            f"{row.cache / 2**20:.1f} MiB",
        ]
        for row in result.rows
    ]
    return Shown(words, [Table("Λ, all lengths by turns; medians of the rounds", columns, rows)])


def by_shape(result: Large) -> Shown:
    """Tokens per second of models of random weights, by their shape."""
    words = [f"{shape}: {_gains(rates)}" for shape, rates in result.shapes.items()]
    tables = [
        replace(table, caption=f"{shape}: {table.caption}")
        for shape, rates in result.shapes.items()
        for table in _rates(rates)
    ]
    hint = "Tokens per second after a context"
    drawn = [Figure(f"Decoding speed, {shape}", hint, _speed_chart(rates)) for shape, rates in result.shapes.items()]
    return Shown(" ".join([*words, published.SPEED]), tables, drawn)


def _behind(run: Behind) -> Table:
    after = "" if run.prompt_tokens is None else f" after a prompt of {run.prompt_tokens:,}"
    columns = ["way", "tokens per second", "less than the engine in the same round"]
    rows = [[way, figure(rate), percent(run.cost.get(way))] for way, rate in run.tokens_per_second.items()]
    return Table(f"The same run of {run.written} tokens{after}", columns, rows)


def readable(result: EndMark) -> Shown:
    """How often a small reader finds where a response ends in the length signal alone."""
    best: dict[signals.Kind, float] = {}
    for row in result.rows:
        best[row.signal] = max(best.get(row.signal, 0.0), row.found)
    told = "; ".join(f"{lengths.label(name)} {percent(share)}" for name, share in best.items())
    words = (
        f"A reader that sees one position of a response, its token and its signal, is to say whether the response ends "
        f"there. Of {result.lengths} lengths that it was not trained on it ends at most one token off: {told}. A model "
        f"sees all positions so far, but in each no more than this."
    )
    columns = ["signal", "numbers", "reader", "found", "never ended", "loss at the end"]
    rows = [
        [lengths.label(row.signal), row.numbers, row.reader, percent(row.found), percent(row.never), figure(row.loss)]
        for row in result.rows
    ]
    return Shown(words, [Table("Ends found in a signal alone", columns, rows)])


def shapes(result: Shapes) -> Shown:
    """What layers and rank of a LoRA give, and what they cost."""
    columns = ["layers", "rank", "MB", "nats of the end mark", "of the text", "mean error, tokens", "median", "answers"]
    rows = [
        [
            row.targets.replace("_proj", "").replace(",", ", "),
            text(row.rank),
            *map(figure, (row.bytes / 1e6, row.loss_end, row.loss_text, row.mae, row.median)),
            text(row.answers),
        ]
        for row in result.rows
    ]
    words = (
        f"Each trained alike with LDPE, on {result.samples:,} responses; targets of at most 40 tokens. An adapter that "
        "ships may take 4 MB."
    )
    return Shown(words, [Table("Layers and rank of a LoRA", columns, rows)])


def beside_llama(bench: Bench) -> Shown:
    """Decoding and reading by llama.cpp and by the engine."""
    return Shown(_gain(bench.short, "engine int4", LLAMA), _rates(bench.short))


def long_answers(result: LongForm) -> Shown:
    """Lengths, endings and repetition under position-id compression, beside 004 tables 1, 3 and 5 to 7."""
    shown = drawn_otherwise(result)
    shown.tables += [*(published.compression(kind) for kind in published.COMPRESSION), published.LEFT_OUT]
    return shown


def drawn_otherwise(result: LongForm) -> Shown:
    """The same for other prompts or another way to draw, without 004's own tables."""
    found = _answers(result, "position policy", "004 tables 5–7: tokens (% corrupted)", _published)
    usual = {"initial": RunSettings.model_fields["initial"].default, **result.settings}
    parts = [lengthening.by_part(result.summary, part, usual.get(part)) for part in lengthening.NONE]
    drawn = [lengthening.by_ratio(result.summary), *parts]
    words = f"{_longest(result.summary)} {_outdated(result)}".strip()
    return Shown(words, found, [figure for figure in drawn if figure])


def trained(result: LongForm) -> Shown:
    """The same after training on long texts, with and without compression, beside 004 tables 2 and 8."""
    quoted = "004 tables 2 and 8: length (% corrupted)"
    found = _answers(result, "training, reading", quoted, lambda name: published.TRAINED.get(name, UNKNOWN))
    words = (_longest(result.summary), _samples(), _outdated(result))
    return Shown(" ".join(filter(None, words)), found)


def _outdated(result: LongForm) -> str:
    """Which rows another adapter than today's has written."""
    names = adapters.outdated(result.measured, result.settings.get("model", "embedded"))
    return f"Measured before its adapter was trained further: {'; '.join(names)}." if names else ""


def _samples() -> str:
    """On how many samples the lab's own adapters for long texts were trained."""
    counts = [
        f"{method} on {sum(training['result']['samples'] for training in trainings(adapters.ROOT / method))}"
        for method in LONG_METHODS
        if (adapters.ROOT / method / RECORD).exists()
    ]
    return f"Samples that the shipped adapters were trained on: {', '.join(counts)}." if counts else ""


def asked_for(result: LongForm) -> Shown:
    """Answers to prompts that ask for a number of words."""
    return _asked_for(result, None)


def asked_for_many(result: LongForm) -> Shown:
    """Answers to prompts that ask for more than 2,000 words, as those of 004 do, beside its own scores."""
    return _asked_for(result, "004: S_l")


def _asked_for(result: LongForm, quoted: str | None) -> Shown:
    best = max(result.summary, key=lambda name: result.summary[name].get("s_l") or 0.0, default="")
    score = figure(result.summary[best].get("s_l")) if best else UNKNOWN
    words = f"{best} keeps best to the lengths asked for: S_l {score} of 100." if score != UNKNOWN else ""
    if cap := result.settings.get("max_new_tokens"):
        words += f" Answers were cut at {cap:,} tokens."
    found = _answers(result, "policy", quoted, lambda name: published.S_L.get(name, UNKNOWN))
    return Shown(f"{words} {_outdated(result)}".strip(), found)


def _answers(result: LongForm, by: str, quoted: str | None, publish: Callable[[str], str]) -> list[Table]:
    """All answers, with what `publish` gives of a row under `quoted`; and their ratios to the first row's."""
    words = ", ".join(f"{key.replace('_', ' ')} {text(value)}" for key, value in result.settings.items())
    shows = {heading: (key, show) for heading, (key, show) in ANSWERS.items() if _measured(result, key)}
    answers = [[name, *(show(row.get(key)) for key, show in shows.values())] for name, row in result.summary.items()]
    every = Table(f"Long answers by {by}" + (f" ({words})" if words else ""), [by, *shows], answers)
    if quoted:
        rows = [[*row, publish(row[0])] for row in every.rows]
        every = Table(every.caption, [*every.columns, quoted], rows, quoted=len(every.columns))
    return [every, _beside(result, by)] if _measured(result, "lengthening") else [every]


def _beside(result: LongForm, by: str) -> Table:
    """Every row over the first one."""
    first = next(iter(result.summary), "")
    caption = f"The same over those of {first}, to the prompts that neither answered corruptly (95 % of draws)"
    ratios = [heading for heading, key in BESIDE.items() if _measured(result, key)]
    rows = [
        [policy, text(row.get("shared")), *(_within(row, BESIDE[heading]) for heading in ratios)]
        for policy, row in result.summary.items()
    ]
    return Table(caption, [by, "prompts", *ratios], rows)


def _within(found: Mapping[str, Any], key: str) -> str:
    """A ratio and, where they are known, its bounds."""
    ends = [decimal(end) for end in _bounds(found, key)]
    return decimal(found.get(key)) + (f" ({' to '.join(ends)})" if len(set(ends)) > 1 else "")


def _measured(result: LongForm, key: str) -> bool:
    return any(found.get(key) is not None for found in result.summary.values())


def fluency(result: Fluency) -> Shown:
    """Perplexity by policy and tokens read, beside 002 table 1."""
    shown = fluency_elsewhere(result)
    shown.tables.append(published.FLUENCY)
    return shown


def fluency_elsewhere(result: Fluency) -> Shown:
    """The same of other texts, and how little Λ loses far into one."""
    columns = list(dict.fromkeys(key for row in result.perplexity for key in row))
    rows = [[text(row.get(key)) for key in columns] for row in result.perplexity]
    tables = [Table("Perplexity of the last 1,024 tokens, by tokens read", columns, rows)]
    if result.same_tokens:
        keys = list(result.same_tokens[0])
        same = [[text(row.get(key)) for key in keys] for row in result.same_tokens]
        tables.append(Table("Λ: the same tokens after a long text and after 8,192 tokens", keys, same))
    far = max(result.same_tokens, key=lambda row: row["tokens"], default=None)
    words = f"{far['tokens']:,} tokens into a text Λ has {far['ratio']:.2f}× the perplexity of 8,192." if far else ""
    hint = "Mean over texts, four chunks to a point (002 figure 3)"
    return Shown(words, tables, [Figure("Nats against position", hint, _fluency_chart(result, words))])


def recall(result: Recall) -> Shown:
    """How much of a text's own continuation and of what it hid is still written far into it, beside 002 table 2."""
    written, hidden = result.continuations, result.passkeys
    rows = [row | {"ROUGE-Lsum": 100 * row["ROUGE-Lsum"]} for row in written.rows]
    measures = [
        _pivot(f"{measure} (of 100) of 100 tokens written, by tokens read", ("policy",), "tokens", rows, measure)
        for measure in ("BLEU", "ROUGE-Lsum")
    ]
    caption = f"Passkeys told, of {hidden.keys} at each depth (0: at the start), by tokens read"
    told = _pivot(caption, ("policy", "depth"), "tokens", hidden.rows, "told", percent)
    mine = sorted((row["tokens"], row["ROUGE-Lsum"]) for row in rows if row["policy"] == "Λ")
    near, far = [f"{figure(rouge)} after {tokens:,} tokens" for tokens, rouge in (mine[:1] + mine[-1:])] or ["", ""]
    words = f"What Λ writes has a ROUGE-Lsum of {near} and of {far}." if mine else ""
    apart = f"continuations: {written.provenance}; passkeys: {hidden.provenance}"
    return Shown(f"{words} {_told(hidden)}".strip(), [*measures, told, published.CONTINUATIONS], apart=apart)


def _told(part: Passkeys) -> str:
    """How many of the numbers outside a window, and of those within it of a text that is longer, are told with it and
    without it. A shorter text is read as without a window."""
    plain = {(row["tokens"], row["depth"]): row["told"] for row in part.rows if row["policy"] == "plain"}
    shares: dict[bool, list[tuple[float, float]]] = {}
    for row in part.rows:
        window, place = part.windows.get(row["policy"]), (row["tokens"], row["depth"])
        if window is not None and place in plain and row["tokens"] > window:
            shares.setdefault(row["back"] > window, []).append((plain[place], row["told"]))
    means = {outside: [percent(fmean(one)) for one in zip(*found, strict=True)] for outside, found in shares.items()}
    told = [
        f"{'outside' if outside else 'within'} its window Λ tells {lamda}, plain attention {whole} of the same"
        for outside, (whole, lamda) in sorted(means.items(), reverse=True)
    ]
    return f"Of passkeys {'; '.join(told)}." if told else ""


def landing(result: Landing) -> Shown:
    """Lengths by range of targets where the last sentence was chosen to land on the target."""
    columns = [
        "range", "answers", "MAE ± SD", "bias", "> 20 off", "ended by the model", "natural endings", lengths.RATIO,
    ]  # fmt: skip
    ratio = figure((result.quality or {}).get("perplexity_ratio"))
    rows = [
        [
            name.replace("-", "–"),
            text(found.get("answers")),
            f"{figure(found.get('mae'))} ± {figure(found.get('sd'))}",
            figure(found.get("bias")),
            *(percent(found.get(key)) for key in ("outliers", "ended", "natural")),
            ratio,
        ]
        for name, found in result.summary.items()
    ]
    words = f"{result.landing} continuations were tried near each target, to end a sentence there."
    return Shown(words, [Table("With landing: how near the answers end", columns, rows)])


def anything(result: Recorded) -> Shown:
    """A file of no known kind: each list of records or record of records in it as a table, the rest in a sentence."""
    tables, told = [], []
    for key, value in (result.model_extra or {}).items():
        rows = _records(value)
        if rows:
            columns = list(dict.fromkeys(name for row in rows for name in row))
            tables.append(Table(key, columns, [[text(row.get(name)) for name in columns] for row in rows]))
        else:
            told.append(f"{key.replace('_', ' ')}: {text(value)}")
    return Shown("; ".join(told), tables)


def decoupling(result: Recorded) -> Shown:
    """Multiple choice by a model trained on long texts, read plainly and as trained, beside 004 figure 3."""
    shown = anything(result)
    return Shown(shown.words, [*shown.tables, published.DECOUPLING])


def ablation(result: Fluency) -> Shown:
    """Perplexity with single parts of Λ, other numbers of sinks and other windows."""
    return Shown(_mended(result.perplexity), fluency(result).tables[:1])


def _mended(rows: Sequence[Mapping[str, Any]]) -> str:
    """How much of what Λ gains in nats of a token its parts gain alone, farthest into a text."""
    found = {row["policy"]: row for row in rows}
    plain, whole = found.get("plain", {}), found.get(WHOLE, {})
    lengths = [key for key in plain if key != "policy" and plain[key] and whole.get(key)]
    if not lengths or plain[lengths[-1]] <= whole[lengths[-1]]:
        return ""
    at = lengths[-1]
    gain = log(plain[at] / whole[at])
    parts = [
        f"{name} ({factor}) {percent(log(plain[at] / value) / gain)} ({figure(value)})"
        for name, factor in PARTS.items()
        if (value := found.get(name, {}).get(at))
    ]
    words = f"After {at} tokens Λ brings a perplexity of {figure(plain[at])} down to {figure(whole[at])}."
    return f"{words} Of that, in nats, its parts mend: {'; '.join(parts)}." if parts else words


class Kind(NamedTuple):
    """title: of its section. command: makes the file. model: checks it. show: what the page has of it."""

    title: str
    command: str
    model: type[Any]
    show: Callable[[Any], Shown]


KINDS = {
    **{
        f"length/{name}_landing.json": Kind(
            f"{name.upper()} with landing",
            f"python -m backend evaluate length --method {name} --landing 8",
            Landing,
            landing,
        )
        for name in ("ldpe", "orpe")
    },
    "endmark.json": Kind(
        "Whether a signal tells where to end", "python -m backend evaluate endmark", EndMark, readable
    ),
    "shapes.json": Kind(
        "Which LoRA to ship", "python -m backend evaluate shapes --data CORPUS", Shapes, shapes
    ),
    "bench.json": Kind("Speed", "make bench", Bench, speed),
    "bench_long.json": Kind("Speed far into a text", "make bench-long", Bench, speed),
    "flatness.json": Kind("A token's cost far into a text", "make bench-flat", Flatness, flat),
    "bench_gpu.json": Kind("Speed on a GPU, random weights", "make bench-gpu", Large, by_shape),
    "bench_llama_cpp.json": Kind("Speed beside llama.cpp", "make bench-llama", Bench, beside_llama),
    "perplexity.json": Kind("Fluency far into a text", "python -m backend evaluate perplexity", Fluency, fluency),
    "perplexity_novels.json": Kind("Fluency far into six novels", "make far", Fluency, fluency_elsewhere),
    "perplexity_pydoc.json": Kind("Fluency far into reference texts", "make far", Fluency, fluency_elsewhere),
    "diagnoses.json": Kind(
        "What breaks far into a text",
        "python -m backend evaluate diagnoses --data FOLDER",
        diagnoses.Diagnoses,
        diagnoses.diagnosed,
    ),
    "ablation.json": Kind(
        "What each part of Λ does", "python -m backend evaluate perplexity --ablation", Fluency, ablation
    ),
    "computation.json": Kind(
        "What a window saves, beside truncation",
        "python -m backend evaluate computation --data FOLDER",
        computation.Computation,
        computation.compared,
    ),
    "recall.json": Kind("Writing on, and recalling", "python -m backend evaluate recall --data FOLDER", Recall, recall),
    "longform.json": Kind("Long answers", "make longform", LongForm, long_answers),
    "longform_many.json": Kind("Long answers to more prompts", "make longform", LongForm, drawn_otherwise),
    "longform_greedy.json": Kind(
        "Long answers, always the likeliest token", "make longform", LongForm, drawn_otherwise
    ),
    "pic_sft.json": Kind("Trained on long texts", "make longform", LongForm, trained),
    "pic_sft_many.json": Kind("Trained on long texts, more prompts", "make longform", LongForm, trained),
    "longbench_write.json": Kind("LongBench-Write", "make longform", LongForm, asked_for),
    "longbench_write_long.json": Kind(
        "LongBench-Write, more than 2,000 words", "make longform", LongForm, asked_for_many
    ),
    "harness.json": Kind(
        "What the countdown costs", f"{HARNESS} --method ldpe --method orpe --method pre", Recorded, anything
    ),
    "harness_pic_sft.json": Kind(
        "What training on long texts costs",
        f"{HARNESS} --method sft --method sft_ntk --method sft_dynamic",
        Recorded,
        decoupling,
    ),
    "harness_pic_sft_shots.json": Kind(
        "What training on long texts costs, longer questions",
        f"{HARNESS} --shots 5 --method sft --method sft_ntk --method sft_dynamic --out FILE",
        Recorded,
        decoupling,
    ),
}
OTHER = Kind("", "", Recorded, anything)


def _rates(rates: Sequence[Rate]) -> list[Table]:
    rows = [rate.model_dump() for rate in rates]
    return [
        _pivot("Decoding, tokens per second after a context of", ("case",), "context", rows, "decode"),
        _pivot("Reading, tokens per second of a context of", ("case",), "context", rows, "prefill"),
    ]


def _pivot(
    caption: str,
    by: tuple[str, ...],
    along: str,
    rows: Sequence[dict[str, Any]],
    measure: str,
    show: Callable[[Any], str] = figure,
) -> Table:
    """A measure of the rows, with a line for each `by` and a column for each number of tokens under `along`."""
    lengths = sorted({row[along] for row in rows})
    found: dict[tuple[str, ...], dict[int, Any]] = {}
    for row in rows:
        found.setdefault(tuple(text(row[key]) for key in by), {})[row[along]] = row[measure]
    cells = [[*names, *(show(mine.get(length)) for length in lengths)] for names, mine in found.items()]
    return Table(caption, [*by, *(f"{length:,}" for length in lengths)], cells)


# Columns of a speed chart's table, left out where nothing has them.
RATES: dict[str, Callable[[Rate], str]] = {
    "reading": lambda rate: text(rate.prefill),
    "decoding": lambda rate: text(rate.decode),
    "ms per token": lambda rate: figure(1000 / rate.decode) if rate.decode else UNKNOWN,
    "× transformers": lambda rate: decimal(rate.gain),
    "cost of probes": lambda rate: percent(rate.cost),
    "decoding, of copy bandwidth": lambda rate: percent(rate.bandwidth),
    "reading, of a matrix product’s speed": lambda rate: percent(rate.arithmetic),
    "own peak memory": lambda rate: _gib(_own(rate)),
    "peak memory of the process": lambda rate: _gib(rate.memory),
    "cache": lambda rate: _gib(rate.cache),
    "rotations per token": lambda rate: figure(rate.rotations),
}


def _speed_chart(rates: Sequence[Rate]) -> Chart:
    layout = charts.axes("tokens of context", "tokens per second")
    contexts = sorted({rate.context for rate in rates})
    layout["xaxis"] |= {"type": "log", "tickvals": contexts, "ticktext": [f"{context:,}" for context in contexts]}
    layout["yaxis"]["rangemode"] = "tozero"
    cases = dict.fromkeys(rate.case for rate in rates if "probes" not in rate.case)
    data = [_speed_line(place, case, rates) for place, case in enumerate(cases)]
    charts.legend(layout, data)
    shows = {heading: show for heading, show in RATES.items() if any(show(rate) != UNKNOWN for rate in rates)}
    rows = [[rate.case, rate.context, *(show(rate) for show in shows.values())] for rate in rates]
    return Chart(data, layout, _gains(rates), ("case", "context", *shows), rows)


def _speed_line(place: int, case: str, rates: Sequence[Rate]) -> dict[str, Any]:
    mine = sorted((rate.context, rate.decode) for rate in rates if rate.case == case and rate.decode is not None)
    x, y = [context for context, _ in mine], [decode for _, decode in mine]
    colour, dash = _look(place)
    return charts.line(x, y, colour, case, dash=dash, mode="lines+markers", hover="%{y:,.1f}")


def _look(place: int) -> tuple[str, str]:
    """Colour and dash of a chart's line by its place: no two of the first twenty are alike."""
    colours = charts.SERIES_COLOURS
    return colours[place % len(colours)], DASHES[place // len(colours) % len(DASHES)]


def _fluency_chart(result: Fluency, words: str) -> Chart:
    layout = charts.axes("tokens read", "nats of a token")
    data, rows = [], []
    for place, policy in enumerate(dict.fromkeys(reading.policy for reading in result.readings)):
        nats: dict[int, list[float]] = {}
        for reading in result.readings:
            if reading.policy == policy and reading.start == 0:
                for position, value in zip(reading.position, reading.nll, strict=True):
                    nats.setdefault(-(-position // POINT) * POINT, []).append(value)
        if len(nats) > 1:
            x = sorted(nats)
            y = [round(min(sum(nats[p]) / len(nats[p]), CEILING), 3) for p in x]
            colour, dash = _look(place)
            data.append(charts.line(x, y, colour, policy, dash=dash))
            rows.append([policy, f"{x[-1]:,}", f"{min(y):.2f}", f"{y[-1]:.2f}"])
        elif points := _points(result, policy):
            x, y = list(points), list(points.values())
            colour, _ = _look(place)
            data.append(charts.line(x, y, colour, policy, mode="markers"))
            rows.append([policy, f"{x[-1]:,}", f"{min(y):.2f}", f"{y[-1]:.2f}"])
    layout["xaxis"] |= {"type": "log", "tickvals": [2048 * 2**n for n in range(7)]}
    layout["xaxis"]["ticktext"] = [f"{2 * 2**n}k" for n in range(7)]
    charts.legend(layout, data)
    return Chart(data, layout, words, ("policy", "read to", "least nats", "nats at the end"), rows)


def _points(result: Fluency, policy: str) -> dict[int, float]:
    """Nats by tokens read of a policy that reads anew for each length."""
    row = next((row for row in result.perplexity if row["policy"] == policy), {})
    found = {int(key.replace(",", "")): value for key, value in row.items() if key != "policy" and value}
    return {length: round(min(log(value), CEILING), 3) for length, value in found.items()}


def _gains(rates: Sequence[Rate]) -> str:
    """How much faster than transformers the engine and its Λ windows are, each where both went farthest."""
    cases = dict.fromkeys(rate.case for rate in rates)
    plain = next((case for case in (ENGINE, ALONE) if case in cases), ENGINE)
    windows = [case for case in cases if "Λ" in case and "probes" not in case]
    told = [f"{_gain(rates, case)} {_reading(rates, case)}".strip() for case in (plain, *windows)]
    return " ".join(sentence for sentence in told if sentence)


def _probing(rates: Sequence[Rate]) -> str:
    """What probes cost in decoding with the engine's plain case."""
    costs = [f"{percent(r.cost)} after {r.context:,} tokens" for r in rates if r.case == ENGINE and r.cost is not None]
    return f"Probes cost, in the same rounds, {', '.join(costs)}." if costs else ""


def _gain(rates: Sequence[Rate], case: str, against: str = PLAIN) -> str:
    context, found = _farthest(rates, case, against)
    if not found:
        return ""
    fast, slow = found
    told = f"{case} decodes {fast.decode:.1f} tokens/s, {against} {slow.decode:.1f}"
    return f"After {context:,} tokens {told} ({_times(fast, slow):.1f}×)."


def _reading(rates: Sequence[Rate], case: str, against: str = PLAIN) -> str:
    """How much faster a case reads than another, where both went farthest."""
    context, found = _farthest(rates, case, against)
    if not found or not all(rate.prefill for rate in found):
        return ""
    fast, slow = (rate.prefill or 0.0 for rate in found)
    return f"It reads the {context:,} at {fast:.0f} tokens/s ({fast / slow:.1f}×)."


def _farthest(rates: Sequence[Rate], *cases: str) -> tuple[int, list[Rate]]:
    """The longest context after which all of the cases wrote, and how fast each did; none where there is none."""
    found = {(rate.case, rate.context): rate for rate in rates if rate.decode}
    context = max((n for _, n in found if all((case, n) in found for case in cases)), default=0)
    return context, [found[case, context] for case in cases] if context else []


def _times(fast: Rate, slow: Rate) -> float:
    """How many times as fast one writes: the median over rounds, where both tell the same ones."""
    if fast.decode_rounds and len(fast.decode_rounds) == len(slow.decode_rounds):
        return median(one / other for one, other in zip(fast.decode_rounds, slow.decode_rounds, strict=True))
    assert fast.decode and slow.decode
    return fast.decode / slow.decode


def _spared(rates: Sequence[Rate]) -> str:
    """What dynamic PIC gains on 004's algorithm 1, and how little of it lies in rotating keys anew."""
    _, found = _farthest(rates, DYNAMIC, ALGORITHM, PLAIN)
    if not found:
        return ""
    engine, algorithm, plain = found
    return (
        f"{_gain(rates, DYNAMIC, ALGORITHM)} {PLAIN}, which rotates no key anew, decodes "
        f"{_times(plain, algorithm):.2f}× as fast as the latter; the other {_times(engine, plain):.1f}× are the "
        "engine’s kernels."
    )


def _own(rate: Rate) -> float | None:
    """Own memory; None where it is less than the cache: what is taken of memory freed before is not seen as taken."""
    return None if rate.own_memory is None or rate.own_memory < (rate.cache or 0) else rate.own_memory


def _gib(size: float | None) -> str:
    return UNKNOWN if size is None else f"{size / 2**30:.2f} GiB"


def _published(policy: str) -> str:
    """What 004 publishes of a policy named "plain", "NTK s=4" or "dynamic contiguous s=4"."""
    named = re.fullmatch(r"(naive|NTK|dynamic)(?: \w+)? s=([\d.]+)", "dynamic s=1" if policy == "plain" else policy)
    return published.compressed(*named.groups()) if named else UNKNOWN


def _longest(summary: Mapping[str, Mapping[str, Any]]) -> str:
    """Whose answers are the longest against the first one's, over prompts that neither answered corruptly, of those
    with bounds."""
    first = next(iter(summary), "")
    others = {name: found for name, found in summary.items() if name != first}
    gains = {n: gain for n, found in others.items() if (gain := found.get("lengthening")) and _bounds(found)}
    if not gains:
        nothing = summary and all(found.get("corrupted") == 1 for found in summary.values())
        few = max((found.get("shared") or 0 for found in others.values()), default=0)
        if nothing:
            return "Every answer is corrupted, so lengths cannot be compared."
        return f"At most {few} prompts were answered uncorrupted by two of these: too few to rank them." if few else ""
    best = max(gains, key=lambda name: gains[name])
    over = f"{text(summary[best].get('shared'))} prompts that neither answered corruptly"
    low, high = map(decimal, _bounds(summary[best]))
    bounds = f"95 % of draws of such prompts have {low} to {high}"
    ranked = f"{best} writes {gains[best]:.2f}× the words of {first} ({over}; {bounds}){_apart(summary, best)}"
    costs = [figure(summary[name].get("perplexity")) for name in (best, first)]
    return f"{ranked}." if UNKNOWN in costs else f"{ranked}, at a base perplexity of {costs[0]} against {costs[1]}."


def _apart(summary: Mapping[str, Mapping[str, Any]], best: str) -> str:
    """The lengthening as 004 counts it where many answers are corrupted; nothing where few are."""
    first = next(iter(summary))
    many = any((summary[name].get("corrupted") or 0) > MANY for name in (first, best))
    if not many or (apart := summary[best].get("lengthening_apart")) is None:
        return ""
    bounds = " to ".join(map(decimal, _bounds(summary[best], "lengthening_apart")))
    own = f", {apart:.2f}× {f'({bounds}) ' if bounds else ''}over each one's own uncorrupted answers"
    return f"{own}, which 004 counts where over a fifth are corrupted"


def _bounds(found: Mapping[str, Any], key: str = "lengthening") -> list[float]:
    """Between what a ratio lies; [] where that is not known."""
    ends = [found.get(f"{key}_{end}") for end in ("low", "high")]
    return [end for end in ends if end is not None] if None not in ends else []


def _records(value: Any) -> list[dict[str, Any]]:
    """The rows of a list of records, or of a record of records with their names in front; [] for anything else."""
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        return value
    if isinstance(value, dict) and value and all(isinstance(row, dict) for row in value.values()):
        return [{"name": name, **row} for name, row in value.items()]
    return []
