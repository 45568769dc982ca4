"""004's algorithm 1, which the benches measure: the same attention as this engine's dynamic PIC."""

import numpy as np
import pytest
import torch

from backend.evaluation.bench.algorithm1 import Algorithm1, position_ids
from backend.inference.model_runner import Runner
from backend.models.capabilities import describe
from backend.models.pool import Loaded
from backend.positions import Policy
from tests.conftest import tiny_model, tiny_tokenizer

DYNAMIC = Policy(kind="dynamic", ratio=4.0, initial=4, recent=16)
IDS = torch.randint(3, 90, (60,), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("tokens", [1, 4, 19, 21, 60])
def test_distances_are_those_that_the_policy_perceives(tokens):
    ids, last = position_ids(tokens, DYNAMIC), tokens - 1
    perceived = np.full(tokens, np.nan)
    for lo, hi, group in DYNAMIC.segments(last):
        keys = np.arange(lo, hi)
        perceived[keys] = DYNAMIC.query_frame(last, group) - DYNAMIC.key_frame(keys, group)
    assert np.allclose(ids[-1] - ids, perceived)


def test_its_logits_are_the_engines():
    model = tiny_model("llama").float()
    runner = Runner(Loaded(model, tiny_tokenizer(), describe("tiny", model, "fp32")), exact=True)
    slow, cache = Algorithm1(tiny_model("llama").float(), DYNAMIC, 64), runner.cache(DYNAMIC, 64)
    for token in IDS:
        expected, found = runner.read(token[None], cache), slow(token[None])
    assert (expected - found).abs().max() < 1e-4
    whole = Algorithm1(tiny_model("llama").float(), DYNAMIC, 64)(IDS)
    cache = runner.cache(DYNAMIC, 64)
    assert (runner.read(IDS, cache, whole_prompt=True) - whole).abs().max() < 1e-4
