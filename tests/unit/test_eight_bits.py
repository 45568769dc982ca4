"""A headline model's weights in eight bits: about half the file, and what is loaded is within half a step a weight."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from backend.encoder_decoder.model import load
from backend.encoder_decoder.pairs import Pair
from backend.models import eight_bits, headlines
from backend.models.eight_bits import EIGHT, WHOLE, pack, packed, readable, unpacked
from backend.training.encoder_decoder import train_base
from backend.training.settings import HeadlineSettings

WORDS = "a small tool for reading and writing files of many kinds with fast tests".split()
PAIRS = [Pair(" ".join(WORDS[i % 9 :]), " ".join(WORDS[i % 9 : i % 9 + 3])) for i in range(16)]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    small = HeadlineSettings(steps=1, batch=8, width=64, layers=1, warmup=1)
    return train_base(PAIRS, PAIRS[:8], small, tmp_path_factory.mktemp("base") / "base", lambda _: None)


@pytest.fixture
def cached(monkeypatch, tmp_path):
    monkeypatch.setenv("LENGTH_LAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def small(base, tmp_path):
    folder = tmp_path / "small"
    shutil.copytree(base, folder)
    pack(folder)
    return folder


def test_a_weight_moves_by_half_a_step_of_its_row_at_most():
    torch.manual_seed(0)
    weights = {"matrix": torch.randn(5, 40) * torch.logspace(-3, 2, 5)[:, None], "zeros": torch.zeros(2, 3)}
    weights["norm"] = torch.randn(7).half()
    found = unpacked(packed(weights))
    assert found.keys() == weights.keys() and torch.equal(found["norm"], weights["norm"])
    matrix = weights["matrix"]
    steps = matrix.abs().amax(-1, keepdim=True) / 127
    # And by what float16 cannot hold.
    assert ((found["matrix"].float() - matrix).abs() <= 0.501 * steps + 1e-3 * matrix.abs()).all()
    assert not found["zeros"].any()


def test_a_packed_model_is_half_as_large_and_loaded_as_the_whole_one(base, small, cached):
    assert not (small / WHOLE).exists()
    assert (small / EIGHT).stat().st_size < 0.6 * (base / WHOLE).stat().st_size
    before, after = (load(str(folder)).model.state_dict() for folder in (base, small))
    assert before.keys() == after.keys()
    for name, weight in before.items():
        assert torch.allclose(weight, after[name], atol=float(weight.abs().max()) / 120), name


def test_the_labs_own_model_may_be_packed_too(small, cached, monkeypatch):
    monkeypatch.setattr(headlines, "FOLDER", small)
    assert load(headlines.NAME).tokenizers.by_character
    assert headlines.place(headlines.NAME) == headlines.place(str(small)) != str(small)


def test_it_is_unpacked_once_and_anew_where_the_file_is_another(small, cached):
    first = readable(small)
    made = (first / WHOLE).stat().st_mtime_ns
    assert readable(small) == first and (first / WHOLE).stat().st_mtime_ns == made and first.is_relative_to(cached)
    stored = load_file(small / EIGHT)
    name = f"lm_head.weight{eight_bits.SCALE}"
    save_file({**stored, name: stored[name] * 2}, small / EIGHT)
    second = readable(small)
    assert second != first
    assert not torch.equal(*(load_file(each / WHOLE)[name.removesuffix(".scale")] for each in (first, second)))


def test_a_model_with_whole_weights_is_read_where_it_is(base, cached):
    assert readable(base) == base and headlines.place(str(base)) == str(base) and not cached.exists()
