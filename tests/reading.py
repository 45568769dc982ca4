"""Reading token ids through a Runner, in pieces of any size."""
from __future__ import annotations

from collections.abc import Sequence

import torch
from conftest import tiny_tokenizer
from torch import Tensor
from transformers import PreTrainedModel

from backend.inference.kv_cache import FramedCache
from backend.inference.model_runner import Runner
from backend.inference.probes import Probe
from backend.models.capabilities import describe
from backend.models.pool import Loaded
from backend.positions import policy_of
from backend.settings import RunSettings

# Tokens without a visible pattern, ends not among them.
IDS = torch.randint(3, 100, (40,), generator=torch.Generator().manual_seed(5))


def loaded(model: PreTrainedModel, precision: str = "fp32") -> Loaded:
    """A model made here, as the lab would hand it out."""
    return Loaded(model, tiny_tokenizer(), describe("tiny", model, precision))


def run(model: PreTrainedModel, exact: bool = False) -> Runner:
    """A runner for a model made here."""
    return Runner(loaded(model), exact)


def rows(
    runner: Runner,
    asked: RunSettings,
    ids: Tensor = IDS,
    chunks: Sequence[int] = (),
    cache: FramedCache | None = None,
    probe: Probe | None = None,
    whole_prompt: bool = False,
) -> Tensor:
    """Logits [n, vocabulary] of all rows: `chunks` of these sizes, the rest one by one."""
    cache = cache or runner.cache(policy_of(asked), 16)
    parts = torch.split(ids, [*chunks, *[1] * (len(ids) - sum(chunks))])
    return torch.cat(
        [runner.read(part, cache, probe, None, whole_prompt and i == 0, True) for i, part in enumerate(parts)]
    )


def greedy(runner: Runner, asked: RunSettings, prompt: Tensor, tokens: int, probe: Probe | None = None) -> list[int]:
    """The tokens that follow a prompt, each the likeliest."""
    cache = runner.cache(policy_of(asked), len(prompt) + tokens)
    found = [int(runner.read(prompt, cache, probe).argmax())]
    while len(found) < tokens:
        found.append(int(runner.read(torch.tensor(found[-1:]), cache, probe).argmax()))
    return found
