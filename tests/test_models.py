"""Models: the allow-list, loading at every precision, adapters, capabilities, sharing, and clear errors."""
from __future__ import annotations

import json
import resource
import socket
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from conftest import FAMILIES, needs_bitsandbytes, tiny_tokenizer
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, BloomConfig, GPT2Config, ViTConfig

from backend import Lab, RunSettings, Step
from backend.inference.lora import attach, beside
from backend.models import adapters
from backend.models import pool as module
from backend.models.capabilities import unsupported
from backend.models.pool import Loaded, ModelError, Models, allowed
from backend.models.quantised import quantisation

IDS = torch.tensor([[5, 6, 7, 8, 9, 10]])
CPU, CUDA = torch.device("cpu"), torch.device("cuda")
SMALL = {"num_hidden_layers": 2}


def loaded(folder: Path, precision: str = "fp32", adapter: Path | None = None) -> Loaded:
    return Models([str(folder)]).load(str(folder), precision, adapter)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_loads_ready_to_run(family: str, tiny, tiny_folder):
    saved, expected = loaded(tiny_folder(family)), tiny(family)(IDS).logits
    assert torch.allclose(saved.model(IDS).logits, expected, atol=1e-5)
    assert not saved.model.training and not any(p.requires_grad for p in saved.model.parameters())
    assert saved.model.config._attn_implementation == ("eager" if family in ("gptj", "mpt") else "sdpa")
    assert loaded(tiny_folder(family), "bf16").model.dtype == torch.bfloat16
    assert saved.tokenizer.decode(saved.tokenizer("Is it so?\n")["input_ids"]) == "Is it so?\n"


@pytest.mark.parametrize("family", FAMILIES)
def test_capabilities_say_what_the_model_is(family: str, tiny_folder):
    seen = loaded(tiny_folder(family))
    known = seen.capabilities
    assert (known.family, known.layers, known.heads, known.head_dim, known.width) == (family, 3, 4, 16, 64)
    assert (known.vocab, known.training_length, known.precision, known.device) == (128, 512, "fp32", "cpu")
    assert known.kv_heads == (2 if family in ("llama", "mistral", "qwen2", "qwen3") else 4)
    assert known.parameters == sum(p.numel() for p in seen.model.parameters())
    packed = set() if family in ("llama", "mistral", "qwen2", "qwen3") else {"int4"}
    if family == "mpt":
        assert (known.position, known.rope_type, known.rope_base) == ("alibi", None, None)
        assert known.unsupported.keys() == packed | {"pic", "ntk"}
    else:
        assert (known.position, known.rope_type, known.rope_base) == ("rope", "default", 10_000.0)
        assert known.unsupported.keys() == packed


def test_capabilities_of_the_embedded_model(embedded: Loaded):
    known = embedded.capabilities
    assert (known.model, known.family, known.layers, known.heads, known.kv_heads) == ("embedded", "llama", 30, 9, 3)
    assert (known.width, known.head_dim, known.vocab, known.training_length) == (576, 64, 49_152, 8192)
    assert (known.parameters, known.rope_base, known.unsupported) == (134_515_008, 100_000.0, {})


@pytest.mark.parametrize("config, controls, reason", [
    (GPT2Config(), {"model", "pic", "ntk", "window", "probes", "int4"}, "learned vector"),
    (BloomConfig(), {"model", "pic", "ntk", "window", "probes", "int4"}, "does not know how bloom"),
    (AutoConfig.for_model("llama", **SMALL, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}),
     {"model", "pic", "ntk", "window", "probes"}, "change with the length"),
    (AutoConfig.for_model("mistral", **SMALL), {"model", "pic", "ntk", "window", "probes"}, "v0.2 or later"),
    (AutoConfig.for_model("qwen2", **SMALL, use_sliding_window=True, max_window_layers=1),
     {"model", "pic", "ntk", "window", "probes"}, "choose one without"),
])
def test_unsupported_controls_have_a_reason(config, controls: set[str], reason: str):
    reasons = unsupported(config, CPU)
    assert reasons.keys() == controls
    assert reason in reasons["model"] == reasons["window"]


@pytest.mark.parametrize("config", [
    AutoConfig.for_model("mistral", **SMALL, sliding_window=None),
    AutoConfig.for_model("qwen2", **SMALL),
    AutoConfig.for_model("qwen3", **SMALL),
    AutoConfig.for_model("llama", **SMALL, rope_parameters={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_theta": 5e5,
    }),
])
def test_common_models_support_everything(config):
    assert unsupported(config, CPU) == {}


@pytest.mark.parametrize("changes", [{}, {"num_hidden_layers": 2, "head_dim": 24}, SMALL | {"hidden_act": "gelu"}])
def test_what_the_fused_path_does_not_cover_is_quantised_by_bitsandbytes(changes):
    llama = AutoConfig.for_model("llama", **changes)
    assert unsupported(llama, CPU) == {
        "int4": "The lab's int4 weights do not cover its size or shape: choose 4bit or int8."
    }
    assert quantisation("int8", CPU, llama) is not None
    assert quantisation("int8", CPU, AutoConfig.for_model("llama", **SMALL)) is None


def test_without_bitsandbytes_the_quantised_precisions_say_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    llama = AutoConfig.for_model("llama", **SMALL)
    assert unsupported(llama, CPU).keys() == {"4bit"}
    assert unsupported(llama, CUDA).keys() == {"4bit", "int8", "int4"}
    other = unsupported(AutoConfig.for_model("gptj"), CPU)
    assert other.keys() == {"4bit", "int8", "int4"}
    assert all(reason.endswith("choose bf16.") for reason in other.values())


def test_a_precision_that_cannot_be_had_is_refused_with_its_reason(tiny_folder, monkeypatch: pytest.MonkeyPatch):
    folder = tiny_folder("llama")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match="choose bf16 or int8"):
        loaded(folder, "4bit")


@needs_bitsandbytes
@pytest.mark.parametrize("family", FAMILIES)
def test_4bit_on_the_cpu_multiplies_by_the_weights_it_stores(family: str, tiny, tiny_folder):
    import bitsandbytes as bnb

    model = loaded(tiny_folder(family), "4bit").model
    packed = {name: layer for name, layer in model.named_modules() if isinstance(layer, bnb.nn.Linear4bit)}
    assert len(packed) >= 12, "four or more projections in each of three layers"
    original = dict(tiny(family).named_modules())
    for name, layer in packed.items():
        stored = bnb.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state).float()
        assert (stored - original[name].weight).norm() < 0.12 * original[name].weight.norm(), name
        inputs = torch.randn(3, layer.in_features, dtype=torch.bfloat16)
        bias = None if layer.bias is None else layer.bias.float()
        expected = torch.nn.functional.linear(inputs.float(), stored, bias)
        assert (layer(inputs).float() - expected).norm() < 0.01 * expected.norm(), name


@needs_bitsandbytes
def test_4bit_embedded_is_small_and_still_answers(models: Models, embedded: Loaded):
    small = models.load("embedded", "4bit")
    assert small.capabilities.parameters == embedded.capabilities.parameters
    assert small.model.get_memory_footprint() < 0.45 * embedded.model.get_memory_footprint()
    inputs = small.tokenizer.apply_chat_template(
        [{"role": "user", "content": "Why is the sky blue?"}],
        add_generation_prompt=True, return_tensors="pt", return_dict=True,
    )
    assert "sky" in small.tokenizer.decode(small.model.generate(**inputs, max_new_tokens=12, do_sample=False)[0][-12:])


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_on_the_cpu_the_engine_packs_the_weights_itself(precision: str, tiny_folder):
    model = loaded(tiny_folder("llama"), precision).model
    assert model.dtype == torch.bfloat16 and not hasattr(model, "hf_quantizer")


@needs_bitsandbytes
@pytest.mark.parametrize("precision", ["int8", "4bit"])
@pytest.mark.parametrize("family", FAMILIES)
def test_quantised_models_run_under_a_policy(family: str, precision: str, tiny_folder):
    folder = str(tiny_folder(family))
    pic = {} if family == "mpt" else {"pic": "dynamic", "ratio": 4, "initial": 2, "recent": 8}
    asked = RunSettings(prompt="Is it so?", model=folder, window=12, sinks=2, max_new_tokens=16, **pic)
    lab = Lab(Models([folder]))
    whole, small = (
        [event.p_eos for event in lab.stream(asked.model_copy(update={"precision": kind})) if isinstance(event, Step)]
        for kind in ("bf16", precision)
    )
    assert len(whole) and len(small) and small[0] == pytest.approx(whole[0], abs=0.1)
    assert lab.capabilities(folder, precision).unsupported.get(precision) is None


@pytest.mark.gpu
@pytest.mark.parametrize("precision, layer", [("int8", "Linear8bitLt"), ("4bit", "Linear4bit")])
def test_bitsandbytes_on_a_gpu(precision: str, layer: str, embedded_fp32: Loaded, models: Models):
    model = models.load("embedded", precision).model
    assert model.device.type == "cuda" and type(model.model.layers[0].mlp.up_proj).__name__ == layer
    ids = IDS.to(model.device)
    expected = embedded_fp32.model(ids).logits
    assert torch.nn.functional.cosine_similarity(model(ids).logits.float(), expected, dim=-1).min() > 0.8


def lora(base, folder: Path, seed: int = 0) -> Path:
    """A LoRA adapter with random, not zero, weights for `base`, saved to `folder`."""
    torch.manual_seed(seed)
    tuned = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False))
    tuned.save_pretrained(folder)
    return folder


@pytest.fixture
def adapter(tiny: Callable, tmp_path: Path) -> Path:
    return lora(tiny("llama"), tmp_path / "adapter")


def test_an_adapter_stays_beside_quantised_weights(adapter: Path, tiny_folder):
    folder = tiny_folder("llama")
    shared = Models([str(folder)])
    plain, tuned = (shared.load(str(folder), "4bit", which) for which in (None, adapter))
    assert tuned.model is plain.model and not any("lora_" in name for name, _ in tuned.model.named_parameters())
    name, inputs = "model.layers.1.self_attn.q_proj", torch.randn(1, 5, 64, dtype=torch.bfloat16)
    attach(plain.model)
    product = plain.model.get_submodule(name)
    with beside([tuned.lora]):
        added = product(inputs).float()
    added -= product(inputs).float()
    down, up = tuned.lora.parts[name]
    expected = inputs.float() @ down.T @ up.T
    assert (added - expected).norm() < 0.02 * expected.norm()


def test_an_adapter_that_does_not_fit_is_refused(tiny, tiny_folder, tmp_path: Path):
    wide = lora(tiny("llama", hidden_size=128), tmp_path / "wide")
    for wrong in (wide, tmp_path / "absent"):
        with pytest.raises(ModelError, match="does not fit this model or is damaged"):
            loaded(tiny_folder("llama"), "fp32", wrong)


def test_allow_list_is_extended_by_a_file_and_by_names(tmp_path: Path):
    file = tmp_path / "more.json"
    file.write_text('["Qwen/Qwen3-4B", "embedded"]')
    names = allowed(file, ["/models/mine"])
    assert names[0] == "embedded" and names[-2:] == ["Qwen/Qwen3-4B", "/models/mine"]
    assert len(names) == len(set(names)) == len(allowed()) + 2
    assert Models(names).names() == names


@pytest.mark.parametrize("content", [None, "", "[", '{"a": 1}', "[1]", '[""]', b"\xff"])
def test_a_bad_list_of_models_is_refused(content: str | bytes | None, tmp_path: Path):
    file = tmp_path / "list.json"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ModelError, match="JSON list of names"):
        allowed(file)


@pytest.mark.parametrize("name", ["gpt2", "", "embedded/../embedded", "/", "EMBEDDED", "https://huggingface.co/gpt2"])
def test_a_model_off_the_list_is_refused(name: str):
    with pytest.raises(ModelError, match="not on the allow-list"):
        Models().load(name)


def test_an_unknown_precision_is_refused():
    with pytest.raises(ModelError, match="choose one of bf16, fp32, int8, int4, 4bit"):
        Models().load("embedded", "fp16")


@pytest.mark.parametrize("name, message", [
    ("length-lab/there-is-no-such-model", "the hub (cannot be reached|has no model)"),
    ("not a valid id", "the hub (cannot be reached|has no model)"),
    ("./no/such/folder", "there is no folder"),
])
def test_a_model_that_is_nowhere_is_asked_for_once(name: str, message: str, monkeypatch: pytest.MonkeyPatch):
    look, looked = socket.getaddrinfo, []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *where, **how: (looked.append(where), look(*where, **how))[1])
    with pytest.raises(ModelError, match=message):
        Models([name]).load(name)
    assert len(looked) <= 2  # transformers, asked for each file again and again, looks nine times


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def lose_a_tensor(path: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, path, {"format": "pt"})


@pytest.mark.parametrize("file, damage", [
    ("model.safetensors", cut),
    ("model.safetensors", Path.unlink),
    ("model.safetensors", lose_a_tensor),
    ("config.json", cut),
    ("config.json", Path.unlink),
    ("tokenizer.json", cut),
    ("tokenizer.json", Path.unlink),
], ids=lambda given: getattr(given, "__name__", given))
def test_a_damaged_folder_is_refused(file: str, damage: Callable[[Path], None], tiny_folder):
    folder = tiny_folder("llama")
    damage(folder / file)
    with pytest.raises(ModelError, match="fetch or save it again"):
        loaded(folder)


def test_a_model_that_does_not_write_text_is_refused(tmp_path: Path):
    ViTConfig().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="not a causal language model"):
        loaded(tmp_path)


def test_code_in_a_model_folder_never_runs(tmp_path: Path):
    ran = tmp_path / "ran"
    (tmp_path / "configuration_mine.py").write_text(f"open({str(ran)!r}, 'w')\n")
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "configuration_mine.MineConfig"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="could not be loaded"):
        loaded(tmp_path)
    assert not ran.exists()


def test_callers_at_once_share_one_load(tiny_folder, loads: list[str]):
    name = str(tiny_folder("llama"))
    shared, results = Models([name]), []
    threads = [threading.Thread(target=lambda: results.append(shared.load(name, "fp32"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and all(result is results[0] for result in results)
    assert loads == [name]


def test_a_slow_load_does_not_hold_up_another_model(tiny_folder, monkeypatch: pytest.MonkeyPatch):
    slow, quick = str(tiny_folder("llama")), str(tiny_folder("qwen2"))
    begun, release, load, released = threading.Event(), threading.Event(), module._load, []

    def gated(name: str, *rest):
        if name == slow:
            begun.set()
            released.append(release.wait(300))
        return load(name, *rest)

    monkeypatch.setattr(module, "_load", gated)
    shared = Models([slow, quick])
    thread = threading.Thread(target=shared.load, args=(slow, "fp32"))
    thread.start()
    begun.wait()
    assert shared.load(quick, "fp32").capabilities.family == "qwen2"
    release.set()
    thread.join()
    assert released == [True]


def test_only_the_latest_models_stay(tiny_folder, loads: list[str]):
    a, b, c = (str(tiny_folder(family)) for family in ("llama", "qwen2", "mistral"))
    shared = Models([a, b, c], kept=2)
    for name in (a, b, a, c, a, b):
        shared.load(name, "fp32")
    assert loads == [a, b, c, b]


def test_a_failed_load_can_be_tried_again(tiny_folder):
    folder = tiny_folder("llama")
    shared, weights = Models([str(folder)]), folder / "model.safetensors"
    weights.rename(folder / "away")
    with pytest.raises(ModelError):
        shared.load(str(folder), "fp32")
    (folder / "away").rename(weights)
    assert shared.load(str(folder), "fp32").capabilities.family == "llama"


def test_what_a_model_can_do_is_told_by_the_one_at_hand(embedded: Loaded, loads: list[str]):
    shared = Models(["embedded"])
    tuned = shared.load("embedded", "bf16", adapters.ROOT / "ldpe")
    assert shared.capabilities("embedded") is tuned.capabilities and loads == ["embedded"]
    assert tuned.capabilities == embedded.capabilities
    assert shared.capabilities("embedded", "fp32").precision == "fp32" and loads == ["embedded"] * 2


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")],
)
def test_other_models_go_where_memory_is_short(tiny_folder, monkeypatch: pytest.MonkeyPatch, error: Exception):
    a, b = (str(tiny_folder(family)) for family in ("llama", "qwen2"))
    shared, load, room = Models([a, b]), transformers.AutoModelForCausalLM.from_pretrained, [1]

    def short(*args, **kwargs):
        if not room:
            raise error
        room.pop()
        return load(*args, **kwargs)

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", short)
    shared.load(a, "fp32")
    freed = weakref.ref(shared.load(a, "fp32").model, lambda _: room.append(1))
    assert shared.load(b, "fp32").capabilities.family == "qwen2" and freed() is None
    room.clear()
    with pytest.raises(ModelError, match="needs more memory than is free: choose a lower"):
        shared.load(a, "fp32")


@pytest.mark.skipif(sys.platform != "linux", reason="memory that is held is read from /proc")
def test_a_model_that_is_let_go_of_gives_its_memory_back():
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    models = Models(kept=1)
    models.load("embedded", "fp32")
    held = resident()
    models.load("embedded", "bf16")
    assert resident() < held - 150e6
