"""Models loaded by several visitors at once, as the first of a process: each as alone, and nothing is left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from conftest import tiny_model
from peft import LoraConfig, get_peft_model

from backend import Lab, RunSettings, Step
from backend.models.pool import ModelError, Models
from backend.settings import Precision

ROOT = Path(__file__).parents[1]
# Each is read in a process of its own: what transformers imports when it is first named is imported once in a process.
PROGRAM = """
import json, sys, threading
from pathlib import Path
import torch
from backend.inference.lora import attach, beside
from backend.models.pool import Models

asked = json.loads(sys.argv[1])
models, found, begin = Models([name for name, *_ in asked], kept=len(asked)), {}, threading.Barrier(len(asked))

def load(index, name, precision, adapter):
    begin.wait()
    try:
        loaded = models.load(name, precision, Path(adapter) if adapter else None)
        attach(loaded.model)
        with torch.inference_mode(), beside([loaded.lora]):
            logits = loaded.model(torch.tensor([[5, 6, 7, 8]])).logits
        found[index] = [str(loaded.model.dtype), logits.double().sum().item()]
    except Exception as error:
        found[index] = repr(error)

threads = [threading.Thread(target=load, args=(index, *each)) for index, each in enumerate(asked)]
if sys.argv[2] == "together":
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
else:
    begin = threading.Barrier(1)
    for thread in threads:
        thread.start()
        thread.join()
print(json.dumps([found[index] for index in range(len(asked))] + [str(torch.get_default_dtype())]))
"""


def loaded(asked: list[list[Any]], how: str) -> list[Any]:
    """Type and sum of logits of each model asked for, or what went wrong, and at last the default type."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(asked), how]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_models_asked_for_at_once_are_those_loaded_alone(tiny_folder: Callable[..., Path], tmp_path: Path):
    llama, other = str(tiny_folder("llama")), str(tiny_folder("gpt_neox"))
    tuned = get_peft_model(tiny_model("llama"), LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False))
    tuned.save_pretrained(tmp_path)
    asked = [[llama, "bf16", str(tmp_path)], [llama, "fp32", None], [other, "bf16", None], [other, "fp32", None]]
    alone = loaded(asked, "alone")
    kinds = ["torch.bfloat16", "torch.float32", "torch.bfloat16", "torch.float32"]
    assert [kind for kind, _ in alone[:-1]] == kinds and alone[-1] == "torch.float32"
    assert loaded(asked, "together") == alone


@pytest.mark.parametrize("precision", ["bf16", "fp32", "int8", "int4"])
@pytest.mark.parametrize("pic", ["none", "dynamic"])
def test_what_is_packed_and_run_while_another_is_loaded_is_the_same(
    precision: Precision, pic: Any, tiny_folder: Callable[..., Path]
):
    folder = str(tiny_folder("llama"))
    asked = RunSettings(
        prompt="Why is it so?", model=folder, precision=precision, pic=pic, max_new_tokens=12, method="exp_decay",
        target=9, landing=2, temperature=0.8, top_p=0.9, repetition_penalty=1.1, window=16, sinks=2,
    )
    alone = [event for event in Lab(Models([folder])).stream(asked) if isinstance(event, Step)]
    lab = Lab(Models([folder]))
    lab.models.load(folder, precision)
    # transformers makes the type of the model it loads everybody's default meanwhile.
    torch.set_default_dtype(torch.bfloat16)
    try:
        meanwhile = [event for event in lab.stream(asked) if isinstance(event, Step)]
    finally:
        torch.set_default_dtype(torch.float32)
    assert [(step.token, step.p, step.spread) for step in meanwhile] == [
        (step.token, step.p, step.spread) for step in alone
    ]


@pytest.mark.parametrize("name", ["qwen2", "embedded"])
@pytest.mark.parametrize("error", [
    ImportError("cannot import name 'x' from partially initialized module"), ModuleNotFoundError("No module named 'y'"),
    RuntimeError("Tensor on device meta"), OSError("no such file"),
], ids=lambda error: type(error).__name__)
def test_a_failed_load_takes_no_models_place_and_is_logged(
    error: Exception, name: str, tiny_folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, caplog
):
    held, other = str(tiny_folder("llama")), str(tiny_folder("qwen2"))
    asked = other if name == "qwen2" else name
    models = Models([held, asked], kept=1)
    before = models.load(held, "fp32")

    def fails(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(transformers.AutoTokenizer, "from_pretrained", fails)
        with pytest.raises(ModelError, match="could not be loaded") as refusal:
            models.load(asked, "fp32")
    assert "Traceback" in caplog.text
    if isinstance(error, ImportError):
        assert "start the lab again" in str(refusal.value) and "delete" not in str(refusal.value)
    assert models.load(held, "fp32") is before
    assert models.load(asked, "fp32").model.dtype == torch.float32


def test_a_folder_that_cannot_be_loaded_is_one_sentence_in_a_terminal(tiny_folder: Callable[..., Path]):
    folder = tiny_folder("llama")
    (folder / "tokenizer.json").write_text("{")
    command = [sys.executable, "-m", "backend", "capabilities", "--model", str(folder), "--allow-model", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr and "fetch or save it again" in done.stderr
