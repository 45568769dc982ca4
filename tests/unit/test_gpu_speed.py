"""The bench of large shapes with random weights: what it compares, what it leaves out; here with a small shape."""
from __future__ import annotations

import json

import pytest
import torch

from backend.__main__ import main
from backend.evaluation.bench.timing import Bench
from backend.evaluation.experiments import experiments
from backend.evaluation.experiments import gpu_speed as gpu
from backend.record.provenance import CPU

TINY = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "vocab_size": 120,
}  # fmt: skip
WAYS = [
    "eager attention of transformers, by chunks", "engine bf16", "engine bf16, dynamic PIC",
    "dynamic PIC by 004's algorithm 1", "engine bf16, Λ 32", "engine bf16, variable-length attention",
    "engine bf16, variable-length attention, dynamic PIC", "engine bf16, variable-length attention, Λ 32",
    "transformers bf16",
]  # fmt: skip


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(gpu, "SHAPES", {"tiny": TINY})
    # To collect all that earlier tests left would take most of the time.
    monkeypatch.setattr("backend.record.provenance._give_back", lambda: None)


@pytest.fixture
def bench() -> Bench:
    text = torch.randint(3, 100, (96,), generator=torch.Generator().manual_seed(1))
    return Bench(text, copy=1e9, products={torch.bfloat16: 1e12}, tokens=4)


@pytest.mark.scale
def test_each_way_is_timed_beside_flash_attention(tmp_path, monkeypatch):
    out = tmp_path / "bench_gpu.json"
    asked = ["--shape", "tiny", "--contexts", "64", "96", "--windows", "32", "--tokens", "4", "--out", str(out)]
    monkeypatch.setattr(gpu, "begun", lambda text, tokens, report, device: (Bench(
        text % 120, 1e9, {torch.bfloat16: 1e12}, tokens), {"commit": "x"}))  # fmt: skip
    assert main(["evaluate", "gpu_speed", *asked]) == 0
    result = json.loads(out.read_text("utf-8"))
    rows = result["shapes"]["tiny"]
    assert [(row["case"], row["context"]) for row in rows] == [(way, n) for n in (64, 96) for way in WAYS]
    assert all(row["prefill"] > 0 and row["gain"] > 0 and row["bandwidth"] > 0 for row in rows)
    held = {(row["case"], row["context"]): row["token_bytes"] for row in rows}
    assert held["engine bf16, Λ 32", 64] == held["engine bf16, Λ 32", 96] < held["engine bf16", 64]
    shown = experiments["gpu_speed"].card({"bench_gpu.json": result}).text
    assert shown.startswith("tiny:\n\n") and "| 64 |" in shown and "| 96 |" in shown
    assert all(way in shown for way in WAYS if way in {row["case"] for row in rows})


def test_only_the_ways_asked_for_are_timed_and_each_row_is_kept_at_once(tmp_path, monkeypatch, bench):
    monkeypatch.setattr(gpu, "begun", lambda text, tokens, report, device: (bench, {}))
    options = gpu.GpuSpeed.Options(shape=("tiny",), contexts=(64,), windows=(32,), ways=("varlen_window", "plain"))
    found = [result["shapes"]["tiny"] for result in gpu.GpuSpeed().measure(options, None, print)]
    windowed, plain, theirs = "engine bf16, variable-length attention, Λ 32", "engine bf16", "transformers bf16"
    seen = [[row["case"] for row in rows] for rows in found]
    assert seen == [[windowed], [windowed, theirs], [windowed, theirs, plain], [windowed, plain, theirs]]
    assert found[1][1] != found[3][2]


def test_an_unknown_way_is_refused(tmp_path, capsys):
    asked = ["--shape", "tiny", "--ways", "fastest", "--out", str(tmp_path / "o.json")]
    assert main(["evaluate", "gpu_speed", *asked]) == 2
    assert "varlen_dynamic" in capsys.readouterr().err


def test_without_a_gpu_a_shape_must_be_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["evaluate", "gpu_speed", "--out", str(tmp_path / "o.json")]) == 2
    assert "--shape smollm2-135m" in capsys.readouterr().err


@pytest.mark.scale
def test_what_does_not_fit_beside_is_timed_alone_or_left_out(bench, monkeypatch):
    model = gpu.shaped("tiny", "sdpa")
    cache = 2 * 2 * 2 * 16 * 64 * 2
    weights = 2 * sum(p.numel() for p in model.parameters())
    monkeypatch.setattr(gpu, "memory", lambda device: (weights + 1.2 * cache) / gpu.SHARE)
    reported: list[str] = []
    rows = list(gpu.cases("tiny", CPU, bench, [64], [32], reported.append, gpu.WAYS[:5]))
    alone, beside = ("engine bf16", "dynamic PIC by 004's algorithm 1"), ("engine bf16, Λ 32", "transformers bf16")
    assert [row.case for row in rows] == [*alone, *beside]
    assert [row.gain is None for row in rows] == [True, True, False, False] and rows[-1].gain == 1
    assert [line.partition(" after 64 tokens: left out")[0] for line in reported] == [WAYS[0], WAYS[2]]


def test_kernels_share_weights_and_read_alike():
    model = gpu.shaped("tiny", "sdpa")
    eager = gpu.sharing(model, "tiny", "eager")
    assert eager.config._attn_implementation == "eager"
    for mine, theirs in zip(eager.parameters(), model.parameters(), strict=True):
        assert mine.data_ptr() == theirs.data_ptr()
    ids = torch.randint(0, 120, (700,), generator=torch.Generator().manual_seed(0))
    reader = gpu.eager_readers(eager)[""]
    reader.read(ids)
    assert reader.rotations() == 700 and reader.held() == 2 * 2 * 2 * 16 * 700 * 2
    expected = model(ids[None]).logits[0, -1]
    found = gpu.eager_readers(eager)[""].step(ids)
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0.02)
