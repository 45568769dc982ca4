"""Model folders as people have them: sizes that differ, weights already quantised, odd widths, two spellings of one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from conftest import FAMILIES, VOCAB, needs_bitsandbytes, tiny_model, tiny_tokenizer

from app.model import _described, precision_options
from backend import Lab, RunSettings
from backend.__main__ import main
from backend.models import adapters
from backend.models.capabilities import describe, unsupported
from backend.models.pool import ModelError, Models, allowed
from backend.settings import Precision
from backend.steps import Finish, Step

PRECISIONS = get_args(Precision)


def run(folder: Path | str, **changes: Any) -> tuple[list[int], Finish]:
    given = {"prompt": "Why?", "max_new_tokens": 4, "watch": {"enabled": False}} | changes
    *steps, finish = Lab(Models([str(folder)])).stream(RunSettings(model=str(folder), **given))
    assert isinstance(finish, Finish)
    return [step.token for step in steps if isinstance(step, Step)], finish


# Tokenizers and tables


def save(folder: Path, family: str, beyond: int, **changes: Any) -> Path:
    """A model of VOCAB embeddings, and a tokenizer whose last id lies `beyond` the last of them."""
    tiny_model(family, **changes).save_pretrained(folder)
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([f"<extra_{index}>" for index in range(VOCAB - len(tokenizer) + beyond)])
    assert len(tokenizer) == VOCAB + beyond
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("beyond", [1, 40])
@pytest.mark.parametrize("prompt", ["Why?", "Why <extra_33>?"])
def test_a_tokenizer_that_goes_beyond_the_table_is_refused_with_both_sizes(
    family: str, beyond: int, prompt: str, tmp_path: Path
):
    folder = save(tmp_path, family, beyond)
    sizes = rf"token {VOCAB + beyond - 1} .*has {VOCAB} embeddings, .*resize_token_embeddings"
    with pytest.raises(ModelError, match=sizes):
        run(folder, prompt=prompt)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("beyond", [0, -20])
def test_a_tokenizer_that_the_table_covers_runs(family: str, beyond: int, tmp_path: Path):
    assert run(save(tmp_path, family, beyond))[1].reason in ("cap", "eos")


# Weights that are stored quantised


def quantised(folder: Path, plain: Path, how: dict[str, bool]) -> Path:
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    options: dict[str, Any] = {"dtype": torch.bfloat16, "quantization_config": BitsAndBytesConfig(**how)}
    AutoModelForCausalLM.from_pretrained(plain, **options).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@needs_bitsandbytes
@pytest.mark.parametrize("kind, how", [("4bit", {"load_in_4bit": True}), ("int8", {"load_in_8bit": True})])
@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_weights_stored_quantised_run_at_their_own_precision_alone(
    family: str, kind: str, how: dict[str, bool], tiny_folder: Callable, tmp_path: Path
):
    folder = str(quantised(tmp_path, tiny_folder(family), how))
    for precision in set(PRECISIONS) - {kind}:
        with pytest.raises(ModelError, match=f"stored as {kind} and stay so: choose {kind}"):
            run(folder, precision=precision)
    known = Models([folder]).capabilities(folder, kind)
    assert known.precision == kind and known.unsupported.keys() == set(PRECISIONS) - {kind}
    assert [option["id"] for option in precision_options(known) if not option["off"]] == [kind]
    assert run(folder, precision=kind)[1].reason in ("cap", "eos")


@needs_bitsandbytes
def test_weights_quantised_here_are_not_taken_for_stored_ones(tiny_folder: Callable):
    folder = str(tiny_folder("llama"))
    assert Models([folder]).capabilities(folder, "4bit").unsupported == {}


@pytest.mark.parametrize("kind", ["gptq", "awq", "fp8", "compressed-tensors", "made-up"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_other_kinds_are_refused_by_name(kind: str, precision: str, tiny):
    config = tiny("llama").config
    config.quantization_config = {"quant_method": kind, "bits": 4}
    assert f"quantised by {kind}" in unsupported(config, torch.device("cpu"))[precision]


def test_stored_kinds_need_bitsandbytes(tiny, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    config = tiny("llama").config
    config.quantization_config = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    reasons = unsupported(config, torch.device("cpu"))
    assert reasons.keys() == set(PRECISIONS) and "has no build here" in reasons["4bit"]


# Widths


@needs_bitsandbytes
@pytest.mark.parametrize("family, widths", [
    ("llama", {"hidden_size": 40, "intermediate_size": 100}),
    ("qwen2", {"hidden_size": 96, "intermediate_size": 160}),
    ("gpt_neox", {"hidden_size": 40, "intermediate_size": 100}),
    ("gptj", {"n_embd": 40, "rotary_dim": 4}),
    ("mpt", {"d_model": 40}),
])
def test_4bit_runs_at_every_width_on_every_cpu(
    family: str, widths: dict[str, int], tiny_folder: Callable, monkeypatch: pytest.MonkeyPatch
):
    """bitsandbytes packs weights anew on CPUs with AVX512-BF16: here it is made to believe that this one has it."""
    folder = tiny_folder(family, **widths)
    expected = run(folder, precision="4bit")
    monkeypatch.setattr("bitsandbytes.nn.modules.has_avx512bf16", lambda: True)
    found = run(folder, precision="4bit")
    assert found[0] == expected[0] and found[1].reason == expected[1].reason != "error"


# Names


def spellings(folder: Path) -> list[str]:
    return [f"{folder}{end}" for end in ("", "/", "//", "/.")] + [f"{folder.parent}//{folder.name}"]


@pytest.mark.parametrize("index", range(5))
def test_spellings_of_a_folder_are_one_model(index: int, tiny_folder: Callable, loads: list[str]):
    folder = tiny_folder("llama")
    names = spellings(folder)
    assert allowed(more=names) == [*allowed(), str(folder)]
    models = Models([names[index]])
    assert models.names() == [str(folder)] == Models(names).names()
    first = models.load(names[0], "fp32")
    assert all(models.load(name, "fp32") is first for name in names) and loads == [str(folder)]
    assert all(models.capabilities(name, "fp32").model == str(folder) for name in names)
    assert {adapters.base_of(name) for name in names} == {str(folder)}


def test_a_relative_folder_is_one_model_too(tiny_folder: Callable, monkeypatch: pytest.MonkeyPatch):
    folder = tiny_folder("llama")
    monkeypatch.chdir(folder.parent)
    assert Models([f"./{folder.name}", folder.name, f"{folder.name}/"]).names() == [folder.name]


def test_a_folder_never_stands_for_the_embedded_model_or_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("embedded")
    assert Models(["embedded", "Qwen/Qwen3-0.6B", "./no/such/folder/"]).names() == [
        "embedded", "Qwen/Qwen3-0.6B", "./no/such/folder/",
    ]


@pytest.mark.parametrize("parameters, words", [
    (127_424, "127,424 parameters"), (999_999, "999,999 parameters"),
    (1_000_000, "1 M parameters"), (134_515_008, "135 M parameters"), (7_248_023_552, "7,248 M parameters"),
])
def test_small_models_have_parameters_too(parameters: int, words: str, tiny):
    known = describe("tiny", tiny("llama"), "fp32")
    object.__setattr__(known, "parameters", parameters)
    assert f", {words} · " in _described(known)


# What a target asks for


def test_a_target_without_a_method_or_an_adapter_is_asked_for(tiny_folder: Callable, capsys):
    folder = str(tiny_folder("llama"))
    given = ["--allow-model", folder, "--model", folder, "--prompt", "Why?", "--max-new-tokens", "2", "--target", "9"]
    assert main(["generate", *given]) == 0
    assert "target 9 tokens" in capsys.readouterr().err
