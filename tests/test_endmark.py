from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from backend.__main__ import main
from backend.evaluation.experiments import eos_probe
from backend.evaluation.experiments.eos_probe import Shown, shown, stops
from backend.inference.signal import constant, signal_rows
from backend.methods.signal import SignalSettings


def test_every_response_ends_once_and_shows_token_and_signal():
    table = torch.randn(7, 16)
    given = shown("ldpe", [3, 5], table, 0.5, torch.Generator().manual_seed(0))
    assert given.last.nonzero().flatten().tolist() == [2, 7]
    settings = SignalSettings("ldpe", 0.5, constant(table, 0.5), eos_probe.LENGTHS)
    rows = torch.cat([signal_rows(settings, torch.arange(n), 0, n, 16) for n in (3, 5)])
    possible = (table[None] + rows[:, None]).transpose(0, 1)
    possible = possible / possible.square().mean(-1, keepdim=True).sqrt()
    assert ((possible - given.inputs).abs().amax(-1) < 1e-5).any(0).all()


def test_a_response_stops_where_the_reader_first_says_so():
    class First(nn.Module):
        def forward(self, inputs):
            return inputs[:, :1]

    says = torch.tensor([-9.0, 9, 9, -9, -9, -9, -9, 9, -9, -9])
    last = torch.tensor([0, 0, 1, 0, 0, 1, 0, 0, 0, 1]).bool()
    found = stops(First(), Shown(says[:, None], last), [3, 3, 4])
    assert found["found"] == pytest.approx(1 / 3) and found["never"] == pytest.approx(1 / 3)
    assert found["loss"] == pytest.approx((0 + 9 + 9) / 3, abs=0.01)


def test_an_end_is_read_from_progress_and_not_from_lrpe(monkeypatch, tmp_path, in_lab):
    monkeypatch.setattr(eos_probe, "STEPS", 150)
    monkeypatch.setattr(eos_probe, "LENGTHS", (5, 64))
    monkeypatch.setattr(eos_probe, "READERS", {"linear": eos_probe.READERS["linear"]})
    assert main(["evaluate", "eos_probe", "--out", str(tmp_path / "endmark.json")]) == 0
    rows = json.loads((tmp_path / "endmark.json").read_text())["rows"]
    found = {(row["signal"], row["numbers"]): row["found"] for row in rows}
    assert len(found) == 8
    assert found["pre", "float32"] > 0.8 and found["lrpe", "float32"] < 0.3


@pytest.mark.parametrize("gain", ["0", "-1", "nan", "inf"])
def test_a_gain_that_is_none_is_refused(gain, capsys):
    assert main(["evaluate", "eos_probe", "--gain", gain]) == 2
    assert "--gain" in capsys.readouterr().err
