"""Attention of PIC-SFT: with segments of one token it is decoding's own, and gradients reach what they should."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backend.inference.attach import attach
from backend.inference.attention import framed
from backend.inference.model_runner import Runner
from backend.models.capabilities import describe
from backend.models.pool import Loaded
from backend.positions import Plain, PositionPolicy, policy_of
from backend.positions.dynamic_pic import DynamicPic
from backend.positions.rope import Rope
from backend.training.segments import Segmented, segments
from tests.policies import PIC, asking


def trained_logits(model, ids: torch.Tensor, policy: PositionPolicy, segment: int) -> torch.Tensor:
    """[n, vocabulary] as training sees them."""
    with framed(Segmented(policy, policy.rope(model.config), segment)):
        return model(ids[None], use_cache=False).logits[0]


def decoded_logits(run: Runner, ids: torch.Tensor, policy: PositionPolicy) -> torch.Tensor:
    """[n, vocabulary] of the engine, each row in its own frames."""
    return run.read(ids, run.cache(policy, len(ids)), every_row=True)


@given(st.integers(1, 200), st.integers(1, 60))
def test_segments_cover_a_text_from_its_end_backwards(n, size):
    found = list(segments(n, size))
    assert found[0][0] == 0 and found[-1][1] == n
    assert all(end == first for (_, end), (first, _) in pairwise(found))
    assert all(end - first == size for first, end in found[1:]) and 0 < found[0][1] <= size


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gpt_neox", "gptj"])
@pytest.mark.parametrize("name", sorted(PIC))
def test_segments_of_one_token_are_what_decoding_sees(tiny, family, name):
    model = attach(tiny(family))
    policy, ids = policy_of(asking(**PIC[name])), torch.arange(3, 43) * 7 % 120 + 3
    run = Runner(Loaded(model, None, describe("tiny", model, "fp32")), exact=True)
    torch.testing.assert_close(
        trained_logits(model, ids, policy, 1), decoded_logits(run, ids, policy), atol=2e-4, rtol=1e-4
    )


def test_longer_segments_come_near_to_decoding_on_the_embedded_model(models):
    loaded = models.load("embedded", "fp32")
    policy = DynamicPic(4.0, 10, 64)
    text = "The tide came in over the flats while the keeper climbed the stairs, one by one, and counted them. " * 20
    ids = torch.tensor(loaded.tokenizer(text)["input_ids"][:300])
    wanted = decoded_logits(Runner(loaded), ids, policy).log_softmax(-1)

    def strays(segment: int, policy: PositionPolicy) -> float:
        seen = trained_logits(attach(loaded.model), ids, policy, segment).log_softmax(-1)
        return float((wanted.exp() * (wanted - seen)).sum(-1).mean())

    with torch.no_grad():
        assert strays(1, policy) < 1e-6 < strays(4, policy) < strays(16, policy) < strays(64, policy)


def test_without_compression_it_is_transformers_own_attention_and_gradient(tiny):
    model, ids = attach(tiny("llama")), torch.arange(3, 60)
    found = []
    for framed_attention in (True, False):
        embeds = model.get_input_embeddings()(ids[None]).detach().requires_grad_()
        if framed_attention:
            with framed(Segmented(Plain(), Rope.of(model.config), 16)):
                loss = model(inputs_embeds=embeds, use_cache=False).logits.logsumexp(-1).sum()
        else:
            loss = model(inputs_embeds=embeds, use_cache=False).logits.logsumexp(-1).sum()
        loss.backward()
        found.append((loss.detach(), embeds.grad))
    torch.testing.assert_close(found[0], found[1], atol=1e-4, rtol=1e-4)
