"""How the headline model and its parts are trained where time or a GPU is given: by seconds, and in bfloat16."""

import json
import math
import time
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from backend.__main__ import main
from backend.encoder_decoder import pairs
from backend.encoder_decoder.model import load
from backend.encoder_decoder.pairs import IGNORED, Pair
from backend.record import jsonlines
from backend.refused import Refused
from backend.terminal import WRONG
from backend.training import dropout, encoder_decoder, timed
from backend.training.dropout import drop, drop_within
from backend.training.encoder_decoder import train, train_base
from backend.training.settings import HeadlineSettings, TrainSettings
from backend.training.timed import Timed

WORDS = "a small tool for reading and writing files of many kinds with fast tests".split()
PAIRS = [Pair(" ".join(WORDS[i % 9 :]), " ".join(WORDS[i % 9 : i % 9 + 3])) for i in range(64)]
SMALL = HeadlineSettings(steps=2, batch=8, width=64, layers=1, warmup=1, source_tokens=300)
KINDS = ["none", "ldpe", "orpe", "lrpe", "pre", "rpe", "len_init", "lc", "laam"]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return train_base(PAIRS, PAIRS[:8], SMALL, tmp_path_factory.mktemp("base") / "base", lambda _: None)


def row(base, out, **more):
    writer = load(str(base))
    asked = TrainSettings(**{"method": "ldpe", "model": str(base), "budget": 100, "rank": 2, "gain": 1.0, **more})
    return train(writer.model, writer.tokenizers, PAIRS, asked, out, lambda _: None)


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(timed.time, "monotonic", lambda: now[0])
    return now


def test_the_rate_rises_over_the_warm_up_and_falls_with_what_is_left(clock):
    ending = Timed(10, 1000, 4)
    assert [ending.rate(step) for step in (0, 1)] == [0.25 * (1 - 0 / 1000), 0.5 * (1 - 1 / 1000)]
    ending.on_train_begin()
    clock[0] += 5
    assert ending.share(10) == 0.5 and ending.rate(10) == 0.5
    # Steps count where more of them are done than of the time.
    assert ending.share(900) == 0.9
    clock[0] += 60
    assert ending.share(10) == 1 and ending.rate(10) == 0


def test_a_model_is_trained_for_so_many_seconds(tmp_path):
    asked = replace(SMALL, steps=10**6, seconds=2.0, averaged=3)
    began = time.monotonic()
    out = train_base(PAIRS, PAIRS[:8], asked, tmp_path / "timed", lambda _: None)
    assert 2 <= time.monotonic() - began < 60
    about = json.loads((out / "training.json").read_text())
    assert 2 <= about["result"]["seconds"] < 20 and about["settings"]["schedule"] == "linear"
    [*_, last] = jsonlines.read(out / "training.jsonl")
    assert last["step"] == about["result"]["step"] < 10**6 and math.isfinite(last["eval_loss"])
    folders = list((tmp_path / "timed.training").glob("checkpoint-*"))
    assert len(folders) == 3
    state = json.loads((tmp_path / "timed.training" / f"checkpoint-{last['step']}" / "trainer_state.json").read_text())
    rates = [line["learning_rate"] for line in state["log_history"] if "learning_rate" in line]
    assert all(after <= before for before, after in pairwise(rates))
    assert load(str(out)).tokenizers.by_character


def test_a_row_is_ended_by_its_time_and_says_what_it_saw(base, tmp_path):
    adapter = row(base, tmp_path / "timed", samples=10**7, seconds=1.0)
    about = json.loads((adapter.path / "training.json").read_text())["result"]
    assert 0 < about["samples"] < 10**7 and 1 <= about["seconds"] < 20


def test_a_row_with_time_to_spare_sees_all_its_samples(base, tmp_path):
    adapter = row(base, tmp_path / "whole", samples=40, seconds=300.0)
    untimed = row(base, tmp_path / "untimed", samples=40)
    results = [json.loads((one.path / "training.json").read_text())["result"] for one in (adapter, untimed)]
    assert results[0]["samples"] == results[1]["samples"] > 0


def test_seconds_are_for_models_with_an_encoder_and_no_less_than_none(tmp_path, capsys):
    file = tmp_path / "texts.jsonl"
    file.write_text(json.dumps({"prompt": "Why?", "response": "So it is."}))
    command = ["train", "--method", "ldpe", "--seconds", "5", "--data", str(file), "--out", str(tmp_path / "out")]
    assert main(command) == WRONG and "--seconds are for models that have an encoder" in capsys.readouterr().err
    with pytest.raises(Refused, match="seconds is -1"):
        TrainSettings(method="ldpe", seconds=-1)


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_trains_in_bfloat16_as_on_a_gpu(kind, base, tmp_path, monkeypatch):
    made, seen = encoder_decoder.get_peft_model, []

    def watched(model, config):
        model.get_encoder().register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))
        return made(model, config)

    monkeypatch.setattr(encoder_decoder, "get_peft_model", watched)
    monkeypatch.setattr(encoder_decoder, "_in_bfloat16", lambda: True)
    adapter = row(base, tmp_path / kind, method=kind, samples=40, beside=kind not in ("none", "ldpe", "laam"))
    log = jsonlines.read(tmp_path / f"{kind}.training" / "training.jsonl")
    assert seen and all(seen) and 0 < log[-1]["train_loss"] < 6
    assert kind == "none" or adapter.method == kind
    monkeypatch.setattr(encoder_decoder, "_in_bfloat16", lambda: False)
    seen.clear()
    row(base, tmp_path / f"{kind} whole", method=kind, samples=40)
    assert seen and not any(seen)


def test_a_model_is_gone_on_with_in_its_own_shape_at_another_dropout(base, tmp_path, monkeypatch):
    shares = []
    monkeypatch.setattr(dropout, "drop", lambda outputs, share: shares.append(share) or outputs)
    more = HeadlineSettings(steps=1, batch=8, warmup=0, start=str(base), dropout=0.3)
    train_base(PAIRS, PAIRS[:8], more, tmp_path / "more", lambda _: None)
    about = json.loads((tmp_path / "more" / "training.json").read_text())["settings"]
    assert about["width"] == 64 and about["layers"] == 1 and about["source_tokens"] == 300
    assert json.loads((tmp_path / "more" / "config.json").read_text())["vocab_size"] == 300
    # Of one layer on each side: attention to itself, to the source, and what feeds forward.
    assert shares == [0.3] * 5


@given(share=st.floats(0, 0.9), seed=st.integers(0, 2**16))
@settings(max_examples=20, deadline=None)
def test_dropout_drops_its_share_evenly_and_keeps_the_mean(share, seed):
    torch.manual_seed(seed)
    ones = torch.ones(101, 997, requires_grad=True)
    made = drop(ones, share)
    nearest = round(share * 256) / 256
    empty = (made.detach() == 0).float()
    assert float(empty.mean()) == pytest.approx(nearest, abs=0.01)
    assert float(empty.mean(0).std()) == pytest.approx(math.sqrt(nearest * (1 - nearest) / 101), abs=0.01)
    assert float(made.detach().max()) == pytest.approx(1 / (1 - nearest))
    made.sum().backward()
    assert torch.equal(ones.grad, made.detach())


def test_nothing_is_dropped_of_a_model_that_is_not_trained():
    model = nn.ModuleDict({"fc2": nn.Linear(8, 800), "other": nn.Linear(8, 800)})
    drop_within(model, 0.5)
    rows = torch.randn(4, 8)
    assert (model["fc2"](rows) == 0).any() and not (model["other"](rows) == 0).any()
    assert not (model.eval()["fc2"](rows) == 0).any()


def test_a_batch_shows_the_decoder_what_stands_before_each_label(base):
    writer = load(str(base))
    found = pairs.Examples.of(PAIRS[:3], writer.tokenizers, writer.model.config, 20, 96)
    batch = found.batch(found.rows)
    for row_, inputs, labels in zip(found.rows, batch["decoder_input_ids"], batch["labels"], strict=True):
        count = len(row_["labels"])
        assert inputs[:count].tolist() == [found.start, *row_["labels"][:-1]]
        assert set(inputs[count:].tolist()) <= {found.pad} and set(labels[count:].tolist()) <= {IGNORED}
