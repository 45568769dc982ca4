"""Speed of models of seven and eight billion weights, drawn at random: what is read and multiplied is the same.

`python -m backend.evaluation.gpu` takes the first GPU and writes assets/results/bench_gpu.json; without one it runs on
the CPU, where `--shape smollm2-135m` fits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, PreTrainedModel

from backend.evaluation.speed import (
    Bench,
    Case,
    Generating,
    Readers,
    Speed,
    Stepping,
    algorithm1_case,
    begun,
    cache_bytes,
    engine_cases,
    held,
    measured,
    window_case,
)
from backend.inference.chunks import CHUNK
from backend.inference.model_runner import Runner
from backend.models.capabilities import describe
from backend.models.pool import Loaded
from backend.record.provenance import CPU, memory
from backend.record.results import RESULTS, keep, writable
from backend.terminal import say

OUT = RESULTS / "bench_gpu.json"
CONTEXTS = (32768, 131072)
WINDOWS = (2048, 4096)
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
    report: Callable[[str], None] = say,
) -> Iterator[Speed]:
    """Each way by turns with transformers and its flash attention, or, where the caches of both do not fit, alone; left
    out where not even that fits, which is reported. Of transformers' own rows the last of a context, when the GPU is
    warm."""
    with device:
        model = shaped(shape, "sdpa")
    flash, eager = (sharing(model, shape, kernel) for kernel in ("sdpa", "eager"))
    runner = Runner(Loaded(model, cast(Any, None), describe(shape, model, "bf16")))
    left = SHARE * memory(device) - sum(weight.nbytes for weight in model.parameters())
    for n in contexts:
        room = bench.room(n)
        plain, dynamic = engine_cases(runner, room)
        ways = [
            (Case("eager attention of transformers, by chunks", lambda: eager_readers(eager), eager), 2.0),
            (plain, 1.0),
            (dynamic, 1.5),
            (algorithm1_case(flash, room), GROWN),
            *((window_case(runner, window), 0.0) for window in windows),
        ]
        theirs = Case("transformers bf16", lambda: {"": Generating(flash)}, flash)
        yield from _fitting(bench, n, theirs, ways, left / cache_bytes(None, n, runner), report)


def _fitting(
    bench: Bench,
    context: int,
    theirs: Case,
    ways: Sequence[tuple[Case, float]],
    room: float,
    report: Callable[[str], None],
) -> Iterator[Speed]:
    """ways: with the caches that each takes, as `room` counts them: of keys and values that lie there once."""
    flash = None
    for case, takes in ways:
        if GROWN + takes <= room:
            flash, row = bench.compare(context, [theirs, case])
        elif takes <= room:
            (row,) = bench.compare(context, [case])
        else:
            report(f"{case.name} after {context:,} tokens: left out, its cache has no room on this machine")
            continue
        yield row
    if flash is None:
        report(f"{theirs.name} after {context:,} tokens: left out, its cache has no room on this machine")
    else:
        yield flash


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m backend.evaluation.gpu", description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, nargs="+", help="llama-3.1-8b llama-2-7b (on a GPU)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens written in a round (default 64)")
    parser.add_argument("--contexts", type=int, nargs="+", default=CONTEXTS, help="tokens of context (32768 131072)")
    parser.add_argument("--windows", type=int, nargs="+", default=WINDOWS, help="Λ windows (2048 4096)")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    device = torch.device("cuda", 0) if torch.cuda.is_available() else CPU
    if device is CPU and not given.shape:
        sys.exit("PyTorch sees no GPU: name a shape that the CPU can bear, --shape smollm2-135m")
    writable(given.out)
    text = torch.randint(1, 32000, (max(given.contexts),), generator=torch.Generator().manual_seed(0))
    bench, result = begun(text, given.tokens, say, device)
    shapes = result["shapes"] = {}
    for shape in given.shape or LARGE:
        for row in cases(shape, device, bench, given.contexts, given.windows):
            shapes.setdefault(shape, []).extend(measured(iter([row]), say))
            keep(given.out, result)


if __name__ == "__main__":
    main()
