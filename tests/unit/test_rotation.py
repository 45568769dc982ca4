"""How much of a head is rotated: what transformers does with a config's key, for each family by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import tiny_model, tiny_tokenizer

from backend.inference.model_runner import Runner
from backend.models.capabilities import describe, unrunnable
from backend.models.pool import Loaded
from backend.positions import Plain

ROPES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
    "llama3": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64, "rope_theta": 1e4,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e4},
}
WHOLE = ("llama", "mistral", "qwen2", "qwen3")
IDS = torch.arange(3, 43)


def asked(factor: float, kind: dict[str, Any] | None = None) -> dict[str, Any]:
    """A config's key for partial rotation, and its RoPE."""
    rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": factor}
    return {"rope_parameters": rope | (kind or {})}


KEYS: dict[str, dict[str, Any]] = {
    "without": {},
    "beside the others": {"partial_rotary_factor": 0.5},
    "among RoPE's": asked(0.5),
    "a small part": asked(0.2),
    "all": asked(1.0),
}


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("family", [*WHOLE, "gpt_neox", "gptj"])
def test_logits_are_those_of_transformers(family: str, keys: dict[str, Any], exact: bool):
    expected = tiny_model(family, **keys)(IDS[None]).logits[0, -1]
    model = tiny_model(family, **keys)
    runner = Runner(Loaded(model, tiny_tokenizer(), describe("tiny", model, "fp32")), exact)
    found = runner.read(IDS, runner.cache(Plain()))
    assert torch.allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("kind", ROPES.values(), ids=ROPES)
@pytest.mark.parametrize("factor, runs", [(1.0, True), (0.5, False)])
@pytest.mark.parametrize("family", WHOLE)
def test_what_transformers_cannot_rotate_is_refused(family: str, factor: float, runs: bool, kind: dict[str, Any]):
    model = tiny_model(family, **asked(factor, kind))
    if runs:
        assert unrunnable(model.config) is None and model(IDS[None]).logits.isfinite().all()
        return
    assert "rotates 8 of 16 dimensions" in (unrunnable(model.config) or "")
    with pytest.raises(RuntimeError):
        model(IDS[None])


@pytest.mark.parametrize("family, changes", [
    ("gptj", {"rotary_dim": 18}), ("gptj", {"rotary_dim": 7}), ("gpt_neox", asked(1.5)),
])
def test_widths_that_no_head_has_are_refused(family: str, changes: dict[str, Any]):
    model = tiny_model(family, **changes)
    assert "dimensions of a head" in (unrunnable(model.config) or "")
    with pytest.raises(RuntimeError):
        model(IDS[None])
