"""LoRA beside the weights: what peft computes, for each sequence its own, and the model itself never changes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import FAMILIES, tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, PeftModel, get_peft_model
from policies import POLICIES
from reading import IDS, loaded
from safetensors.torch import load_file, save_file

from backend import Finish, Lab, RunSettings
from backend.families import families
from backend.inference.model_runner import Runner, runner
from backend.inference.scheduler import Read
from backend.models import adapters
from backend.models.lora import Lora
from backend.models.pool import Loaded, ModelError, Models
from backend.positions import Plain, policy_of

pytestmark = pytest.mark.usefixtures("two_threads")
FUSED = ("llama", "mistral", "qwen2", "qwen3")


def saved(family: str, folder: Path, seed: int = 1, **changes) -> Path:
    """A LoRA with random halves for a family's random model."""
    torch.manual_seed(seed)
    config = {"r": 3, "lora_alpha": 7, "target_modules": "all-linear", "init_lora_weights": False} | changes
    get_peft_model(tiny_model(family), LoraConfig(**config)).save_pretrained(folder)
    return folder


def tuned(family: str, folder: Path, changes: dict | None = None) -> Loaded:
    base = loaded(tiny_model(family, **(changes or {})))
    return Loaded(base.model, base.tokenizer, base.capabilities, Lora.read(folder, base.model))


def expected(family: str, folder: Path) -> torch.Tensor:
    """peft's own logits [n, vocabulary], not merged."""
    return PeftModel.from_pretrained(tiny_model(family), str(folder)).eval()(IDS[None]).logits[0].detach()


def logits(reader: Runner, *chunks: int) -> torch.Tensor:
    """Logits of all rows: chunks of these sizes, the rest one by one."""
    cache = reader.cache(Plain(), len(IDS))
    parts = torch.split(IDS, [*chunks, *[1] * (len(IDS) - sum(chunks))])
    return torch.cat([reader.read(part, cache, every_row=True) for part in parts])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_exact_path_is_peft_s_own(family, tmp_path):
    folder = saved(family, tmp_path, lora_alpha=6)
    found = logits(Runner(tuned(family, folder), exact=True), len(IDS))
    if families[family].eager:
        torch.testing.assert_close(found, expected(family, folder), atol=1e-5, rtol=1e-5)
    else:
        assert torch.equal(found, expected(family, folder))
    assert not torch.allclose(found, logits(Runner(loaded(tiny_model(family)), exact=True), len(IDS)), atol=0.1)


@pytest.mark.parametrize("changes", [{}, {"use_rslora": True}, {"target_modules": ["v_proj", "up_proj"]},
                                     {"target_modules": ["k_proj"], "layers_to_transform": [1]}], ids=str)  # fmt: skip
@pytest.mark.parametrize("family", FUSED)
def test_the_fused_path_is_peft_s(family, changes, tmp_path):
    folder = saved(family, tmp_path, **changes)
    reader, wanted = Runner(tuned(family, folder)), expected(family, folder)
    assert reader.fused is not None
    for chunks in ((len(IDS),), (17, 20), ()):
        torch.testing.assert_close(logits(reader, *chunks), wanted, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt_neox"])
def test_the_model_itself_never_changes(family, tmp_path):
    folder, plain = saved(family, tmp_path), loaded(tiny_model(family))
    before = logits(runner(plain))
    both = Loaded(plain.model, plain.tokenizer, plain.capabilities, Lora.read(folder, plain.model))
    after = logits(runner(both), len(IDS))
    assert not torch.allclose(before, after, atol=0.1)
    assert torch.equal(logits(runner(plain)), before)


@pytest.fixture(scope="module", params=FUSED)
def adapted(request, tmp_path_factory) -> tuple[Runner, list[Lora | None]]:
    """A model, and what may stand beside it."""
    family, reader = request.param, Runner(loaded(tiny_model(request.param)))
    one = Lora.read(saved(family, tmp_path_factory.mktemp("one")), reader.model)
    few = saved(family, tmp_path_factory.mktemp("few"), 2, r=5, target_modules=["q_proj", "down_proj"])
    return reader, [None, one, Lora.read(few, reader.model)]


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(sorted(POLICIES))), min_size=1, max_size=6), st.data())
def test_sequences_of_different_adapters_are_read_together_as_alone(adapted, rows, data):
    reader, loras = adapted
    lengths = [data.draw(st.integers(1, 30), label="prompt") for _ in rows]

    def begun() -> list[Read]:
        reads = []
        for (which, policy), length in zip(rows, lengths, strict=True):
            cache = reader.beside(loras[which]).cache(policy_of(POLICIES[policy]), 8)
            reader.read(IDS[:length], cache)
            reads.append(Read(IDS[length : length + 1], cache))
        return reads

    together, alone = reader.forward(begun()), [reader.forward([read])[0] for read in begun()]
    assert all(map(torch.equal, together, alone))


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_a_padded_batch_takes_an_adapter_a_row(family, tmp_path):
    reader = Runner(loaded(tiny_model(family)), exact=True)
    lora = Lora.read(saved(family, tmp_path), reader.model)
    asked, padding = [None, lora, None, lora], [0, 3, 5, 0]
    caches = [reader.beside(each).cache(Plain(), 16) for each in asked]
    tokens = torch.stack([torch.cat([torch.zeros(pad, dtype=torch.long), IDS[: 12 - pad]]) for pad in padding])
    found = reader.read_batch(tokens, padding, caches)
    for each, pad, row in zip(asked, padding, found, strict=True):
        alone = reader.read(IDS[: 12 - pad], reader.beside(each).cache(Plain(), 16))
        torch.testing.assert_close(row, alone, atol=1e-4, rtol=1e-4)


def test_a_copy_of_a_cache_is_the_same_adapter_s(tmp_path):
    reader = runner(tuned("llama", saved("llama", tmp_path)))
    cache = reader.cache(Plain(), 16)
    reader.read(IDS[:9], cache)
    other = copy.deepcopy(cache)
    assert other.lora is cache.lora is reader.lora
    assert torch.equal(reader.read(IDS[9:12], cache), reader.read(IDS[9:12], other))


def test_all_adapters_of_a_model_share_it(embedded, loads):
    shared, folders = Models(["embedded"]), [file.parent for file in adapters.ROOT.glob("*/signal.json")]
    found = [shared.load("embedded", "bf16", folder) for folder in folders]
    assert len(found) == 11 and loads == ["embedded"]
    assert len({id(each.model) for each in found}) == 1 and len({id(runner(each).fused) for each in found}) == 1
    assert len({id(each.lora) for each in found}) == 11
    assert shared.load("embedded", "bf16", folders[0]).lora is found[0].lora
    assert shared.load("embedded", "bf16").lora is None


@pytest.mark.parametrize("method", ["ldpe", pytest.param("orpe", marks=pytest.mark.scale)])
def test_int4_keeps_what_an_adapter_has_learned(method, lab: Lab):
    for target in (20, 60):
        ends = []
        for precision in ("bf16", "int4"):
            asked = RunSettings(prompt="Why is the sea salty?", method=method, target=target, precision=precision)
            *_, finish = lab.stream(asked)
            assert isinstance(finish, Finish)
            ends.append(finish.tokens)
        assert abs(ends[0] - ends[1]) <= 4


def _changed(folder: Path, **settings) -> None:
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def _with(folder: Path, name: str) -> None:
    file = folder / "adapter_model.safetensors"
    save_file(load_file(file) | {name: torch.zeros(3)}, file)


REFUSED: dict[str, Callable[[Path], object]] = {
    "use_dora": lambda folder: _changed(folder, use_dora=True),
    "alpha_pattern": lambda folder: _changed(folder, alpha_pattern={"q_proj": 4}),
    "no part of a LoRA": lambda folder: _with(folder, "base_model.model.lm_head.bias"),
    "lora_alpha": lambda folder: _changed(folder, lora_alpha=None),
    "lora_alpha is no": lambda folder: _changed(folder, lora_alpha="12"),
    "No such file": lambda folder: (folder / "adapter_model.safetensors").unlink(),
    "header": lambda folder: (folder / "adapter_model.safetensors").write_bytes(b"x" * 100),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_no_plain_lora_is_refused(words, tmp_path, tiny_folder):
    folder = str(tiny_folder("llama"))
    REFUSED[words](saved("llama", tmp_path))
    with pytest.raises(ModelError, match=f"does not fit this model or is damaged .*{words}.*: choose the model"):
        Models([folder]).load(folder, "fp32", tmp_path)


@pytest.mark.parametrize("family", ["gpt_neox", "qwen3"])
def test_another_model_s_lora_is_refused(family, tmp_path, tiny_folder):
    folder = str(tiny_folder("llama", hidden_size=128) if family == "qwen3" else tiny_folder("llama"))
    with pytest.raises(ModelError, match="does not fit this model or is damaged"):
        Models([folder]).load(folder, "fp32", saved(family, tmp_path))
