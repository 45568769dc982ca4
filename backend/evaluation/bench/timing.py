"""How fast ways of reading and writing are, timed by turns in one process on this machine.

All ways that are compared read the same tokens and then write by turns, greedily and without stopping at EOS, so that a
round meets the machine alike for all of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import torch
from transformers import DynamicCache, PreTrainedModel

from backend.evaluation.experiment import Row, Say
from backend.inference.model_runner import Runner
from backend.record.provenance import CPU, PeakMemory, clock, copy_bandwidth, product_rate

# Fresh readings of a context, and rounds of writing after each: up to SOON tokens, and beyond, where reading is slow.
SOON = 2048
NEAR, FAR = (3, 2), (1, 4)
# Tokens written before a clock runs, and by whoever needs a good part of a second for each.
WARM, FEW = 3, 8
TRIAL = 64


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


def held(cache: DynamicCache) -> int:
    """Bytes of transformers' own keys and values."""
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)


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


def reported(row: Speed, say: Say) -> Row:
    """A case as it is kept; it is said as it comes."""
    say(f"{row.case}, {row.context:,} tokens: {row.prefill:,.0f} read and {row.decode:.1f} written a second")
    return asdict(row)


def begun(
    text: torch.Tensor, tokens: int, say: Say, device: torch.device = CPU
) -> tuple[Bench, dict[str, Any]]:
    """A bench on this machine, and the head of its result."""
    copy = copy_bandwidth(device)
    products = {dtype: product_rate(dtype, device) for dtype in (torch.bfloat16, torch.float32)}
    reached = {str(dtype).removeprefix("torch."): rate for dtype, rate in products.items()}
    speeds = ", ".join(f"{rate / 1e9:.0f} billion in {name}" for name, rate in reached.items())
    say(f"copy bandwidth {copy / 1e9:.1f} GB/s read and written; operations/s: {speeds}")
    head = {"copy_bytes_per_second": copy, "operations_per_second": reached}
    return Bench(text, copy, products, tokens), head | {"tokens_written": tokens}
