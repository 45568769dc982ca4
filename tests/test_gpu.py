"""On a GPU: families read as on the CPU, by variable-length attention too, and a run samples, lands and streams."""
from __future__ import annotations

import pytest
import torch
from conftest import FAMILIES, needs_bitsandbytes
from policies import POLICIES
from reading import IDS, loaded, rows, run
from several import Several

from backend import Finish, Lab, RunSettings
from backend.inference.model_runner import Runner
from backend.inference.varlen_attention import serves
from backend.models.pool import Models

pytestmark = pytest.mark.gpu
SOME = ("plain", "naive", "ntk", "dynamic", "dynamic, literal", "window", "dynamic, stretching + window")
CASES = [(family, name) for family in FAMILIES for name in SOME if family != "mpt" or name in ("plain", "window")]


@pytest.mark.parametrize(("family", "name"), CASES)
def test_a_gpu_reads_as_the_cpu_does(family: str, name: str, tiny):
    expected = rows(run(tiny(family).double()), POLICIES[name], IDS, (20,))
    found = rows(run(tiny(family).double().cuda()), POLICIES[name], IDS, (20,))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("name", POLICIES)
def test_torchs_variable_length_attention_computes_what_the_reference_does(name: str):
    asked = [POLICIES[name], POLICIES["plain"], POLICIES["dual chunk"]]
    gpu, wide = Several(asked, torch.bfloat16, torch.device("cuda")), Several(asked)
    assert serves(gpu.buffers.keys)
    alone = Several(asked[:1], torch.bfloat16, torch.device("cuda"))
    for counts in ({0: 70, 1: 40, 2: 30}, {0: 1, 1: 1, 2: 1}, {0: 9, 2: 20}, {0: 1, 1: 1, 2: 1}):
        _, found, engine = gpu.step(counts)
        expected = wide.step(counts)[1]
        for each in (found, engine):
            torch.testing.assert_close(each.double().cpu(), expected, rtol=0, atol=0.05)
        assert torch.equal(found[:, : counts[0]], alone.step({0: counts[0]})[1])


@pytest.mark.parametrize(("family", "name"), [(family, name) for family, name in CASES if family != "mpt"])
def test_a_model_reads_by_variable_length_attention_as_without(family: str, name: str, tiny):
    model = tiny(family).to("cuda", torch.bfloat16)
    expected = rows(run(model), POLICIES[name], IDS, (20,))
    found = rows(Runner(loaded(model), varlen=True), POLICIES[name], IDS, (20,))
    torch.testing.assert_close(found, expected, rtol=0, atol=0.05 * float(expected.abs().max()))


@pytest.mark.parametrize(
    "precision", ["bf16", *(pytest.param(name, marks=needs_bitsandbytes) for name in ("int8", "4bit"))]
)
def test_a_run_streams_and_lands(precision: str, models: Models):
    asked = RunSettings(
        prompt="Why is the sky blue?", precision=precision, method="ldpe", target=30, landing=4, temperature=0.7,
        pic="dynamic", ratio=4, recent=16, window=48, max_new_tokens=80,
    )
    end = list(Lab(models).stream(asked))[-1]
    assert isinstance(end, Finish) and end.reason == "eos" and abs(end.error) <= 10
