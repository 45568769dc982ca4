"""What is published of each adapter: whole folders, and a hook for transformers and peft that writes the same."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from backend import RunSettings, Step
from backend.__main__ import main
from backend.inference.signal import signal_rows
from backend.methods.signal import signal_methods
from backend.models import adapters, embedded
from backend.text.prompt import token_ids
from backend.training import length_signal, publish


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    assert main(["publish", "--to", "somebody", "--out", str(folder)]) == 0
    return folder


def test_each_adapter_has_a_folder_and_a_card_with_its_figures_first(out):
    made = {folder.name.split("Instruct-")[1].replace("-", "_"): folder for folder in out.iterdir()}
    assert set(made) == {folder.name for folder in adapters.ROOT.iterdir()}
    for method, folder in made.items():
        assert (folder / "adapter_model.safetensors").is_file()
        signalled = adapters.Adapter.load(folder).settings is not None
        assert (folder / publish.HOOK).exists() == signalled
        card = (folder / "README.md").read_text("utf-8")
        _, matter, body = card.split("---\n", 2)
        assert "base_model: HuggingFaceTB/SmolLM2-135M-Instruct" in matter and "license: apache-2.0" in matter
        assert f"somebody/{folder.name}" in body and "## Use" in body
        figures = publish.measured(method)
        assert ("model-index: [" in matter) == bool(figures)
        if figures:
            index = json.loads(next(line for line in matter.splitlines() if "model-index" in line).split(": ", 1)[1])
            values = [metric["value"] for metric in index[0]["results"][0]["metrics"]]
            assert values == [value for _, value, _ in figures]
            assert body.index(figures[0][0]) < body.index("Label tokens")


@pytest.mark.parametrize("kind", ["ldpe", "orpe", "lrpe", "pre"])
def test_the_hooks_rows_are_the_labs(kind):
    adapter = adapters.Adapter.load(adapters.ROOT / kind)
    wanted = signal_rows(adapter.settings, torch.arange(60), 20, 25, 64)
    rows = length_signal.ROWS[kind](torch.arange(60).double() - 19, 25, 64) * adapter.settings.constant
    assert torch.equal(rows.float(), wanted) or (rows.float() - wanted).abs().max() < 1e-6


def test_every_signal_has_its_rows():
    assert {method.kind for method in signal_methods()} == set(length_signal.ROWS)


@pytest.mark.parametrize("method", ["ldpe", "ldpe_slack", "pre"])
def test_transformers_and_peft_write_the_labs_tokens(out, lab, method):
    settings = RunSettings(prompt="Why is the sky blue?", method=method, target=16, precision="fp32", max_new_tokens=24)
    tokens = [event.token for event in lab.stream(settings) if isinstance(event, Step)]
    folder = next(folder for folder in out.iterdir() if folder.name.endswith(f"Instruct-{method}".replace("_", "-")))
    spec = importlib.util.spec_from_file_location("hook", folder / publish.HOOK)
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    plain = AutoModelForCausalLM.from_pretrained(embedded.folder(), dtype=torch.float32)
    model = PeftModel.from_pretrained(plain, folder)
    asked = token_ids(settings, lab.models.load("embedded").tokenizer)[None]
    hook.attach(model, prompt=asked.shape[1], target=16)
    written = model.generate(asked, attention_mask=torch.ones_like(asked), max_new_tokens=24, do_sample=False)
    assert written[0, asked.shape[1] :].tolist()[: len(tokens)] == tokens and len(tokens) > 8


def test_a_namespace_that_is_none_is_refused(tmp_path, capsys):
    assert main(["publish", "--to", "a/b", "--out", str(tmp_path)]) == 2
    assert "name of an account" in capsys.readouterr().err
