"""What the speed bench counts beside time: bytes of the cache, and keys rotated for a token."""

import pytest
import torch
from policies import asking
from reading import run

from backend.evaluation import speed
from backend.evaluation.speed import Bench, Reader
from backend.positions import Policy


@pytest.fixture
def bench(monkeypatch) -> Bench:
    monkeypatch.setattr(speed, "READINGS", 2)
    text = torch.randint(3, 100, (64,), generator=torch.Generator().manual_seed(1))
    return Bench(text, copy=1e9, tokens=4)


@pytest.mark.parametrize(
    "asked, rotations", [({}, 1), ({"window": 12, "sinks": 2}, 1), ({"pic": "dynamic", "ratio": 4}, 2)]
)
def test_the_engine_rotates_as_many_keys_for_a_token_however_long_the_text(tiny, bench, asked, rotations):
    runner = run(tiny("llama"))
    policy = Policy.of(asking(**asked))
    rows = [bench.case("engine", n, lambda: speed.engine_readers(runner, policy), runner)[0] for n in (32, 64)]
    assert [row.rotations for row in rows] == [rotations] * 2
    assert all(row.cache == speed.engine_readers(runner, policy)[""].held() for row in rows)


def test_algorithm_1_rotates_all_keys_for_a_token_and_transformers_one(tiny, bench):
    model, policy = tiny("llama"), Policy.of(asking(pic="dynamic", ratio=4))
    (again,) = bench.case("again", 32, lambda: speed.algorithm1_readers(model, policy, 64), model)
    written = speed.WARM + speed.STRETCHES * bench.tokens
    assert again.rotations == 32 + (written + 1) / 2
    (plain,) = bench.case("plain", 32, lambda: speed.transformers_readers(model), model)
    config = model.config
    assert plain.rotations == 1
    assert plain.cache == 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 32 * 4


def test_rates_are_medians_of_stretches(bench, monkeypatch):
    clock = iter([0, 9, 0, 1, 1, 3, 3, 7])
    monkeypatch.setattr(speed.time, "perf_counter", lambda: next(clock))
    read = Reader(lambda ids: torch.eye(9)[3], lambda: 0, lambda: 0)
    assert bench._write(read, torch.tensor(1)) == bench.tokens / 2
