"""Top-p sampling keeps exactly the tokens that transformers keeps."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import TopKLogitsWarper, TopPLogitsWarper

from backend.text.nucleus import Nucleus

NO_IDS = torch.zeros(1, 0, dtype=torch.long)


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    size=st.sampled_from([1, 2, 17, 300, 49_152]),
    spread=st.sampled_from([0.0, 1e-3, 1.0, 8.0]),
    top_p=st.one_of(st.sampled_from([1e-9, 0.5, 0.9, 0.95, 0.999]), st.floats(1e-6, 0.999999)),
    top_k=st.sampled_from([0, 1, 5, 50]),
    coarse=st.booleans(),
)
def test_it_keeps_what_transformers_keeps(seed, size, spread, top_p, top_k, coarse):
    scores = torch.randn(1, size, generator=torch.Generator().manual_seed(seed)) * spread
    if coarse:
        # Many equal scores, at the border too.
        scores = scores.round()
    if top_k:
        scores = TopKLogitsWarper(top_k)(NO_IDS, scores)
    given = scores.clone()
    assert torch.equal(Nucleus(top_p)(NO_IDS, scores), TopPLogitsWarper(top_p)(NO_IDS, given))
    assert torch.equal(scores, given)


@pytest.mark.parametrize("sure", [0.0, 50.0])
def test_one_token_is_always_kept(sure):
    scores = torch.tensor([[sure, -1.0, -torch.inf]])
    assert Nucleus(1e-9)(NO_IDS, scores).isfinite().sum() == 1
