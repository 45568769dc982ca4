"""Weights that are no numbers: one sentence, what was written kept and saved, wherever a token is chosen."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import tiny_model, tiny_tokenizer
from reading import run

from backend import Lab, RunSettings
from backend.__main__ import main
from backend.inference.landing import Fork, Landing
from backend.inference.responses import respond
from backend.models.pool import Models
from backend.record.trace import Trace
from backend.steps import Finish, Step
from backend.text.finite import check_finite

Damage = Callable[[torch.nn.Module, float], None]
MESSAGE = "logits are not finite"


def norm(model: torch.nn.Module, value: float) -> None:
    model.model.norm.weight[3] = value


def head(model: torch.nn.Module, value: float) -> None:
    model.lm_head.weight[7] = value


def layer(model: torch.nn.Module, value: float) -> None:
    model.model.layers[1].mlp.down_proj.weight[0, 0] = value


def damaged(folder: Path, damage: Damage, value: float) -> Path:
    model = tiny_model("llama")
    damage(model, value)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def written(folder: Path, **changes) -> tuple[list[Step], Finish]:
    *steps, finish = Lab(Models([str(folder)])).stream(
        RunSettings(prompt="Why?", model=str(folder), **({"precision": "fp32", "max_new_tokens": 12} | changes))
    )
    return steps, finish


@pytest.mark.parametrize("changes", [
    {}, {"temperature": 1}, {"temperature": 1, "top_k": 5, "top_p": 0.9}, {"repetition_penalty": 1.2},
    {"method": "prompted", "landing": 3, "target": 4}, {"method": "exp_decay", "target": 2}, {"precision": "bf16"},
    {"pic": "dynamic", "ratio": 4, "recent": 2}, {"window": 4, "sinks": 1},
], ids=str)
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("damage", [norm, head, layer])
def test_a_run_ends_with_a_sentence(damage: Damage, value: float, changes: dict, tmp_path: Path):
    steps, finish = written(damaged(tmp_path, damage, value), **changes)
    assert (steps, finish.reason) == ([], "error")
    assert MESSAGE in finish.message and "choose fp32" in finish.message


def test_what_was_written_before_is_kept(tmp_path: Path, capsys):
    """One row of the embeddings is damaged: that of a token which the model writes only after others."""
    whole = tmp_path / "whole"
    tiny_model("llama").save_pretrained(whole)
    tiny_tokenizer().save_pretrained(whole)
    tokens = [step.token for step in written(whole)[0]]
    index = next(i for i, token in enumerate(tokens) if i >= 2 and token not in tokens[:i])

    def row(model: torch.nn.Module, value: float) -> None:
        model.model.embed_tokens.weight[tokens[index]] = value

    folder = damaged(tmp_path / "row", row, math.nan)
    given = ["--allow-model", str(folder), "--model", str(folder), "--precision", "fp32", "--prompt", "Why?"]
    assert main(["generate", *given, "--save", str(tmp_path / "run.json")]) == 1
    saved = Trace.load(tmp_path / "run.json")
    assert saved.finish is not None and saved.finish.reason == "error" and MESSAGE in saved.finish.message
    assert [step.token for step in saved.steps] == tokens[: index + 1] and saved.finish.tokens == index + 1
    assert capsys.readouterr().out == saved.finish.text + "\n"


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_fails_with_a_sentence_and_saves(as_json: bool, tmp_path: Path, capsys):
    folder, file = str(damaged(tmp_path / "model", norm, math.nan)), tmp_path / "run.json"
    given = ["generate", "--allow-model", folder, "--model", folder, "--prompt", "hi", "--save", str(file)]
    assert main([*given, *(["--json"] if as_json else [])]) == 1
    shown = capsys.readouterr()
    assert MESSAGE in shown.err.splitlines()[-1] and "--" not in shown.err.splitlines()[-1]
    saved = Trace.load(file)
    assert saved.finish is not None and saved.finish.reason == "error" and MESSAGE in saved.finish.message
    if as_json:
        (line,) = shown.out.splitlines()
        assert json.loads(line)["event"] == "finish"


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1}, {"temperature": 1, "top_k": 5}])
@pytest.mark.parametrize("damage", [norm, head, layer])
def test_a_response_ends_with_a_sentence(damage: Damage, sampling: dict[str, float]):
    model = tiny_model("llama")
    damage(model, math.nan)
    with pytest.raises(FloatingPointError, match=MESSAGE):
        respond(run(model), torch.arange(3, 9), RunSettings(prompt="-", max_new_tokens=4, **sampling), [2])


def test_landing_ends_with_a_sentence():
    landing = Landing(tiny_tokenizer(), [2], None, 2, 0, "tokens", 9, lambda: False)  # type: ignore[arg-type]
    with pytest.raises(FloatingPointError, match=MESSAGE):
        next(landing.token(Fork(torch.full((128,), math.nan), None, None, [], [], 4)))  # type: ignore[arg-type]


@pytest.mark.parametrize("values, fine", [
    ([0.0, 1.0], True), ([-math.inf, 3e38], True), ([math.nan, 1.0], False), ([1.0, math.nan], False),
    ([math.inf, 0.0], False), ([-math.inf, -math.inf], False),
])
def test_a_token_that_is_shut_out_is_no_damage(values: list[float], fine: bool):
    rows = torch.tensor([[0.0, 1.0], values])
    if fine:
        return check_finite(rows)
    with pytest.raises(FloatingPointError):
        check_finite(rows)
