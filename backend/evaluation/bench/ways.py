"""Ways of reading and writing that are timed: of the engine under its policies, and of transformers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pydoc_data import topics
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedConfig, PreTrainedModel

from backend.evaluation.bench.algorithm1 import Algorithm1
from backend.evaluation.bench.timing import (
    FEW,
    SOON,
    TRIAL,
    Bench,
    Case,
    Generating,
    Reader,
    Readers,
    Speed,
    Stepping,
    held,
)
from backend.inference.chunks import FIRST_CHUNK
from backend.inference.kv_cache import FramedCache
from backend.inference.model_runner import Runner
from backend.inference.probes import Probe
from backend.models import embedded
from backend.models.pool import Models
from backend.positions import LambdaWindow, Plain, PositionPolicy
from backend.positions.dynamic_pic import DynamicPic
from backend.settings import Watch

CONTEXTS = (128, 2048, 8192)
LONG = (4096, 8192, 16384, 32768, 65536, 131072)
# Where those stop whose time is quadratic: ways of reading that look at everything.
LONGEST = {"transformers": 32768, "engine": 32768, "dynamic": 16384, "algorithm 1": 8192}
WINDOWS = (1024, 2048, 4096)
DYNAMIC = DynamicPic(ratio=4.0)
# Tokens that a cache of the engine has room for at first; one with a window needs no more.
ROOM = 256
SEEING = "transformers bf16, forward with attentions and states"
# Bytes of attentions beyond which that is left out.
ATTENTIONS = 15e9


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


def engine_readers(runner: Runner, policy: PositionPolicy) -> Readers:
    """What a run does to read and for each token, without and with probes."""
    return {"": engine_reader(runner, policy), ", probes": engine_reader(runner, policy, runner.probe(Watch()))}


def engine_cases(runner: Runner, room: int) -> list[Case]:
    """The engine without probes, under plain attention and under dynamic PIC, for `room` tokens."""
    return [
        _quiet("", runner, Plain(), room),
        _quiet(", dynamic PIC", runner, DYNAMIC, room),
    ]


def window_case(runner: Runner, window: int) -> Case:
    """The engine without probes under Λ with a window of so many tokens."""
    return _quiet(f", Λ {window}", runner, LambdaWindow(window=window, sinks=10, limit=window), ROOM)


def _quiet(what: str, runner: Runner, policy: PositionPolicy, room: int) -> Case:
    name = "engine bf16, variable-length attention" if runner.varlen else "engine bf16"
    return Case(name + what, lambda: {"": engine_reader(runner, policy, room=room)}, runner)


def engine_reader(runner: Runner, policy: PositionPolicy, probe: Probe | None = None, room: int = ROOM) -> Reader:
    """One reader of the engine, with a fresh cache that has room for so many tokens before it grows."""
    cache = runner.cache(policy, room)

    def step(ids: torch.Tensor) -> torch.Tensor:
        chunks = [ids] if len(ids) <= FIRST_CHUNK else ids.split(runner.chunk)
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
