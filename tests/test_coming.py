"""How far a model has come that is being loaded, and what is refused before its weights are read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from conftest import tiny_tokenizer
from hub import serving
from playwright.sync_api import expect
from starlette.applications import Starlette
from starlette.testclient import TestClient
from transformers import AutoConfig, AutoModelForCausalLM

from app import coming
from backend.models import hub, pool
from backend.models.footprint import footprint
from backend.models.pool import Coming, ModelError, Models
from tests.test_app_browser import address, demo, lab, runs, visit  # noqa: F401

ROOT = Path(__file__).parents[1]
REPO = "somebody/some-model"
# huggingface_hub reads the address of its hub once.
PROGRAM = """
import json, sys, threading, time
from backend.models.pool import Models

models, seen, done = Models([sys.argv[1]]), [], []
thread = threading.Thread(target=lambda: done.append(models.load(sys.argv[1], "fp32").capabilities.parameters))
thread.start()
while thread.is_alive():
    if (coming := models.coming(sys.argv[1], "fp32")) and (now := list(vars(coming).values())) not in seen:
        seen.append(now)
    time.sleep(0.005)
print(json.dumps([seen, models.coming(sys.argv[1], "fp32"), done]))
"""


def fetched(where: str, cache: Path) -> tuple[list[list[int]], None, list[int]]:
    """What was seen of a model on its way from the hub, what of one that has come, and its parameters."""
    given = {"HF_ENDPOINT": where, "HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-c", PROGRAM, REPO]
    ran = subprocess.run(command, cwd=ROOT, env=os.environ | given, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def test_a_model_of_the_hub_says_how_far_it_has_come(tiny_folder, tmp_path: Path):
    folder = tiny_folder("llama", hidden_size=512, intermediate_size=2048)
    sizes = sum(each.stat().st_size for each in folder.iterdir())
    with serving(REPO, folder) as where:
        seen, after, done = fetched(where, tmp_path)
        parts = {fetched for size, fetched, memory in seen if size and not memory}
        assert {size for size, _, _ in seen} <= {0, sizes} and 0 in parts and any(0 < part < sizes for part in parts)
        assert seen[-1][1] == sizes and seen[-1][2] == 4 * done[0] and after is None
        again, _, _ = fetched(where, tmp_path)
        assert all(size == 0 for size, _, _ in again) and again[-1][2] == seen[-1][2]
    with serving(REPO, folder, lists=False) as where:
        assert fetched(where, tmp_path)[2] == done


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "mpt", "qwen2"])
def test_the_footprint_is_that_of_the_weights(family: str, tiny_folder):
    folder = str(tiny_folder(family))
    for precision, kind in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=kind)
        own = sum(weight.numel() * weight.element_size() for weight in model.parameters())
        assert footprint(type(model), model.config, precision, fused=False) == own
        assert footprint(type(model), model.config, precision, fused=True) == own
        assert own > footprint(type(model), model.config, "int8", fused=False) > own / 4
        assert footprint(type(model), model.config, "4bit", fused=False) < own


def test_what_memory_has_no_place_for_is_refused_before_it_is_read(tmp_path: Path, tiny_folder):
    # Its weights, of some 5 TB, are not even there.
    large = AutoConfig.for_model(
        "llama", vocab_size=128, hidden_size=32_768, intermediate_size=131_072, num_hidden_layers=160,
        num_attention_heads=256, num_key_value_heads=256,
    )  # fmt: skip
    large.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    small = str(tiny_folder("llama"))
    models = Models([str(tmp_path), small])
    there = models.load(small)
    with pytest.raises(ModelError, match=r"takes [\d.]+ GB of memory at bf16 and [\d.]+ GB can be had: choose a lower"):
        models.load(str(tmp_path))
    assert models.coming(str(tmp_path)) is None and models.load(small).model is there.model


@pytest.mark.parametrize(
    ("free", "kept", "words"),
    [
        (None, 2, None),
        (100, 2, None),
        (80, 2, None),
        (79, 1, None),
        (40, 0, None),
        (39, 3, r"'x' takes 10.0 GB of memory at bf16 and 9.9 GB can be had: choose a lower precision or"),
    ],
)
def test_as_many_models_go_as_hold_what_another_needs(free: int | None, kept: int, words: str | None, monkeypatch):
    """free: of the 100 that are needed; three models hold 20 each."""
    unit = 10**8
    models = Models(["a", "b", "c", "x"])
    for name in "abc":
        models._slots[name, "bf16"] = pool._Slot(loaded=object(), memory=20 * unit)
    left = lambda: [key for key, slot in models._slots.items() if slot.loaded]  # noqa: E731
    monkeypatch.setattr(pool, "free", lambda _: None if free is None else (free + 20 * (3 - len(left()))) * unit)
    if words is None:
        models._make_room(("x", "bf16"), 100 * unit, torch.device("cpu"))
    else:
        with pytest.raises(ModelError, match=words):
            models._make_room(("x", "bf16"), 100 * unit, torch.device("cpu"))
    assert len(left()) == kept and left() == [("a", "bf16"), ("b", "bf16"), ("c", "bf16")][3 - kept :]


def test_what_runs_still_hold_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    models = Models(["a", "x"])
    models._slots["a", "bf16"] = pool._Slot(loaded=object(), memory=10**9)
    monkeypatch.setattr(pool, "free", lambda _: 5 * 10**8)
    with pytest.raises(ModelError, match=r"1.2 GB of memory at bf16 and 0.5 GB are free: .* runs on other models"):
        models._make_room(("x", "bf16"), 12 * 10**8, torch.device("cpu"))


def test_what_the_disk_has_no_place_for_is_refused_before_it_is_fetched():
    with pytest.raises(ModelError, match=r"take 1000000000\.0 GB and the disk has [\d.]+ GB free: make room, or set"):
        hub._check_disk(REPO, 10**18)


def test_what_a_page_hears_of_a_model():
    models = Models([REPO])
    client = TestClient(Starlette(routes=[coming.route(lambda: models)]))
    asked = {"model": REPO, "precision": "bf16"}
    assert client.get("/lab/coming", params=asked).json() is None and client.get("/lab/coming").json() is None
    slot = models._slots.setdefault((REPO, "bf16"), pool._Slot())
    for now, words in (
        (Coming(), coming.LOADED),
        (Coming(16_100_000_000, 3_140_000_000), "The model is being fetched: 3.1 of 16.1 GB …"),
        (Coming(9, 9, 16_060_000_000), "The model is being loaded: 16.1 GB of memory …"),
    ):
        slot.coming = now
        assert client.get("/lab/coming", params=asked).json() == words


def test_the_page_says_how_far_a_chosen_model_has_come(visit, lab, monkeypatch: pytest.MonkeyPatch):  # noqa: F811
    read, release = pool._weights, threading.Event()

    def resting(*given):
        assert release.wait(300)
        return read(*given)

    lab.models._slots.pop(("embedded", "fp32"), None)
    page = visit().page
    monkeypatch.setattr(pool, "_weights", resting)
    note = page.locator("#model-state [role=status]")
    described = note.inner_text()
    page.get_by_text("Advanced", exact=True).click()
    page.locator("#choice-precision label", has=page.locator("input[value=fp32]")).click()
    try:
        expect(note).to_have_text("The model is being loaded: 0.5 GB of memory …")
        expect(note).to_have_attribute("data-state", "busy")
    finally:
        release.set()
    expect(note).to_have_attribute("data-state", "good")
    expect(note).to_contain_text("fp32 on")
    page.locator("#choice-precision label", has=page.locator("input[value=bf16]")).click()
    expect(note).to_have_text(described)
    lab.models._slots.pop(("embedded", "fp32"))
