from __future__ import annotations

import json

import pytest

from backend.__main__ import main
from backend.evaluation.experiments import lora_ablation


@pytest.fixture
def corpus(tmp_path):
    file = tmp_path / "corpus.jsonl"
    rows = [{"prompt": f"What is {n}?", "response": f"It is {n}. It is a number.", "ended": True} for n in range(40)]
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


@pytest.mark.scale
def test_shapes_are_trained_alike_and_gone_on_with(corpus, tmp_path, tiny_folder, monkeypatch, capsys):
    monkeypatch.setattr(lora_ablation, "SHAPES", (("all-linear", 1), ("q_proj,v_proj", 2)))
    given = ["evaluate", "lora_ablation", "--data", str(corpus), "--model", str(tiny_folder("llama")), "--prompts", "1"]
    given += ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "shapes.json")]
    assert main([*given, "--samples", "12"]) == 0
    found = json.loads((tmp_path / "shapes.json").read_text())
    assert [(row["targets"], row["rank"]) for row in found["rows"]] == list(lora_ablation.SHAPES)
    assert found["rows"][0]["bytes"] > found["rows"][1]["bytes"] > 0
    assert all(row["loss_end"] > 0 and row["answers"] > 0 for row in found["rows"])
    monkeypatch.setattr(lora_ablation, "SHAPES", (*lora_ablation.SHAPES, ("o_proj", 1)))
    assert main([*given, "--samples", "12"]) == 0
    again = json.loads((tmp_path / "shapes.json").read_text())
    assert again["rows"][:2] == found["rows"] and len(again["rows"]) == 3
    assert main([*given, "--samples", "13"]) == 2
    assert "measured with samples 12, not 13" in capsys.readouterr().err


def test_a_missing_corpus_is_said(tmp_path, capsys):
    asked = ["--data", str(tmp_path / "none.jsonl"), "--out", str(tmp_path / "o.json")]
    assert main(["evaluate", "lora_ablation", *asked]) == 2
    assert "write one with" in capsys.readouterr().err
