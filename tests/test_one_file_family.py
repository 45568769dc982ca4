"""A model family that rotates in one module is one file of three lines: it runs, under every policy, and is offered."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from one_file import tree

FAMILY = """
from backend.families.rotary import Rotary

class Olmo2(Rotary):
    name = "olmo2"
"""
LOOK = """
import json, sys
import torch
from transformers import AutoConfig, AutoModelForCausalLM
sys.path.append("tests")
from conftest import ENDS, GROUPED, VOCAB, tiny_tokenizer
from backend.inference.model_runner import Runner
from backend.models.capabilities import describe, unrunnable
from backend.models.pool import Loaded
from backend.positions import policy_of
from backend.settings import RunSettings

def made():
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model("olmo2", vocab_size=VOCAB, **GROUPED | ENDS)).eval()

ids, model = torch.arange(3, 43), made()
expected = made()(ids[None]).logits[0, -1].detach()
about = describe("tiny", model, "fp32")
runner = Runner(Loaded(model, tiny_tokenizer(), about))
def last(**asked):
    return runner.read(ids, runner.cache(policy_of(RunSettings(prompt="p", **asked))))
print(json.dumps({
    "equal": torch.allclose(last(), expected, atol=1e-5),
    "halved": float((last(pic="naive", ratio=2) - expected).abs().max()),
    "about": [about.position, about.rope_base],
    "said": unrunnable(AutoConfig.for_model("gpt2")),
}))
"""


def test_one_file_runs_a_family(tmp_path: Path):
    environment = tree(tmp_path, "families", "olmo2.py", FAMILY)
    done = subprocess.run(
        [sys.executable, "-c", LOOK], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["equal"] and found["halved"] > 1e-3
    assert found["about"] == ["rope", 10_000.0]
    assert "mpt, olmo2, qwen2" in found["said"]
