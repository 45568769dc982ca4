"""Decode and prefill speed of the engine beside transformers', in one process on this machine.

Every case reads the same tokens and then writes the same number, greedily and without stopping at the end mark.
`make bench` runs this and the page on top (app.bench) and writes assets/results/bench.json; `make bench-long` runs the
long contexts and writes assets/results/bench_long.json.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from pydoc_data import topics
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel

from backend import embedded
from backend.engine import CHUNK, FIRST_CHUNK
from backend.evaluation.algorithm1 import Algorithm1
from backend.evaluation.files import keep, writable
from backend.evaluation.machine import PeakMemory, copy_bandwidth, provenance
from backend.models import Models
from backend.positions import Policy
from backend.runner import Runner
from backend.settings import Watch
from backend.terminal import say

OUT = Path(__file__).parents[2] / "assets" / "results" / "bench_long.json"
CONTEXTS = (128, 2048, 8192)
LONG = (4096, 8192, 16384, 32768, 65536, 131072)
# Where those stop whose time is quadratic: ways of reading that look at everything.
LONGEST = {"transformers": 32768, "engine": 32768, "dynamic": 16384, "algorithm 1": 8192}
WINDOWS = (1024, 2048, 4096)
# Of which medians are taken: stretches written after a context, and fresh readings of it where it is no longer than
# SOON, since far longer ones take minutes.
STRETCHES, READINGS, SOON = 3, 3, 8192
WARM = 3


@dataclass(frozen=True)
class Speed:
    """One case. tokens/s of prefill and decode; bytes of weights and cache that one decoded token reads;
    bandwidth: of those bytes per second over the measured copy bandwidth; memory: peak resident bytes of the process,
    which keeps some of what earlier cases took; cache: bytes of keys and values held after the context; rotations: of
    keys for a decoded token, in each layer (None: not counted)."""

    case: str
    context: int
    prefill: float
    decode: float
    token_bytes: int
    bandwidth: float
    memory: int
    cache: int | None = None
    rotations: float | None = None


@dataclass(frozen=True)
class Reader:
    """One way of reading, with a cache of its own. step: ids [n] to the logits [vocabulary] after the last of them;
    held: bytes of keys and values; rotations: of keys so far, in each layer; seen: most tokens that a token sees."""

    step: Callable[[torch.Tensor], torch.Tensor]
    held: Callable[[], int]
    rotations: Callable[[], int]
    seen: int | None = None


Readers = dict[str, Reader]


@dataclass(frozen=True)
class Bench:
    """What all cases share. text: token ids; copy: bytes/s of a large copy; tokens: written in each case."""

    text: torch.Tensor
    copy: float
    tokens: int

    def case(
        self, name: str, context: int, make: Callable[[], Readers], model: PreTrainedModel | Runner
    ) -> list[Speed]:
        """Medians over readings; each reader writes after the first has read."""
        prefills, decodes = [], []
        with PeakMemory() as peak:
            for _ in range(READINGS if context <= SOON else 1):
                readers = make()
                first = next(iter(readers.values()))
                started = time.perf_counter()
                token = first.step(self.text[:context]).argmax()
                prefills.append(context / (time.perf_counter() - started))
                held, before = first.held(), first.rotations()
                decodes.append([self._write(read, token) for read in readers.values()])
                rotations = (first.rotations() - before) / (len(readers) * (WARM + STRETCHES * self.tokens))
        moved = weight_bytes(model) + cache_bytes(first, context, model)
        prefill, rates = statistics.median(prefills), map(statistics.median, zip(*decodes, strict=True))
        return [
            Speed(name + way, context, prefill, rate, moved, moved * rate / self.copy, peak.bytes, held, rotations)
            for way, rate in zip(readers, rates, strict=True)
        ]

    def _write(self, read: Reader, token: torch.Tensor) -> float:
        """Tokens/s of greedy writing, the median of stretches after some tokens to warm up."""
        rates = []
        for count in (WARM, *[self.tokens] * STRETCHES):
            started = time.perf_counter()
            for _ in range(count):
                token = read.step(token[None]).argmax()
            rates.append(count / (time.perf_counter() - started))
        return statistics.median(rates[1:])


def cases(models: Models, bench: Bench, contexts: tuple[int, ...] = CONTEXTS) -> Iterator[Speed]:
    """The table of short contexts."""
    for precision in ("bf16", "fp32"):
        model = reference(precision)
        for n in contexts if precision == "bf16" else contexts[:2]:
            yield from bench.case(f"transformers {precision}", n, partial(transformers_readers, model), model)
    seeing = reference("bf16", eager=True)
    for n in contexts[:2]:
        name = "transformers bf16, attentions and states"
        yield from bench.case(name, n, partial(transformers_readers, seeing, seeing=True), seeing)
    for precision in ("bf16", "fp32", "int8", "int4"):
        runner = Runner(models.load("embedded", precision))
        for n in contexts if precision in ("bf16", "int4") else contexts[:2]:
            yield from bench.case(f"engine {precision}", n, partial(engine_readers, runner, Policy()), runner)
        del runner
        gc.collect()


def long_cases(
    models: Models, bench: Bench, contexts: Sequence[int] = LONG, windows: Sequence[int] = WINDOWS
) -> Iterator[Speed]:
    """At long contexts in bf16: plain attention of transformers and of the engine, Λ, and dynamic PIC both ways."""
    model, runner = reference("bf16"), Runner(models.load("embedded", "bf16"))
    named = {f"Λ {n}": Policy(window=n, sinks=10, limit=n) for n in windows}
    dynamic = Policy(kind="dynamic", ratio=4.0)
    for n in contexts:
        for name, policy in named.items():
            yield from bench.case(f"engine bf16, {name}", n, partial(engine_readers, runner, policy), runner)
        if n <= LONGEST["engine"]:
            yield from bench.case("engine bf16", n, partial(engine_readers, runner, Policy()), runner)
        if n <= LONGEST["dynamic"]:
            yield from bench.case("engine bf16, dynamic PIC", n, partial(engine_readers, runner, dynamic), runner)
        if n <= LONGEST["algorithm 1"]:
            again = partial(algorithm1_readers, model, dynamic, n + WARM + STRETCHES * bench.tokens)
            yield from bench.case("dynamic PIC by 004's algorithm 1", n, again, model)
        if n <= LONGEST["transformers"]:
            yield from bench.case("transformers bf16", n, partial(transformers_readers, model), model)


def algorithm1_readers(model: PreTrainedModel, policy: Policy, room: int) -> Readers:
    """004's own dynamic PIC."""
    read, rotated = Algorithm1(model, policy, room), 0

    def step(ids: torch.Tensor) -> torch.Tensor:
        nonlocal rotated
        logits = read(ids)
        rotated += read.length
        return logits

    return {"": Reader(step, lambda: read.keys.nbytes + read.values.nbytes, lambda: rotated)}


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


def transformers_readers(model: PreTrainedModel, seeing: bool = False) -> Readers:
    """What `generate` does for each token: one forward over its dynamic cache, then the last row's logits."""
    cache = DynamicCache(config=model.config)

    @torch.inference_mode()
    def step(ids: torch.Tensor) -> torch.Tensor:
        out = model(
            ids[None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
            output_attentions=seeing,
            output_hidden_states=seeing,
        )
        return out.logits[0, -1].float()

    def held() -> int:
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)

    return {"": Reader(step, held, cache.get_seq_length)}


def engine_readers(runner: Runner, policy: Policy) -> Readers:
    """What a run does for each token; with probes: entropies and states each time, logits every fourth."""
    cache = runner.cache(policy, 256)
    probe = runner.probe(Watch())

    def step(ids: torch.Tensor) -> torch.Tensor:
        chunks = [ids] if len(ids) <= FIRST_CHUNK else ids.split(CHUNK)
        for chunk in chunks:
            logits = runner.read(chunk, cache)
        return logits

    def step_and_look(ids: torch.Tensor) -> torch.Tensor:
        logits = runner.read(ids, cache, probe)
        probe.decoded()
        probe.states([-1])
        if cache.length % 4 == 0:
            probe.logits(cache, 0, 0)
        return logits

    seen = None if policy.window is None else policy.window + policy.sinks
    return {
        way: Reader(read, lambda: cache.bytes, lambda: cache.rotations, seen)
        for way, read in (("", step), (", probes", step_and_look))
    }


def weight_bytes(model: PreTrainedModel | Runner) -> int:
    """Bytes of weights that one token reads: all but the embedding table, plus the head where it is that table."""
    if isinstance(model, Runner):
        per = {"bf16": 2.0, "fp32": 4.0, "int8": 1.0, "int4": 0.625}
        precision, model = model.capabilities.precision, model.model
        head = model.get_output_embeddings().weight.numel()
        body = sum(p.numel() for p in model.parameters()) - model.get_input_embeddings().weight.numel()
        body -= 0 if model.config.tie_word_embeddings else head
        return int(body * per[precision] + head * per["int8" if precision == "int4" else precision])
    return sum(p.numel() * p.element_size() for p in model.parameters())


def cache_bytes(read: Any, context: int, model: PreTrainedModel | Runner) -> int:
    """Bytes of keys and values that one token reads; read: a Reader, or another's server, which sees everything."""
    model = model.model if isinstance(model, Runner) else model
    config, most = model.config, getattr(read, "seen", None)
    seen = context if most is None else min(context, most)
    return 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * seen * model.dtype.itemsize


def table(rows: list[dict[str, Any]]) -> str:
    """The rows of `Speed` as aligned text."""
    head = f"{'case':44} {'context':>8} {'prefill/s':>10} {'decode/s':>9} {'bandwidth':>9} {'memory':>8}"
    lines = [
        f"{r['case']:44} {r['context']:8,} {r['prefill']:10,.0f} {r['decode']:9.1f} {r['bandwidth']:8.0%} "
        f"{r['memory'] / 2**20:6,.0f} M {_cell(r['cache'], 2**20)} M {_cell(r['rotations'])}"
        for r in rows
    ]
    return "\n".join([f"{head} {'cache':>8} {'rotations':>8}", *lines])


def _cell(number: float | None, unit: int = 1) -> str:
    return f"{'–':>6}" if number is None else f"{number / unit:6,.0f}"


def measured(rows: Iterator[Speed], report: Callable[[str], None]) -> list[dict[str, Any]]:
    """The cases as they are kept; report is told each row as it comes."""
    found = []
    for row in rows:
        found.append(asdict(row))
        report(table(found[-1:]).splitlines()[1])
    return found


def begun(models: Models, tokens: int, report: Callable[[str], None]) -> tuple[Bench, dict[str, Any]]:
    """A bench on this machine, and the head of its result."""
    copy = copy_bandwidth()
    report(f"copy bandwidth {copy / 1e9:.1f} GB/s read and written\n{table([])}")
    head = provenance(seed=0) | {"copy_bytes_per_second": copy, "tokens_written": tokens}
    return Bench(context_tokens(models), copy, tokens), head


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m backend.evaluation.speed", description="Speed at long contexts.")
    parser.add_argument("--tokens", type=int, default=32, help="tokens written in each case (default 32)")
    parser.add_argument("--contexts", type=int, nargs="+", default=LONG, help="tokens of context (4096 … 131072)")
    parser.add_argument("--windows", type=int, nargs="+", default=WINDOWS, help="Λ windows (1024 2048 4096)")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    writable(given.out)
    models = Models(["embedded"])
    bench, result = begun(models, given.tokens, say)
    result["long"] = []
    for row in long_cases(models, bench, given.contexts, given.windows):
        result["long"] += measured(iter([row]), say)
        keep(given.out, result)


if __name__ == "__main__":
    main()
