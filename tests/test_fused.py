"""Projections in the layouts that decode fast: each equals the plain product, to the rounding it admits."""

from __future__ import annotations

from pydoc_data import topics

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from backend import Finish, RunSettings
from backend.evaluation.perplexity import read, tokenise
from backend.fused import Int4, Int8, Packed, fits

INPUTS, OUTPUTS = 64, 96


def made(dtype: torch.dtype, rows: int) -> tuple[torch.Tensor, ...]:
    random = torch.Generator().manual_seed(rows)
    shapes = ((OUTPUTS, INPUTS), (OUTPUTS,), (rows, INPUTS), (rows, OUTPUTS))
    return tuple(torch.randn(shape, generator=random).to(dtype) for shape in shapes)


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.mark.parametrize("rows", [1, 2, 33])
@pytest.mark.parametrize("dtype, most", [(torch.float32, 1e-6), (torch.bfloat16, 4e-3)])
def test_packed_is_the_plain_product(rows, dtype, most):
    weight, bias, x, residual = made(dtype, rows)
    wanted = F.linear(x.double(), weight.double(), bias.double())
    assert error(Packed(weight, bias)(x), wanted) < most
    assert error(Packed(weight, bias)(x, residual), wanted + residual.double()) < most


@pytest.mark.parametrize("rows", [1, 2, 33])
@pytest.mark.parametrize("kind, most", [(Int8, 0.012), (Int4, 0.12)])
def test_rounded_weights_stay_within_their_steps(rows, kind, most):
    weight, bias, x, residual = made(torch.bfloat16, rows)
    projection = kind(weight, bias)
    assert error(projection(x), F.linear(x.double(), weight.double(), bias.double())) < most
    assert error(projection(x, residual) - residual, projection(x)) < 0.01


def test_int4_keeps_weights_that_lie_on_its_grid():
    steps = torch.randint(0, 16, (OUTPUTS, INPUTS), generator=torch.Generator().manual_seed(0))
    steps[:, ::32], steps[:, 1::32] = 0, 15
    weight = (steps * 0.125 - 1).to(torch.bfloat16)
    x = torch.eye(INPUTS, dtype=torch.bfloat16)
    assert torch.equal(Int4(weight, None)(x).T, weight)


@pytest.mark.parametrize("precision, most", [("int8", 0.02), ("int4", 0.05)])
def test_rounded_weights_hardly_change_the_embedded_model(lab, precision, most):
    text = "\n".join(topics.topics.values())

    def nll(which: str) -> float:
        settings = RunSettings(prompt="x", precision=which)
        chunks = read(lab, tokenise(lab, text, settings, 700), settings)
        return float(np.concatenate([chunk.nll for chunk in chunks]).mean())

    assert abs(nll(precision) - nll("bf16")) < most
    *steps, finish = lab.stream(RunSettings(prompt="Why is the sky blue?", precision=precision, max_new_tokens=12))
    assert isinstance(finish, Finish) and finish.tokens == len(steps) == 12


def test_other_shapes_and_types_do_not_run_fused(tiny):
    assert fits(tiny("llama")) and fits(tiny("qwen3"))
    assert not fits(tiny("gpt_neox"))
    assert not fits(tiny("llama").double())
