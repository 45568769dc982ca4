"""Sharpening: an adapter practises on its own answers, by the command's own path on a tiny model."""
from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model

from backend.inference.signal import constant
from backend.methods.signal import SignalSettings
from backend.models import adapters
from backend.models.adapters import Adapter
from backend.models.pool import Models
from backend.refused import Refused
from backend.training.settings import SharpenSettings
from backend.training.sharpen import Answered, Asked, _Sharpening, sharpen


@pytest.fixture(scope="module")
def folder(tiny_folder) -> str:
    made = tiny_folder("llama")
    (made / "chat_template.jinja").write_text("{% for each in messages %}<s>{{ each['content'] }}{% endfor %}</s>")
    return str(made)


def fresh(folder: str):
    return Models([folder]).load(folder, "fp32")


@pytest.fixture(scope="module")
def start(folder: str, tmp_path_factory) -> Path:
    loaded = fresh(folder)
    torch.manual_seed(0)
    lora = get_peft_model(loaded.model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    table = lora.get_input_embeddings().weight
    shown = SignalSettings("ldpe", 0.5, constant(table, 0.5), (1, 30), slack=True)
    return adapters.save(tmp_path_factory.mktemp("adapter") / "ldpe_slack", lora.half(), shown, folder).path


def settings(start: Path, **changes) -> SharpenSettings:
    few = {"seconds": 1e6, "rounds": 2, "learning": 0.5, "prompts": 4, "answers": 4, "questions": 4, "longest": 20,
           "workers": 1, "budget": 2000, "look": 0.0}  # fmt: skip
    return SharpenSettings(start=str(start), **few | changes)


ASKED = [Asked("instructions", text) for text in ("Name a bird.", "Say yes.", "What is rain?", "Count.")]


def practised(folder: str, start: Path, out: Path, **changes) -> Adapter:
    lines: list[str] = []
    return sharpen(fresh(folder), ASKED, [("Is it?", 9), ("Why?", 14)], settings(start, **changes), out, lines.append)


def test_an_adapter_practises_and_the_best_found_is_written(folder: str, start: Path, tmp_path: Path):
    found = practised(folder, start, tmp_path / "out")
    log = [json.loads(line) for line in (tmp_path / "out.training" / "training.jsonl").read_text().splitlines()]
    seen = [json.loads(line) for line in (tmp_path / "out.training" / "validation.jsonl").read_text().splitlines()]
    assert found.method == "ldpe_slack" and seen[0]["round"] == 0 and len(seen) == 1 + len(log)
    assert all(row["kind"] in ("its own answers", "own answers of the base model") for row in log)
    about = json.loads((found.path / "training.json").read_text())
    assert about["settings"]["start"] == str(start) and about["result"]["joint"] == max(row["joint"] for row in seen)


def test_a_step_makes_better_answers_likelier_and_worse_ones_less_likely(folder: str, start: Path, tmp_path: Path):
    (tmp_path / "out.training").mkdir()
    with ProcessPoolExecutor(1) as workers:
        run = _Sharpening(fresh(folder), ASKED, [("Is it?", 9)], settings(start), tmp_path / "out", workers)
        good, bad = Answered([5, 6], [40] * 6, True, 6, 1.0), Answered([5, 6], [50] * 6, True, 6, -1.0)

        def nats(row: Answered) -> float:
            return float(run._losses([row])[0].detach().sum())

        before = nats(good), nats(bad)
        for _ in range(3):
            run._learn([good, bad], 1e-2)
        assert nats(good) < before[0] - 1 and nats(bad) > before[1] + 1


def test_the_base_model_holds_the_style_and_says_nothing_of_the_end(folder: str, start: Path, tmp_path: Path):
    (tmp_path / "out.training").mkdir()
    with ProcessPoolExecutor(1) as workers:
        run = _Sharpening(fresh(folder), ASKED, [("Is it?", 9)], settings(start, match=1.0), tmp_path / "out", workers)
        rows = [Answered([5, 6], [40] * 6, True, 6, 1.0), Answered([7], [30, 31], False, 2, 1.0)]
        before = float(run._losses(rows)[0][6].detach())
        for _ in range(4):
            run._learn(rows, 1e-2)
        nll, kl, _ = run._losses(rows)
    assert float(kl[6].detach()) == 0 and bool((kl[:6].detach() > 0).all() and (kl[7:].detach() > 0).all())
    assert float(nll[6].detach()) < before


def test_an_adapter_that_is_shown_no_target_is_refused(folder: str, tmp_path: Path, start: Path):
    plain = adapters.save(
        tmp_path / "prompted_tuned",
        get_peft_model(fresh(folder).model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")).half(),
        None, folder, method="prompted_tuned",
    )  # fmt: skip
    with pytest.raises(Refused, match="shown no target"):
        practised(folder, plain.path, tmp_path / "out")
