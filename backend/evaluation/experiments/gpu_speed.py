"""Speed of models of seven and eight billion weights, drawn at random: what is read and multiplied is the same.

    python -m backend evaluate gpu_speed

It takes the first GPU; without one it runs on the CPU, where `--shape smollm2-135m` fits. Ways of `varlen` are the
engine with torch's variable-length attention, as LENGTH_LAB_VARLEN=1 has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from pydantic import Field
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, PreTrainedModel

from backend.evaluation.bench.throughput import rate_tables
from backend.evaluation.bench.timing import (
    Bench,
    Case,
    Generating,
    Readers,
    Speed,
    Stepping,
    begun,
    cache_bytes,
    held,
    reported,
)
from backend.evaluation.bench.ways import algorithm1_case, engine_cases, window_case
from backend.evaluation.card import Card
from backend.evaluation.experiment import Experiment, Flags, Result, Results, Say, chosen
from backend.inference.chunks import CHUNK
from backend.inference.model_runner import Runner
from backend.models.capabilities import describe
from backend.models.pool import Loaded
from backend.record.provenance import CPU, memory
from backend.refused import Refused

CONTEXTS = (32768, 131072)
WINDOWS = (2048, 4096)
WAYS = ("eager", "plain", "dynamic", "algorithm1", "window", "varlen", "varlen_dynamic", "varlen_window")
LARGE = ("llama-3.1-8b", "llama-2-7b")
# Of the device's memory, for weights and for the caches of two ways that are compared; the rest is for scores.
SHARE = 0.8
# Caches that one takes which grows a layer at a time.
GROWN = 1.1
_LLAMA: dict[str, Any] = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 131072,
}
# Keys and values of 8, of 32 and of 3 heads.
SHAPES: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": _LLAMA | {"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256},
    "llama-2-7b": _LLAMA | {"num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 32000},
    "smollm2-135m": {
        "hidden_size": 576,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "intermediate_size": 1536,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    },
}


def shaped(shape: str, kernel: str) -> PreTrainedModel:
    """A bf16 model of a shape, with random weights. kernel: 'sdpa' (flash attention on a GPU) or 'eager'."""
    config = LlamaConfig(**SHAPES[shape])
    made = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation=kernel)
    return made.eval().requires_grad_(False)


def sharing(model: PreTrainedModel, shape: str, kernel: str) -> PreTrainedModel:
    """Another one, of the same weights in memory."""
    with torch.device("meta"):
        made = shaped(shape, kernel)
    made.load_state_dict(model.state_dict(), assign=True)
    made.tie_weights()
    made.base_model.rotary_emb = model.base_model.rotary_emb
    return made


def eager_readers(model: PreTrainedModel) -> Readers:
    """transformers with a chunk's scores at once: those of a whole long context have no room."""
    cache = DynamicCache(config=model.config)

    @torch.inference_mode()
    def step(ids: torch.Tensor) -> torch.Tensor:
        for chunk in ids.to(model.device).split(CHUNK):
            logits = model(chunk[None], past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        return logits[0, -1]

    return {"": Stepping(step, lambda: held(cache), cache.get_seq_length)}


def cases(
    shape: str,
    device: torch.device,
    bench: Bench,
    contexts: Sequence[int],
    windows: Sequence[int],
    report: Say,
    asked: Sequence[str] = WAYS,
) -> Iterator[Speed]:
    """Each way by turns with transformers and its flash attention, or, where the caches of both do not fit, alone; left
    out where not even that fits, which is reported. Of transformers' own rows of a context the last counts, when the
    GPU is warm."""
    with device:
        model = shaped(shape, "sdpa")
    flash, eager = (sharing(model, shape, kernel) for kernel in ("sdpa", "eager"))
    loaded = Loaded(model, cast(Any, None), describe(shape, model, "bf16"))
    runners = {name: Runner(loaded, varlen=bool(name)) for name in ("", "varlen_")}
    left = SHARE * memory(device) - sum(weight.nbytes for weight in model.parameters())
    for n in contexts:
        room = bench.room(n)
        by_chunks = Case("eager attention of transformers, by chunks", lambda: eager_readers(eager), eager)
        ways = {"eager": [(by_chunks, 2.0)], "algorithm1": [(algorithm1_case(flash, room), GROWN)]}
        for name, runner in runners.items():
            plain, dynamic = engine_cases(runner, room)
            ways[name.rstrip("_") or "plain"] = [(plain, 1.0)]
            ways[name + "dynamic"] = [(dynamic, 1.5)]
            ways[name + "window"] = [(window_case(runner, window), 0.0) for window in windows]
        theirs = Case("transformers bf16", lambda: {"": Generating(flash)}, flash)
        wanted = [way for name in asked for way in ways[name]]
        yield from _fitting(bench, n, theirs, wanted, left / cache_bytes(None, n, model), report)


def _fitting(
    bench: Bench,
    context: int,
    theirs: Case,
    ways: Sequence[tuple[Case, float]],
    room: float,
    report: Say,
) -> Iterator[Speed]:
    """ways: with the caches that each takes, as `room` counts them: of keys and values that lie there once."""
    beside = False
    for case, takes in ways:
        if GROWN + takes <= room:
            flash, row = bench.compare(context, [theirs, case])
            beside = True
            yield row
            yield flash
        elif takes <= room:
            yield from bench.compare(context, [case])
        else:
            report(f"{case.name} after {context:,} tokens: left out, its cache has no room on this machine")
    if not beside:
        report(f"{theirs.name} after {context:,} tokens: left out, its cache has no room on this machine")


class GpuSpeed(Experiment):
    name = "gpu_speed"
    title = "Speed on a GPU, random weights"
    question = "How fast do large models read and write on a GPU?"
    order = 97
    files = ("bench_gpu.json",)
    command = "make bench-gpu"

    class Options(Flags):
        shape: tuple[str, ...] = Field((), description=f"{', '.join(SHAPES)}; without: {' and '.join(LARGE)}, on a GPU")
        tokens: int = Field(64, ge=1, description="tokens written in a round")
        contexts: tuple[int, ...] = Field(CONTEXTS, description="tokens of context")
        windows: tuple[int, ...] = Field(WINDOWS, description="Λ windows")
        ways: tuple[str, ...] = Field((), description=f"of {', '.join(WAYS)}, in this order; without: all")

    def measure(self, options: Options, before: Result | None, say: Say) -> Iterator[dict[str, Any]]:
        device = torch.device("cuda", 0) if torch.cuda.is_available() else CPU
        if device is CPU and not options.shape:
            raise Refused("PyTorch sees no GPU: name a shape that the CPU can bear, --shape smollm2-135m")
        asked = chosen(options.shape, SHAPES) if options.shape else LARGE
        ways = chosen(options.ways, WAYS)
        text = torch.randint(1, 32000, (max(options.contexts),), generator=torch.Generator().manual_seed(0))
        bench, head = begun(text, options.tokens, say, device)
        shapes: dict[str, list[dict[str, Any]]] = {}
        for shape in asked:
            kept: dict[tuple[int, str], dict[str, Any]] = {}
            for row in cases(shape, device, bench, options.contexts, options.windows, say, ways):
                kept.pop((row.context, row.case), None)
                kept[row.context, row.case] = reported(row, say)
                shapes[shape] = list(kept.values())
                yield head | {"shapes": shapes}

    def card(self, results: Results) -> Card:
        (result,) = results.values()
        return Card("\n\n".join(f"{shape}:\n\n{rate_tables(rates)}" for shape, rates in result["shapes"].items()))
