"""The adapters that come with the lab: each is whole and small, and the first of them keeps to a length."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from backend.engine import Lab
from backend.evaluation.experiments.length_control import Case, answers, prompts
from backend.inference.signal import signal_rows
from backend.methods import methods
from backend.models import adapters, embedded
from backend.models.adapters import Adapter
from backend.record import jsonlines
from backend.settings import RunSettings
from backend.steps import Finish, Step
from backend.text.prompt import token_ids
from backend.training.card import measured, renewed

ASSETS = Path(__file__).parents[1] / "assets"
MEBIBYTE = 2**20
TRAINED = [method.name for method in methods if method.adapter and method.causal]
SEA = "Write a long story about the sea."


@pytest.mark.parametrize("method", TRAINED)
def test_every_method_has_its_adapter_card_log_and_result(method):
    folder = adapters.ROOT / method
    assert Adapter.load(folder).method == method and adapters.available("embedded")[method] is None
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 4 * MEBIBYTE
    card = (folder / "README.md").read_text()
    assert "license: apache-2.0" in card and "training.json" in {file.name for file in folder.iterdir()}
    log = jsonlines.read(folder / "training.jsonl")
    assert all(row["loss_text"] for row in log), "a row without tokens"
    assert f"| {log[-1]['loss_end']:.3f}, {log[-1]['loss_text']:.3f} |" in card
    if not methods[method].compression:
        assert (ASSETS / "results" / "length" / f"{method}.json").is_file()


def test_all_assets_stay_small():
    shipped = [file for file in ASSETS.rglob("*") if file.is_file() and ".training" not in file.parent.name]
    assert sum(file.stat().st_size for file in shipped) < 55_000_000


@pytest.mark.parametrize("method", TRAINED)
def test_every_adapter_writes(method, lab):
    asked = RunSettings(prompt=prompts(1)["questions"][0], method=method, target=16, limit=16, max_new_tokens=40)
    *steps, end = lab.stream(asked)
    assert isinstance(end, Finish) and end.tokens == len(steps) > 8 and not end.message
    if method in ("ldpe", "orpe", "pre"):
        assert end.reason == "eos" and abs(end.error) <= 4
    if methods[method].bound == "limit":
        assert end.reason == "eos" and end.tokens <= 17


@pytest.mark.parametrize(("method", "target"), [("sft", 1), pytest.param("orpe", 200, marks=pytest.mark.scale)])
def test_an_adapter_writes_as_generate_does(method, target, lab):
    """peft's own model, not merged, with the signal put on its embeddings by a hook."""
    adapter = Adapter.load(adapters.ROOT / method)
    asked = RunSettings(prompt=SEA, method=method, target=target, precision="fp32", max_new_tokens=200)
    own = AutoModelForCausalLM.from_pretrained(embedded.source(), dtype=torch.float32)
    model = PeftModel.from_pretrained(own, str(adapter.path)).eval()
    ids = token_ids(asked, lab.models.load("embedded", "fp32").tokenizer)
    read = []

    def signalled(_, tokens, embeds):
        places = torch.arange(tokens[0].shape[1])[None] + sum(read)
        read.append(tokens[0].shape[1])
        prompt, goal = torch.tensor([[len(ids)]]), torch.tensor([[target]])
        rows = signal_rows(adapter.settings, places, prompt, goal, embeds.shape[-1])
        return embeds + rows.to(embeds.dtype)

    if adapter.settings:
        own.get_input_embeddings().register_forward_hook(signalled)
    expected = model.generate(input_ids=ids[None], max_new_tokens=200, do_sample=False)[0, len(ids) :].tolist()
    found = [event.token for event in lab.stream(asked) if isinstance(event, Step)]
    assert len(found) > 150 and found == expected[: len(found)] and len(expected) - len(found) <= 1


@pytest.mark.scale
def test_ldpe_keeps_to_a_length_on_prompts_it_never_saw(models):
    asked = [Case("questions", i, text, n) for i, text in enumerate(prompts(12)["questions"]) for n in (20, 60)]
    found = [written.answer for written in answers(Lab(models), "embedded", "ldpe", asked, 0, print)]
    assert statistics.mean(abs(answer.error) for answer in found) < 3
    assert statistics.mean(answer.ended for answer in found) > 0.9


@pytest.mark.parametrize("method", TRAINED)
def test_cards_tell_what_was_measured(method):
    text = (adapters.ROOT / method / "README.md").read_text()
    now = renewed(text, Adapter.load(adapters.ROOT / method))
    assert text == now, "make it anew with `python -m backend.training.card`"
    assert "not yet" in measured(text, method, Path("nowhere"))
