"""Shared by all tests: the embedded model, one lab, and tiny random models of every family.

The tests state what the CPU does, to the bit. `LENGTH_LAB_TEST_GPU=1 make test ARGS="-m gpu"` runs those of a GPU.
None asserts how fast something was.
"""
from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest

if "LENGTH_LAB_TEST_GPU" not in os.environ:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from backend.models import pool as models_module
from backend.models.pool import Loaded, Models

VOCAB = 128
GROUPED: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": GROUPED,
    "mistral": GROUPED | {"sliding_window": None},
    "qwen2": GROUPED,
    "qwen3": GROUPED | {"head_dim": 16},
    "gpt_neox": {key: value for key, value in GROUPED.items() if key != "num_key_value_heads"},
    "gptj": {"n_embd": 64, "n_layer": 3, "n_head": 4, "rotary_dim": 8, "n_positions": 512},
    "mpt": {"d_model": 64, "n_layers": 3, "n_heads": 4, "max_seq_len": 512},
}
ENDS: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}

UNIT = Path(__file__).parent / "unit"
# What loads the embedded model, serves a page or opens one.
NO_UNIT = {"models", "held_lab", "browser"}

needs_bitsandbytes = pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None, reason="bitsandbytes has no build for this platform"
)

# Files of tests share the cores. What threads may spoil is tested with two.
torch.set_num_threads(1)
hypothesis.settings.register_profile(
    "any speed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any speed")


def tiny_model(family: str, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A random-weight causal LM of `family` in fp32 and eval mode; `changes` go to its config."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(family, vocab_size=VOCAB, **(FAMILIES[family] | ENDS | changes))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).requires_grad_(False)
    # At the usual scale of 0.02 attention is all but uniform and the greedy token hardly moves: no test would see much.
    for weight in model.parameters():
        if weight.dim() == 2:
            weight.mul_(6)
    return model.eval()


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each printable ASCII character, tab and line feed; others are dropped."""
    alphabet = bytes_to_unicode()
    characters = [alphabet[byte] for byte in (*b"\t\n", *range(32, 127))]
    vocabulary = {piece: i for i, piece in enumerate(["<unk>", "<s>", "</s>", *characters])}
    tokenizer = Tokenizer(BPE(vocabulary, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Keeps what is no unit test out of tests/unit, and skips what needs a GPU where there is none."""
    if item.path.is_relative_to(UNIT) and (needed := NO_UNIT & {*item.fixturenames}):
        pytest.fail(f"a unit test takes no {' or '.join(needed)}: move this test out of tests/unit")
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        found = "none was found" if "LENGTH_LAB_TEST_GPU" in os.environ else "with one, set LENGTH_LAB_TEST_GPU=1"
        pytest.skip(f"needs a GPU: {found}")


@pytest.fixture(scope="module")
def two_threads():
    """Products are computed by two threads."""
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def models() -> Models:
    return Models()


@pytest.fixture(scope="session")
def embedded(models: Models) -> Loaded:
    return models.load("embedded", "bf16")


@pytest.fixture(scope="session")
def embedded_fp32(models: Models) -> Loaded:
    return models.load("embedded", "fp32")


@pytest.fixture(scope="session")
def lab(models: Models):
    from backend import Lab

    return Lab(models)


@pytest.fixture
def in_lab(lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Experiments run in the tests' own lab."""
    monkeypatch.setattr("backend.evaluation.experiment.ModelFlags.lab", lambda self: lab)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the models really loaded, in order."""
    seen: list[str] = []
    load = models_module._load
    monkeypatch.setattr(models_module, "_load", lambda name, *rest: (seen.append(name), load(name, *rest))[1])
    return seen


@pytest.fixture(scope="session")
def tiny() -> Callable[..., PreTrainedModel]:
    """tiny(family, seed=0, **config changes): a fresh random model each time it is called."""
    return tiny_model


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """tiny_folder(family, **changes): the same, saved with a tokenizer as a model folder."""

    def save(family: str, **changes: Any) -> Path:
        folder = tmp_path_factory.mktemp(family)
        tiny_model(family, **changes).save_pretrained(folder)
        tiny_tokenizer().save_pretrained(folder)
        return folder

    return save


@pytest.fixture(scope="session")
def held_lab():
    """A lab whose runs wait where a test says, its model loaded; of its two the other is missing."""
    from held import MISSING, Held

    lab = Held(["embedded", MISSING])
    lab.capabilities()
    return lab


@pytest.fixture(scope="module")
def browser():
    """A browser of the system's Chromium."""
    from playwright.sync_api import sync_playwright

    from app.chromium import launch

    with sync_playwright() as playwright:
        opened = launch(playwright)
        yield opened
        opened.close()
