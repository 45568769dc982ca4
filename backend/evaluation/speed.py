"""Decode and prefill speed of the engine beside transformers', in one process on this machine.

All ways that are compared read the same tokens and then write by turns, greedily and without stopping at EOS,
so that a round meets the machine alike for all of them. `make bench` runs this and the page on top (app.bench) and
writes assets/results/bench.json; `make bench-long` runs the long contexts and writes assets/results/bench_long.json.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from pydoc_data import topics
from typing import Any, Protocol

import torch
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedConfig, PreTrainedModel

from backend.evaluation.algorithm1 import Algorithm1
from backend.inference.chunks import CHUNK, FIRST_CHUNK
from backend.inference.kv_cache import FramedCache
from backend.inference.model_runner import Runner
from backend.inference.probes import Probe
from backend.models import embedded
from backend.models.pool import Models
from backend.positions import LambdaWindow, Plain, PositionPolicy
from backend.positions.dynamic_pic import DynamicPic
from backend.record.provenance import CPU, PeakMemory, clock, copy_bandwidth, product_rate, provenance
from backend.record.results import RESULTS, keep, writable
from backend.settings import Watch
from backend.terminal import say

OUT = RESULTS / "bench_long.json"
CONTEXTS = (128, 2048, 8192)
LONG = (4096, 8192, 16384, 32768, 65536, 131072)
# Where those stop whose time is quadratic: ways of reading that look at everything.
LONGEST = {"transformers": 32768, "engine": 32768, "dynamic": 16384, "algorithm 1": 8192}
WINDOWS = (1024, 2048, 4096)
DYNAMIC = DynamicPic(ratio=4.0)
# Tokens that a cache of the engine has room for at first; one with a window needs no more.
ROOM = 256
# Fresh readings of a context, and rounds of writing after each: up to SOON tokens, and beyond, where reading is slow.
SOON = 2048
NEAR, FAR = (3, 2), (1, 4)
# Tokens written before a clock runs, and by whoever needs a good part of a second for each.
WARM, FEW = 3, 8
TRIAL = 64
SEEING = "transformers bf16, forward with attentions and states"
# Bytes of attentions beyond which that is left out.
ATTENTIONS = 15e9


@dataclass(frozen=True)
class Speed:
    """One way of one case.

    prefill, decode: tokens/s, medians. token_bytes: of weights and cache that one decoded token reads; bandwidth: those
    bytes per second over the measured copy bandwidth. own_memory: bytes resident at the peak of reading the context and
    writing the first tokens, above what was resident before, model included. cache: bytes of keys and values after the
    context. read_operations: additions and multiplications that a token of the context takes in the mean; arithmetic:
    those per second over what a large matrix product in the weights' type reaches (None: not compared).
    rotations: of keys for a decoded token, in each layer (None: not counted).
    decode_rounds: tokens/s of each round; the same place is the same round in all cases of a context. gain: speed of
    decoding over transformers' own, cost: share of it that probes take; medians over rounds, None where not compared.
    """

    case: str
    context: int
    prefill: float
    decode: float
    token_bytes: int
    bandwidth: float
    own_memory: int
    cache: int | None = None
    rotations: float | None = None
    read_operations: float | None = None
    arithmetic: float | None = None
    decode_rounds: Sequence[float] = ()
    gain: float | None = None
    cost: float | None = None


class Reader(Protocol):
    """One way of reading a context and writing after it, with a cache of its own."""

    def read(self, ids: torch.Tensor) -> None:
        """Read the context, and choose the token after it."""

    def write(self, count: int) -> None:
        """Read the token chosen last and choose the next, so many times."""

    def held(self) -> int:
        """Bytes of keys and values."""

    def rotations(self) -> int:
        """Of keys so far, in each layer."""

    @property
    def seen(self) -> int | None:
        """Most tokens that a token sees; None: all."""


Readers = Mapping[str, Reader]


class Stepping:
    """A Reader by forward passes. step: ids [n] to the logits [vocabulary] after the last of them."""

    def __init__(
        self,
        step: Callable[[torch.Tensor], torch.Tensor],
        held: Callable[[], int],
        rotations: Callable[[], int],
        seen: int | None = None,
    ):
        self.step, self.held, self.rotations, self.seen = step, held, rotations, seen

    def read(self, ids: torch.Tensor) -> None:
        self.token = self.step(ids).argmax()

    def write(self, count: int) -> None:
        for _ in range(count):
            self.token = self.step(self.token[None]).argmax()


class Generating:
    """A Reader by transformers' own `generate`, which goes on from its cache."""

    seen = None

    def __init__(self, model: PreTrainedModel):
        self.model, self.cache = model, DynamicCache(config=model.config)

    def read(self, ids: torch.Tensor) -> None:
        self.ids = ids.to(self.model.device)
        self.write(1)

    def write(self, count: int) -> None:
        ids = self.ids[None]
        self.ids = self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            past_key_values=self.cache,
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
        )[0]

    def held(self) -> int:
        return held(self.cache)

    def rotations(self) -> int:
        return self.cache.get_seq_length()


@dataclass(frozen=True)
class Case:
    """Ways of reading with one model. make: fresh readers by what each adds to the name, the plain one under "".
    tokens: written in a round; None: as many as others."""

    name: str
    make: Callable[[], Readers]
    model: PreTrainedModel | Runner
    tokens: int | None = None


@dataclass
class Found:
    """What was measured of one way of a case, reading by reading and round by round."""

    case: Case
    prefill: list[float] = field(default_factory=list)
    decode: list[float] = field(default_factory=list)
    memory: int = 0
    cache: int = 0
    rotated: int = 0
    written: int = 0
    seen: int | None = None

    def read(self, reader: Reader, ids: torch.Tensor, made: int = 0) -> None:
        """Time the reading of a context. made: bytes that the reader took before."""
        with PeakMemory(self._device) as peak:
            started = clock(self._device)
            reader.read(ids)
            self.prefill.append(len(ids) / (clock(self._device) - started))
            self.cache, self.seen = reader.held(), reader.seen
            reader.write(WARM)
        self.memory = max(self.memory, made + peak.bytes)

    def write(self, reader: Reader, count: int) -> None:
        """Time the writing of so many tokens, after some to warm up."""
        before = reader.rotations()
        reader.write(WARM)
        started = clock(self._device)
        reader.write(count)
        self.decode.append(count / (clock(self._device) - started))
        self.rotated += reader.rotations() - before
        self.written += WARM + count

    @property
    def _device(self) -> torch.device:
        return _of(self.case.model).device

    def over(self, other: Found) -> float:
        """How many times as fast this writes as another in the same round."""
        return statistics.median(mine / theirs for mine, theirs in zip(self.decode, other.decode, strict=True))


@dataclass(frozen=True)
class Bench:
    """What all cases share. text: token ids; copy: bytes/s of a large copy; products: operations/s of a large matrix
    product by type; tokens: written in a round."""

    text: torch.Tensor
    copy: float
    products: Mapping[torch.dtype, float]
    tokens: int

    def case(
        self, name: str, context: int, make: Callable[[], Readers], model: PreTrainedModel | Runner
    ) -> list[Speed]:
        """One case by itself."""
        return self.compare(context, [Case(name, make, model)])

    def compare(self, context: int, cases: Sequence[Case]) -> list[Speed]:
        """All ways of the cases after one context, by turns."""
        readings, rounds = NEAR if context <= SOON else FAR
        self._try(cases)
        found: dict[str, Found] = {}
        for _ in range(readings):
            self._measure(context, cases, rounds, found)
        theirs = next((one for one in found.values() if one.case.name.startswith("transformers")), None)
        return [self._row(name, context, one, found.get(one.case.name, one), theirs) for name, one in found.items()]

    def room(self, context: int) -> int:
        """Tokens that one reader reads and writes."""
        return context + WARM + max(NEAR[1], FAR[1]) * (WARM + max(FEW, self.tokens))

    def _try(self, cases: Sequence[Case]) -> None:
        """What only a first call takes: kernels are compiled, weights come from the disk."""
        for case in cases:
            for reader in case.make().values():
                reader.read(self.text[:TRIAL])
                reader.write(WARM)

    def _measure(self, context: int, cases: Sequence[Case], rounds: int, found: dict[str, Found]) -> None:
        runs = []
        for case in cases:
            with PeakMemory(_of(case.model).device) as made:
                readers = case.make()
            for way, reader in readers.items():
                one = found.setdefault(case.name + way, Found(case))
                one.read(reader, self.text[:context], made.bytes)
                runs.append((one, reader))
        for number in range(rounds):
            # To and fro, so that a machine that slows down slows all.
            for one, reader in runs[:: -1 if number % 2 else 1]:
                one.write(reader, one.case.tokens or self.tokens)

    def _row(self, name: str, context: int, one: Found, plain: Found, theirs: Found | None) -> Speed:
        rate, read = statistics.median(one.decode), statistics.median(one.prefill)
        operations = read_operations(one.seen, context, one.case.model)
        moved = weight_bytes(one.case.model) + cache_bytes(one, context, one.case.model)
        return Speed(
            case=name,
            context=context,
            prefill=read,
            decode=rate,
            token_bytes=moved,
            bandwidth=moved * rate / self.copy,
            own_memory=one.memory,
            cache=one.cache,
            rotations=one.rotated / one.written,
            read_operations=operations,
            arithmetic=operations * read / self.products[_of(one.case.model).dtype],
            decode_rounds=one.decode,
            gain=None if theirs is None else one.over(theirs),
            cost=None if one is plain else 1 - one.over(plain),
        )


def cases(models: Models, bench: Bench, contexts: Sequence[int] = CONTEXTS) -> Iterator[Speed]:
    """The table of short contexts: `generate` beside the engine without and with probes."""
    seeing = reference("bf16", eager=True)
    forward = Case(SEEING, partial(forward_readers, seeing), seeing)
    for precision, ours in {"bf16": ("bf16", "int8", "int4"), "fp32": ("fp32",)}.items():
        model = reference(precision)
        runners = {name: Runner(models.load("embedded", name)) for name in ours}
        engines = [Case(f"engine {name}", partial(engine_readers, r, Plain()), r) for name, r in runners.items()]
        for n in contexts:
            seen = [] if precision != "bf16" or left_out(seeing.config, [n]) else [forward]
            yield from bench.compare(n, [generate_case(precision, model, n), *seen, *engines])


def long_cases(
    models: Models,
    bench: Bench,
    contexts: Sequence[int] = LONG,
    windows: Sequence[int] = WINDOWS,
    longest: Mapping[str, int] = LONGEST,
) -> Iterator[Speed]:
    """At long contexts in bf16, without probes: plain attention of transformers and of the engine, Λ, and dynamic PIC
    both ways, each up to its longest context; what has none is left out, but Λ has no end."""
    model, runner = reference("bf16"), Runner(models.load("embedded", "bf16"))
    windowed = [window_case(runner, n) for n in windows]
    for n in contexts:
        room = bench.room(max(n, TRIAL))
        plain, dynamic = engine_cases(runner, room)
        ways = {
            "transformers": generate_case("bf16", model, n),
            "engine": plain,
            "dynamic": dynamic,
            "algorithm 1": algorithm1_case(model, room, FEW if n > SOON else None),
        }
        yield from bench.compare(n, [*(case for way, case in ways.items() if n <= longest.get(way, 0)), *windowed])


def generate_case(precision: str, model: PreTrainedModel, context: int) -> Case:
    """transformers' own `generate`, which hardly gets on after a long context."""
    few = FEW if context > SOON else None
    return Case(f"transformers {precision}", lambda: {"": Generating(model)}, model, few)


def left_out(config: PreTrainedConfig, contexts: Sequence[int] = CONTEXTS) -> list[dict[str, Any]]:
    """The contexts whose attentions, held for all layers at once, are too large, and why."""
    size = 2 * config.num_hidden_layers * config.num_attention_heads
    return [
        {"case": SEEING, "context": n, "why": f"its attentions alone take {size * n**2 / 1e9:.0f} GB"}
        for n in contexts
        if size * n**2 > ATTENTIONS
    ]


def algorithm1_case(model: PreTrainedModel, room: int, tokens: int | None = None) -> Case:
    """Dynamic PIC as 004 does it, for at most `room` tokens, of which it writes `tokens` in a round."""
    return Case("dynamic PIC by 004's algorithm 1", partial(algorithm1_readers, model, DYNAMIC, room), model, tokens)


def algorithm1_readers(model: PreTrainedModel, policy: DynamicPic, room: int) -> Readers:
    """Algorithm 1 with a cache for `room` tokens."""
    read, rotated = Algorithm1(model, policy, room), 0

    def step(ids: torch.Tensor) -> torch.Tensor:
        nonlocal rotated
        logits = read(ids)
        rotated += read.length
        return logits

    return {"": Stepping(step, lambda: read.keys.nbytes + read.values.nbytes, lambda: rotated)}


def context_tokens(models: Models) -> torch.Tensor:
    """Real English for contexts: Python's own reference texts, repeated where they end."""
    text = "\n".join(topics.topics.values())
    ids = torch.tensor(models.load("embedded").tokenizer(text, verbose=False)["input_ids"])
    return ids.repeat(1 + max(LONG) // len(ids))


def reference(precision: str, eager: bool = False) -> PreTrainedModel:
    """An untouched transformers model."""
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    kernel = "eager" if eager else "sdpa"
    return AutoModelForCausalLM.from_pretrained(embedded.source(), dtype=dtype, attn_implementation=kernel).eval()


def forward_readers(model: PreTrainedModel) -> Readers:
    """One forward for each token that hands out all attentions and states, over a dynamic cache."""
    cache = DynamicCache(config=model.config)

    @torch.inference_mode()
    def step(ids: torch.Tensor) -> torch.Tensor:
        out = model(
            ids[None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
            output_attentions=True,
            output_hidden_states=True,
        )
        return out.logits[0, -1].float()

    return {"": Stepping(step, lambda: held(cache), cache.get_seq_length)}


def held(cache: DynamicCache) -> int:
    """Bytes of transformers' own keys and values."""
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)


def engine_readers(runner: Runner, policy: PositionPolicy) -> Readers:
    """What a run does to read and for each token, without and with probes."""
    return {"": engine_reader(runner, policy), ", probes": engine_reader(runner, policy, runner.probe(Watch()))}


def engine_cases(runner: Runner, room: int) -> list[Case]:
    """The engine without probes, under plain attention and under dynamic PIC, for `room` tokens."""
    return [
        _quiet("engine bf16", runner, Plain(), room),
        _quiet("engine bf16, dynamic PIC", runner, DYNAMIC, room),
    ]


def window_case(runner: Runner, window: int) -> Case:
    """The engine without probes under Λ with a window of so many tokens."""
    return _quiet(f"engine bf16, Λ {window}", runner, LambdaWindow(window=window, sinks=10, limit=window), ROOM)


def _quiet(name: str, runner: Runner, policy: PositionPolicy, room: int) -> Case:
    return Case(name, lambda: {"": engine_reader(runner, policy, room=room)}, runner)


def engine_reader(runner: Runner, policy: PositionPolicy, probe: Probe | None = None, room: int = ROOM) -> Reader:
    """One reader of the engine, with a fresh cache that has room for so many tokens before it grows."""
    cache = runner.cache(policy, room)

    def step(ids: torch.Tensor) -> torch.Tensor:
        chunks = [ids] if len(ids) <= FIRST_CHUNK else ids.split(CHUNK)
        for chunk in chunks:
            logits = runner.read(chunk, cache, probe)
            if probe is not None:
                _look(probe, cache, len(chunk))
        return logits

    seen = None if policy.window is None else policy.window + policy.sinks
    return Stepping(step, lambda: cache.bytes, lambda: cache.rotations, seen)


def _look(probe: Probe, cache: FramedCache, rows: int) -> None:
    """Take from a probe what a run takes: of a chunk's sampled rows, or of a token."""
    if rows > 1:
        probe.prefilled()
        probe.states(probe.sampled(rows))
        return
    probe.decoded()
    probe.states([-1])
    if cache.length % probe.watch.every == 0:
        probe.logits(cache, probe.watch.layer, probe.watch.head)


def weight_bytes(model: PreTrainedModel | Runner) -> int:
    """Bytes of weights that one token reads: all but the embedding table, plus the head where it is that table."""
    body, head = _numbers(model)
    if isinstance(model, PreTrainedModel):
        return (body + head) * model.dtype.itemsize
    per = {"bf16": 2.0, "fp32": 4.0, "int8": 1.0, "int4": 0.625}
    precision = model.capabilities.precision
    return int(body * per[precision] + head * per["int8" if precision == "int4" else precision])


def cache_bytes(read: Any, context: int, model: PreTrainedModel | Runner) -> int:
    """Bytes of keys and values that one token reads; read: has `seen`, as a Reader, or sees everything."""
    model, most = _of(model), getattr(read, "seen", None)
    config = model.config
    seen = context if most is None else min(context, most)
    return 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * seen * model.dtype.itemsize


def read_operations(most: int | None, context: int, model: PreTrainedModel | Runner) -> float:
    """Additions and multiplications of reading a context, for each of its tokens: two for every weight of the layers,
    and four for every number of a head and every token that is seen. most: tokens that a token sees (None: all)."""
    body, config = _numbers(model)[0], _of(model).config
    growing = context if most is None else min(context, most)
    seen = (growing * (growing + 1) / 2 + (context - growing) * growing) / context
    return 2 * body + 4 * config.num_hidden_layers * config.num_attention_heads * config.head_dim * seen


def _numbers(model: PreTrainedModel | Runner) -> tuple[int, int]:
    """Numbers of the layers, and of the head."""
    model = _of(model)
    table, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    untied = 0 if table is head else head.numel()
    return sum(p.numel() for p in model.parameters()) - table.numel() - untied, head.numel()


def _of(model: PreTrainedModel | Runner) -> PreTrainedModel:
    return model.model if isinstance(model, Runner) else model


def table(rows: list[dict[str, Any]]) -> str:
    """The rows of `Speed` as aligned text."""
    head = f"{'case':56} {'context':>8} {'prefill/s':>10} {'decode/s':>9} {'bandwidth':>9} {'product':>8} {'memory':>8}"
    lines = [
        f"{r['case']:56} {r['context']:8,} {r['prefill']:10,.0f} {r['decode']:9.1f} {r['bandwidth']:8.0%} "
        f"{_share(r['arithmetic'], '8.0%')} "
        f"{r['own_memory'] / 2**20:6,.0f} M {_cell(r['cache'], 2**20)} M {_cell(r['rotations'])} "
        f"{_share(r['gain'], '.2f')} {_share(r['cost'], '.1%')}"
        for r in rows
    ]
    return "\n".join([f"{head} {'cache':>8} {'rotated':>6} {'gain':>6} {'cost':>6}", *lines])


def _share(number: float | None, form: str) -> str:
    return f"{'–' if number is None else format(number, form):>6}"


def _cell(number: float | None, unit: int = 1) -> str:
    return f"{'–':>6}" if number is None else f"{number / unit:6,.0f}"


def measured(rows: Iterator[Speed], report: Callable[[str], None]) -> list[dict[str, Any]]:
    """The cases as they are kept; report is given each row as it comes."""
    found = []
    for row in rows:
        found.append(asdict(row))
        report(table(found[-1:]).splitlines()[1])
    return found


def begun(
    text: torch.Tensor, tokens: int, report: Callable[[str], None], device: torch.device = CPU
) -> tuple[Bench, dict[str, Any]]:
    """A bench on this machine, and the head of its result."""
    copy = copy_bandwidth(device)
    products = {dtype: product_rate(dtype, device) for dtype in (torch.bfloat16, torch.float32)}
    reached = {str(dtype).removeprefix("torch."): rate for dtype, rate in products.items()}
    speeds = ", ".join(f"{rate / 1e9:.0f} billion in {name}" for name, rate in reached.items())
    report(f"copy bandwidth {copy / 1e9:.1f} GB/s read and written; operations/s: {speeds}\n{table([])}")
    head = provenance(seed=0) | {"copy_bytes_per_second": copy, "operations_per_second": reached}
    return Bench(text, copy, products, tokens), head | {"tokens_written": tokens}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m backend.evaluation.speed", description="Speed at long contexts.")
    parser.add_argument("--tokens", type=int, default=32, help="tokens written in a round (default 32)")
    parser.add_argument("--contexts", type=int, nargs="+", default=LONG, help="tokens of context (4096 … 131072)")
    parser.add_argument("--windows", type=int, nargs="+", default=WINDOWS, help="Λ windows (1024 2048 4096)")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    writable(given.out)
    models = Models(["embedded"])
    bench, result = begun(context_tokens(models), given.tokens, say)
    result["long"] = []
    for row in long_cases(models, bench, given.contexts, given.windows):
        result["long"] += measured(iter([row]), say)
        keep(given.out, result)


if __name__ == "__main__":
    main()
