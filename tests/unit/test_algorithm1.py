"""004's algorithm 1, which the benches measure: the same attention as this engine's dynamic PIC."""

import torch

from backend.evaluation.bench.algorithm1 import Algorithm1
from backend.inference.model_runner import Runner
from backend.models.capabilities import describe
from backend.models.pool import Loaded
from backend.positions.dynamic_pic import DynamicPic
from tests.conftest import tiny_model, tiny_tokenizer

DYNAMIC = DynamicPic(4.0, 4, 16)
IDS = torch.randint(3, 90, (60,), generator=torch.Generator().manual_seed(5))


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
