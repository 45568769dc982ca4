"""Many queries' attention against float64: spans of any shape, widths, groups, and a log-sum-exp that is exact."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core import codegen

from backend.inference import prefill_attention as attention
from backend.inference.kernels.lanes import PAIRED
from backend.inference.kernels.tiles import TILED

pytestmark = pytest.mark.usefixtures("two_threads")


def normal(*shape: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Three tensors, the same each time."""
    random = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=random).to(dtype) for _ in range(3)]


def attended(q, k, v, scale, spans):
    """In float64, by the definition."""
    each = len(q) // len(k)
    k, v = (x.double().repeat_interleave(each, 0) for x in (k, v))
    scores = q.double() @ k.transpose(1, 2) * scale
    for row, (first, end) in enumerate(spans):
        scores[:, row, :first] = scores[:, row, end:] = -math.inf
    lse = scores.logsumexp(-1)
    return torch.nan_to_num((scores - lse[..., None]).exp()) @ v, lse


@given(
    n=st.integers(1, 150),
    m=st.integers(1, 300),
    shape=st.sampled_from([(1, 1, 64), (3, 3, 64), (2, 4, 128), (2, 1, 64), (2, 3, 32)]),
    dtype=st.sampled_from([torch.bfloat16, torch.float32]),
    seed=st.integers(0, 2**31),
)
@settings(deadline=None, max_examples=60)
def test_means_and_sums_are_those_of_float64(n, m, shape, dtype, seed):
    kv_heads, each, width = shape
    random, drawn = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    q = torch.randn(kv_heads * each, n, width, generator=random).to(dtype)
    k, v = (torch.randn(kv_heads, m + 7, width, generator=random).to(dtype)[:, 5:-2] for _ in range(2))
    spans = np.sort(drawn.integers(0, m + 1, (n, 2)), 1)
    mean, lse = attention.flash(q, k, v, width**-0.5, spans, False)
    right, sums = attended(q, k, v, width**-0.5, spans)
    empty = torch.from_numpy(spans[:, 0] == spans[:, 1])
    assert (lse[:, empty] == -math.inf).all() and not mean[:, empty].any()
    torch.testing.assert_close(lse.double(), sums, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(mean.double(), right, atol=0.03 if dtype == torch.bfloat16 else 1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_causal_rows_see_one_key_more_each(dtype):
    q, k, v = normal(2, 130, 64, dtype=dtype)
    rows = np.arange(130)
    mean, lse = attention.flash(q, k, v, 0.1, None, True)
    right, sums = attended(q, k, v, 0.1, np.stack([0 * rows, rows + 1], 1))
    torch.testing.assert_close(lse.double(), sums, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(mean.double(), right, atol=0.02 if dtype == torch.bfloat16 else 1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_spans_beyond_the_keys_end_with_them_whatever_the_default_type_is(dtype):
    q, k, v = normal(2, 70, 64, dtype=dtype)
    spans = np.stack([np.full(70, -3), np.full(70, 90)], 1)
    torch.set_default_dtype(torch.bfloat16)
    try:
        mean, lse = attention.flash(q, k, v, 0.1, spans, False)
    finally:
        torch.set_default_dtype(torch.float32)
    right, sums = attended(q, k, v, 0.1, spans.clip(0, 70))
    assert lse.dtype == torch.float32
    torch.testing.assert_close(lse.double(), sums, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(mean.double(), right, atol=0.02 if dtype == torch.bfloat16 else 1e-5, rtol=0)


@pytest.mark.parametrize("held", [1, 700, 2**28])
def test_scores_that_are_held_by_blocks_of_rows_come_to_the_same(held, monkeypatch):
    monkeypatch.setattr(attention, "HELD", held)
    q, k, v = (x.view(2, 1, 90, 16) for x in normal(2, 90, 16, dtype=torch.float32))
    rows = np.arange(90)
    mean, lse = attention._dense(q, k, v, 0.1, attention._lower(90, 90, q.device), None)
    right, sums = attended(q[:, 0], k[:, 0], v[:, 0], 0.1, np.stack([0 * rows, rows + 1], 1))
    torch.testing.assert_close(lse[:, 0].double(), sums, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(mean[:, 0].double(), right, atol=1e-5, rtol=0)
    biased, _ = attention._dense(q, k, v, 0.1, None, torch.arange(90.0).repeat(90, 1).neg())
    by_hand = torch.softmax(q @ k.transpose(2, 3) * 0.1 - torch.arange(90.0), -1) @ v
    torch.testing.assert_close(biased, by_hand, atol=1e-5, rtol=0)


def test_code_for_another_processor_does_without_pairs_and_tiles():
    program = "from backend.inference.kernels.flash import PAIRED, TILED; print(PAIRED, TILED)"
    for name, value in (("NUMBA_ENABLE_AVX", "0"), ("NUMBA_CPU_NAME", "generic")):
        finished = subprocess.run(
            [sys.executable, "-c", program], env=os.environ | {name: value}, capture_output=True, text=True, check=True
        )
        assert finished.stdout.strip() == "False False"


@pytest.mark.skipif(not TILED, reason="needs a processor that multiplies tiles (AMX: Xeon from 2023 on)")
def test_a_processor_without_tiles_comes_to_the_same_by_lanes():
    without = codegen.get_host_cpu_features().replace("+amx-tile", "-amx-tile")
    files = [__file__, str(Path(__file__).parent / "unit" / "test_kernels.py")]
    asked = ["-k", "float64 or causal or beyond or far_apart", "-p", "no:cacheprovider", "-q", *files]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *asked], env=os.environ | {"NUMBA_CPU_FEATURES": without}, capture_output=True
    )
    assert ran.returncode == 0, ran.stdout


@pytest.mark.skipif(not TILED, reason="needs a processor that multiplies tiles (AMX: Xeon from 2023 on)")
def test_tiles_have_their_former_shapes_afterwards():
    q, k, v = normal(2, 130, 64, dtype=torch.bfloat16)
    a, b, _ = normal(300, 300, dtype=torch.bfloat16)
    before = a @ b
    for _ in range(3):
        attention.flash(q, k, v, 0.1, None, True)
        assert torch.equal(a @ b, before)


@pytest.mark.skipif(not PAIRED, reason="needs a processor that multiplies bfloat16 pairs (AVX-512 BF16)")
def test_scores_far_apart_and_many_threads_change_nothing():
    q, k, v = normal(4, 200, 64, dtype=torch.bfloat16)
    q, k = 40 * q, 40 * k
    spans = np.stack([np.zeros(200, int), np.arange(1, 201)], 1)
    right, sums = attended(q, k, v, 0.125, spans)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(attention.flash(q, k, v, 0.125, None, True))
    finally:
        torch.set_num_threads(before)
    for mean, lse in found:
        assert torch.equal(mean, found[0][0]) and torch.equal(lse, found[0][1])
        torch.testing.assert_close(lse.double(), sums, atol=2e-3, rtol=1e-5)
        torch.testing.assert_close(mean.double(), right, atol=0.05, rtol=0)
