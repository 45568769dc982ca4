"""Adapter folders: what is saved is found, checked and read; what is damaged says what to do."""
import json
import shutil

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from backend.inference.model_runner import runner
from backend.methods import methods
from backend.methods.shifts import MntSettings
from backend.methods.signal import SignalSettings
from backend.models import adapters, embedded
from backend.models.adapters import Adapter, AdapterError, available, find, save
from backend.models.embedded import sha256
from backend.positions import Plain

LDPE = SignalSettings("ldpe", gain=0.25, constant=0.0123, lengths=(10, 200))
MNT = SignalSettings("orpe", gain=1.0, constant=0.05, lengths=(5, 900), mnt=MntSettings(0.1, 100.0, 300))


def random_lora(model, seed=0, targets=("q_proj", "v_proj", "down_proj")):
    """A LoRA whose both halves are random, so that it changes the model."""
    torch.manual_seed(seed)
    lora = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules=list(targets), task_type="CAUSAL_LM"))
    for name, weight in lora.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)
    return lora


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(adapters, "ROOT", tmp_path / "adapters")
    return tmp_path / "adapters"


@pytest.fixture
def folder(tiny, tmp_path):
    return save(tmp_path / "one", random_lora(tiny("llama")), LDPE, "embedded").path


# Saving and loading


@pytest.mark.parametrize("settings", [LDPE, MNT, SignalSettings("pre", 0.0, 0.0, (1, 1))])
def test_what_is_saved_is_loaded(tiny, tmp_path, settings):
    saved = save(tmp_path / "deep" / "one", random_lora(tiny("llama")), settings, "some/model")
    assert saved == Adapter.load(str(saved.path))
    assert (saved.settings, saved.base, saved.width) == (settings, "some/model", 64)
    assert sorted(file.name for file in saved.path.iterdir()) == [
        "adapter_config.json", "adapter_model.safetensors", "signal.json",
    ]
    assert [entry.name for entry in saved.path.parent.iterdir()] == ["one"]


def test_saving_again_replaces(tiny, folder):
    again = save(folder, random_lora(tiny("llama"), seed=3), MNT, "embedded")
    assert Adapter.load(folder) == again and again.settings == MNT


def test_peft_reads_the_folder_and_computes_the_same(tiny, tmp_path):
    ids = torch.arange(3, 23)[None]
    plain = tiny("llama")(ids).logits
    lora = random_lora(tiny("llama")).eval()
    saved = save(tmp_path / "one", lora, LDPE, "embedded")
    merged = PeftModel.from_pretrained(tiny("llama"), str(saved.path)).merge_and_unload(safe_merge=True)
    assert not torch.allclose(merged(ids).logits, plain, atol=1e-2)
    torch.testing.assert_close(merged(ids).logits, lora(ids).logits, atol=1e-4, rtol=1e-4)


def test_a_lora_of_the_embedded_model(models, root):
    base = AutoModelForCausalLM.from_pretrained(embedded.folder(), dtype=torch.bfloat16)
    saved = save(root / "ldpe", random_lora(base, targets=("q_proj", "up_proj")), LDPE, "embedded")
    assert find("ldpe", "embedded") == saved == find("ldpe", embedded.HUB_COPY)
    saved.check_width(576)
    loaded, plain = models.load("embedded", "bf16", saved.path), models.load("embedded", "bf16")
    ids = torch.arange(100, 120)
    read = [runner(each).read(ids, runner(each).cache(Plain())) for each in (loaded, plain)]
    assert not torch.equal(*read)
    assert models.load("embedded", "bf16") is plain and loaded.model is plain.model


# Finding


def test_there_are_no_adapters_for_other_methods_and_models(tiny, root):
    save(root / "ldpe", random_lora(tiny("llama")), LDPE, "embedded")
    assert find("ldpe", "other/model") is None
    assert find("orpe", "embedded") is None
    assert find("prompted", "embedded") is None and find("none", "embedded") is None


def test_one_method_may_have_adapters_for_several_models(tiny, root):
    for place, base in [("a", "embedded"), ("b", "org/b"), ("c", "org/c")]:
        save(root / "mnt_orpe" / place, random_lora(tiny("llama")), MNT, base)
    (root / "mnt_orpe" / "notes.txt").write_text("not an adapter")
    assert find("mnt_orpe", "embedded").path.name == "a"
    assert find("mnt_orpe", "org/c").path.name == "c"
    assert find("mnt_orpe", "org/d") is None


def test_a_method_that_neither_signal_nor_positions_tell_is_stored_by_name(tiny, root):
    lora = random_lora(tiny("llama"))
    told, named = (save(root / name, lora, None, "embedded", method=name) for name in ("prompted_tuned", "sft"))
    assert (told.method, named.method) == ("prompted_tuned", "sft")
    stored = [json.loads((adapter.path / "signal.json").read_text()) for adapter in (told, named)]
    assert "method" not in stored[0] and stored[1]["method"] == "sft"


def test_available_gives_the_reason(tiny, root):
    assert list(available("embedded")) == methods.names()
    reasons = available("embedded")
    assert [method for method, why in reasons.items() if why is None] == ["none", "prompted", "exp_decay"]
    assert "no adapter for ldpe" in reasons["ldpe"] and "train one" in reasons["ldpe"]
    assert "no adapter for prompted_tuned" in reasons["prompted_tuned"]
    save(root / "ldpe", random_lora(tiny("llama")), LDPE, "embedded")
    assert available("embedded")["ldpe"] is None
    (root / "ldpe" / "adapter_model.safetensors").unlink()
    assert "lacks adapter_model.safetensors" in available("embedded")["ldpe"]


def test_an_adapter_of_another_method_is_refused(tiny, root):
    save(root / "orpe", random_lora(tiny("llama")), LDPE, "embedded")
    with pytest.raises(AdapterError, match="trained for ldpe"):
        find("orpe", "embedded")


# Damage


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors", "signal.json"])
def test_missing_files_are_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(AdapterError, match=f"lacks {name}"):
        Adapter.load(folder)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(AdapterError, match="lacks"):
        Adapter.load(tmp_path / "none")


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors", "signal.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe\x00", b"[" * 100_000, b"\xff" * 8 + b"{}"])
def test_garbled_files_are_refused(folder, name, content):
    (folder / name).write_bytes(content)
    with pytest.raises(AdapterError, match=r"again|peft"):
        Adapter.load(folder)


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_flipped_bit_is_noticed(folder, name):
    data = bytearray((folder / name).read_bytes())
    data[-5] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(AdapterError, match="damaged"):
        Adapter.load(folder)


@pytest.mark.parametrize("change", [{"lora_alpha": 64}, {"base_model_name_or_path": "another/model"}, {"r": 8}])
def test_settings_that_give_another_text_are_noticed(folder, change):
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | change))
    with pytest.raises(AdapterError, match="damaged"):
        Adapter.load(folder)


@pytest.mark.parametrize(("change", "says"), [
    ({"version": 2}, "version 2"),
    ({"version": None}, "version None"),
    ({"base": ""}, "base"),
    ({"width": 65}, "no matrix of the width 65"),
    ({"width": "wide"}, "width"),
    ({"more": 1}, "more"),
    ({"signal": {"kind": "ldpe"}}, "signal"),
    ({"method": "nothing"}, "no length method 'nothing'"),
])
def test_a_changed_signal_file_is_refused(folder, change, says):
    stored = json.loads((folder / "signal.json").read_text())
    (folder / "signal.json").write_text(json.dumps(stored | change))
    with pytest.raises(AdapterError, match=says):
        Adapter.load(folder)


@pytest.mark.parametrize(("change", "says"), [
    ({"convention": 2}, "convention 2"),
    ({"kind": "rope"}, "kind"),
    ({"gain": float("nan")}, "finite"),
    ({"lengths": [9, 1]}, "lengths"),
    ({"mnt": {"sigma_start": 2, "sigma_max": 1, "shift_max": 5}}, "sigma"),
])
def test_changed_signal_settings_are_refused(folder, change, says):
    stored = json.loads((folder / "signal.json").read_text())
    stored["signal"] |= change
    (folder / "signal.json").write_text(json.dumps(stored))
    with pytest.raises(AdapterError, match=says):
        Adapter.load(folder)


def test_a_lora_with_half_a_pair_is_refused(folder):
    tensors = load_file(folder / "adapter_model.safetensors")
    tensors.pop(next(name for name in tensors if "lora_B" in name))
    save_file(tensors, folder / "adapter_model.safetensors")
    stored = json.loads((folder / "signal.json").read_text())
    stored["sha256"] = sha256(folder / "adapter_model.safetensors")
    (folder / "signal.json").write_text(json.dumps(stored))
    with pytest.raises(AdapterError, match="damaged"):
        Adapter.load(folder)


def test_other_peft_types_are_refused(folder):
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"peft_type": "IA3"}))
    with pytest.raises(AdapterError, match="not a LoRA"):
        Adapter.load(folder)


def test_pickled_weights_do_not_count(folder):
    shutil.move(folder / "adapter_model.safetensors", folder / "adapter_model.bin")
    with pytest.raises(AdapterError, match=r"lacks adapter_model\.safetensors"):
        Adapter.load(folder)


def test_another_width_is_refused(folder):
    with pytest.raises(AdapterError, match="64 wide and the model's are 576"):
        Adapter.load(folder).check_width(576)
