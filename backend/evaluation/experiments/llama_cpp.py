"""llama.cpp on the embedded model's own Q4_1 file beside the engine, in one process.

    python -m backend evaluate llama_cpp

llama.cpp is taken from the wheel of xllamacpp, which is compiled for processors with AVX2; one compiled for the
processor at hand may be faster.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from backend.evaluation.bench.throughput import throughput
from backend.evaluation.bench.timing import Bench, Case, Speed, begun, cache_bytes, reported
from backend.evaluation.bench.ways import context_tokens, engine_readers
from backend.evaluation.card import Card
from backend.evaluation.experiment import Experiment, Flags, Result, Results, Say
from backend.inference.model_runner import Runner
from backend.models import embedded
from backend.models.pool import Models
from backend.positions import Plain
from backend.record.provenance import PeakMemory

CONTEXTS = (128, 2048)
REPEATS = 3


def server(gguf: Path, room: int) -> Any:
    """llama.cpp's server over a file, for one request of at most `room` tokens, with torch's number of threads.

    ModuleNotFoundError where xllamacpp is not installed.
    """
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = str(gguf), room, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = torch.get_num_threads()
    params.verbosity = -1
    return xllamacpp.Server(params)


def speed(server: Any, gguf: Path, bench: Bench, context: int, same: Runner) -> Speed:
    """Medians of greedy writing after a context of the bench's text, by llama.cpp's own clock, the first left out.

    same: the model in bf16.
    """
    request = {
        "prompt": bench.text[:context].tolist(),
        "n_predict": bench.tokens,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": False,
    }
    with PeakMemory() as peak:
        timings = [server.handle_completions(request)["timings"] for _ in range(1 + REPEATS)][1:]
    prefill, decode = (statistics.median(t[f"{name}_per_second"] for t in timings) for name in ("prompt", "predicted"))
    # llama.cpp keeps keys and values in half precision, which takes as much as bf16.
    moved = gguf.stat().st_size + cache_bytes(server, context, same)
    return Speed("llama.cpp Q4_1", context, prefill, decode, moved, moved * decode / bench.copy, peak.bytes)


def cases(models: Models, gguf: Path, bench: Bench) -> Iterator[Speed]:
    """llama.cpp and the engine by turns."""
    runners = {precision: Runner(models.load("embedded", precision)) for precision in ("int4", "bf16")}
    theirs = server(gguf, max(CONTEXTS) + 2 * bench.tokens)
    for context in CONTEXTS:
        yield speed(theirs, gguf, bench, context, runners["bf16"])
        for precision, runner in runners.items():
            case = Case(f"engine {precision}", partial(engine_readers, runner, Plain()), runner)
            yield from bench.compare(context, [case])


class LlamaCpp(Experiment):
    name = "llama_cpp"
    title = "Speed beside llama.cpp"
    question = "How fast does the engine write beside llama.cpp, on the same weights?"
    order = 61
    files = ("bench_llama_cpp.json",)
    command = "make bench-llama"
    needs = ("xllamacpp",)

    class Options(Flags):
        tokens: int = Field(64, ge=1, description="tokens written in each case")

    def measure(self, options: Options, before: Result | None, say: Say) -> Iterator[dict[str, Any]]:
        models = Models(["embedded"])
        with tempfile.TemporaryDirectory() as work:
            gguf = embedded.original(Path(work))
            bench, head = begun(context_tokens(models), options.tokens, say)
            yield head | {"short": [reported(row, say) for row in cases(models, gguf, bench)]}

    def card(self, results: Results) -> Card:
        return Card(throughput(results))
