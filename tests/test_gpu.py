"""On a GPU: every family reads as on the CPU, and a run samples, lands and streams."""
from __future__ import annotations

import pytest
import torch
from conftest import FAMILIES
from policies import POLICIES
from reading import IDS, rows, run

from backend import Finish, Lab, RunSettings
from backend.models.pool import Models

pytestmark = pytest.mark.gpu
SOME = ("plain", "naive", "ntk", "dynamic", "dynamic, literal", "window", "dynamic, stretching + window")
CASES = [(family, name) for family in FAMILIES for name in SOME if family != "mpt" or name in ("plain", "window")]


@pytest.mark.parametrize(("family", "name"), CASES)
def test_a_gpu_reads_as_the_cpu_does(family: str, name: str, tiny):
    expected = rows(run(tiny(family).double()), POLICIES[name], IDS, (20,))
    found = rows(run(tiny(family).double().cuda()), POLICIES[name], IDS, (20,))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("precision", ["bf16", "int8", "4bit"])
def test_a_run_streams_and_lands(precision: str, models: Models):
    asked = RunSettings(
        prompt="Why is the sky blue?", precision=precision, method="ldpe", target=30, landing=4, temperature=0.7,
        pic="dynamic", ratio=4, recent=16, window=48, max_new_tokens=80,
    )
    end = list(Lab(models).stream(asked))[-1]
    assert isinstance(end, Finish) and end.reason == "eos" and abs(end.error) <= 10
