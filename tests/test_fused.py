"""Projections of many rows equal the plain product, to the rounding they admit (test_kernels.py: of one row)."""

from __future__ import annotations

from pydoc_data import topics

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from reading import IDS

from backend import Finish, RunSettings
from backend.evaluation.perplexity import read, tokenise
from backend.inference.fused_llama import Fused, fits
from backend.inference.kernels.decoder import GATE_UP
from backend.inference.quantised_linear import Int4, Int8, Plain

pytestmark = pytest.mark.usefixtures("two_threads")

INPUTS, OUTPUTS = 64, 96


def made(dtype: torch.dtype, rows: int, inputs: int = INPUTS) -> tuple[torch.Tensor, ...]:
    random = torch.Generator().manual_seed(rows)
    shapes = ((1, OUTPUTS, inputs), (1, OUTPUTS), (rows, inputs))
    return tuple(torch.randn(shape, generator=random).to(dtype) for shape in shapes)


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.mark.parametrize("inputs", [64, 72])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind, most", [(Plain, 4e-3), (Int8, 0.012), (Int4, 0.12)])
def test_many_rows_meet_the_weights_within_their_steps(kind, most, dtype, inputs):
    weight, bias, x = made(dtype, 33, inputs)
    wanted = F.linear(x.double(), weight[0].double(), bias[0].double())
    assert error(kind(weight, bias)(0, x), wanted) < most


def test_int4_keeps_weights_that_lie_on_its_grid():
    steps = torch.randint(0, 16, (OUTPUTS, INPUTS), generator=torch.Generator().manual_seed(0))
    steps[:, ::32], steps[:, 1::32] = 0, 15
    weight = (steps * 0.125 - 1).to(torch.bfloat16)
    x = torch.eye(INPUTS, dtype=torch.bfloat16)
    assert torch.equal(Int4(weight[None], None)(0, x).T, weight)


def test_a_model_is_held_once(tiny):
    """The joined weights are the model's own memory, and the model still is what it was."""
    model, own = tiny("qwen2"), tiny("qwen2")
    fused = Fused(model, "fp32")
    assert model.model.layers[1].mlp.up_proj.weight.data_ptr() == fused.products[GATE_UP].weight[1, 128:].data_ptr()
    assert fused.head.weight.data_ptr() == model.get_output_embeddings().weight.data_ptr()
    assert torch.equal(model(IDS[None]).logits, own(IDS[None]).logits)


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
    assert not fits(tiny("llama", head_dim=12))
