"""Products in blocks: a row is the same to the last bit whichever rows are beside it, and sizes that sum otherwise are
not used."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import linear

from backend.inference.blocks import SIZES, agreeing, filled, multiplied

OUT, IN = 96, 80
WEIGHT = torch.randn(OUT, IN, generator=torch.Generator().manual_seed(0))
ROWS = torch.randn(500, IN, generator=torch.Generator().manual_seed(1))


def product(x, blocks):
    return multiplied(x, WEIGHT.to(x.dtype), None, blocks)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@settings(deadline=None, max_examples=40)
@given(first=st.integers(0, 400), count=st.integers(1, 100), beside=st.integers(0, 300), sizes=st.sampled_from(SIZES))
def test_a_row_is_what_it_is_alone(dtype, first: int, count: int, beside: int, sizes):
    blocks = agreeing([(product, IN)], sizes, dtype)
    assert blocks[:1] == sizes[:1]
    own, others = ROWS[first : first + count].to(dtype), ROWS[:beside].to(dtype)
    alone = product(filled(own, blocks), blocks)[: len(own)]
    together = product(filled(torch.cat([others, own]), blocks), blocks)
    assert torch.equal(alone, together[len(others) : len(others) + len(own)])
    torch.testing.assert_close(alone, linear(own, WEIGHT.to(dtype)), rtol=0.02, atol=0.02 * IN**0.5)


def test_sizes_that_sum_otherwise_are_left_out():
    def other(x, blocks):
        return product(x, blocks) + (1 if blocks == (128,) else 0)

    assert 128 not in agreeing([(other, IN)], (64, 128, 192), torch.float32)


def test_rows_that_depend_on_their_place_are_not_multiplied_together():
    def placed(x, blocks):
        return product(x, blocks) + torch.arange(len(x))[:, None]

    assert agreeing([(placed, IN)], (64, 128), torch.float32) == ()
