"""Λ and truncation at equal computation: operations counted one by one, nats against transformers, going on from a
file."""

import json

import pytest
import torch

from backend.__main__ import main
from backend.engine import Lab
from backend.evaluation.bench.timing import read_operations
from backend.evaluation.experiments import experiments
from backend.evaluation.experiments.compute_matched import ATTENTIONS, LAMBDA, nats, operations
from backend.evaluation.texts import documents
from backend.models.pool import Models
from backend.settings import RunSettings

EACH, QUARTER = ATTENTIONS[1:]


@pytest.fixture(scope="module")
def small(tiny_folder) -> tuple[Lab, str]:
    folder = str(tiny_folder("llama"))
    return Lab(Models([folder])), folder


@pytest.mark.parametrize("window, first, stop", [(8, 40, 100), (64, 0, 100), (20, 37, 90), (200, 16, 64)])
def test_operations_are_those_of_every_token_and_all_that_it_sees(small, window, first, stop):
    lab, folder = small
    settings = RunSettings(prompt="x", model=folder, window=window)
    runner = lab.runner(settings)
    base = read_operations(1, 1, runner)
    key = read_operations(2, 2, runner) - base  # of half a key a token, in the mean of two tokens
    body, key = base - 2 * key, 2 * key

    def whole(seen: list[int]) -> float:
        return sum(body + key * count for count in seen)

    every = [min(place + 1, window + settings.sinks) for place in range(first, stop)]
    counted = stop - first
    assert operations(LAMBDA, window, runner, first, stop) == pytest.approx(whole(every) / counted)
    for attention, stride in ((EACH, window), (QUARTER, window // 4)):
        anew = []
        for place in range(first, stop, stride):
            start, end = max(0, place - max(1, window - stride // 2)), min(stop, place + stride)
            anew += [seen + 1 for seen in range(end - start)]
        assert operations(attention, window, runner, first, stop) == pytest.approx(whole(anew) / counted)


def test_a_token_read_anew_by_quarters_costs_four_and_a_half(small):
    lab, folder = small
    runner = lab.runner(RunSettings(prompt="x", model=folder))
    body = read_operations(1, 1, runner)
    assert operations(EACH, 8, runner, 64, 128) / body == pytest.approx(1.5, rel=0.1)
    assert operations(QUARTER, 8, runner, 64, 128) / body == pytest.approx(4.5, rel=0.1)


@pytest.mark.scale
def test_nats_are_those_of_transformers(models):
    loaded = models.load("embedded")
    ids = torch.tensor(loaded.tokenizer(documents(None, 1)["pydoc"][:4000])["input_ids"][:192])

    def theirs(start: int, stop: int, counted: int) -> torch.Tensor:
        with torch.inference_mode():
            logits = loaded.model(ids[None, start:stop]).logits[0, :-1].float()
        return torch.nn.functional.cross_entropy(logits, ids[start + 1 : stop], reduction="none")[-counted:]

    lab = Lab(models)
    pieces = [theirs(place - (32 - 4), place + 8, 8) for place in range(64, 192, 8)]
    assert nats(lab, "embedded", ids, QUARTER, 32, 64) == pytest.approx(float(torch.cat(pieces).mean()), abs=0.02)
    pieces = [theirs(place - 16, place + 32, 32) for place in range(64, 192, 32)]
    assert nats(lab, "embedded", ids, EACH, 32, 64) == pytest.approx(float(torch.cat(pieces).mean()), abs=0.02)
    # A window that holds the whole text is no window.
    plain = float(theirs(0, 192, 128).mean())
    assert nats(lab, "embedded", ids, LAMBDA, 4096, 64) == pytest.approx(plain, abs=0.02)
    assert nats(lab, "embedded", ids, LAMBDA, 16, 64) > plain + 0.02


@pytest.mark.scale
def test_a_run_goes_on_where_it_stopped(in_lab, tmp_path, monkeypatch):
    experiment, said = experiments["compute_matched"], []
    plan = experiment.plan
    monkeypatch.setattr(experiment, "plan", lambda options, say: plan(options, say, first=256, stop=512))
    texts = documents(None, 1) | {"short": "Too short."}
    for name, text in texts.items():
        (tmp_path / f"{name}.txt").write_text(text)
    options = experiment.Options(data=tmp_path, windows=(64, 128))
    first = next(experiment.measure(options, None, said.append))
    assert [row["attention"] for row in first["rows"]] == [LAMBDA]
    before = json.loads(json.dumps(first))
    *_, whole = experiment.measure(options, before, said.append)
    assert len(whole["rows"]) == 6 and whole["rows"][0] == before["rows"][0]
    # How many count, and "pydoc 64 Λ" alone; then how many again, and the other five.
    assert len(said) == 8 and "2 texts asked for, 1 counted" in said[0] == said[2]
    assert list(experiment.measure(options, json.loads(json.dumps(whole)), said.append)) == []
    found = {(row["attention"], row["window"]): row for row in whole["rows"]}
    for window in (64, 128):
        assert found[LAMBDA, window]["operations"] < found[EACH, window]["operations"]
        assert found[EACH, window]["operations"] < found[QUARTER, window]["operations"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--windows", "3"], "--windows 3: input should be greater than or equal to 4"),
        (["--documents", "0"], "--documents 0: input should be greater than or equal to 1"),
    ],
)
def test_a_wrong_number_is_refused(tmp_path, capsys, arguments, message):
    assert main(["evaluate", "compute_matched", "--out", str(tmp_path / "o.json"), *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "content, message",
    [
        ("{}", "it is no result of this command"),
        ('{"model": "other", "rows": []}', "it was measured with model other, not embedded"),
        ('{"model": "embedded", "rows": [{"window": 1}]}', "it is no result of this command"),
        ("{", "it is no JSON"),
    ],
)
def test_a_file_that_is_no_such_result_is_refused(tmp_path, capsys, content, message):
    (tmp_path / "o.json").write_text(content)
    assert main(["evaluate", "compute_matched", "--out", str(tmp_path / "o.json")]) == 2
    assert message in capsys.readouterr().err and (tmp_path / "o.json").read_text() == content


def test_texts_that_are_too_short_leave_nothing_to_measure(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("Too short.")
    assert main(["evaluate", "compute_matched", "--data", str(tmp_path), "--out", str(tmp_path / "o.json")]) == 2
    assert "give texts of at least 12,288 tokens" in capsys.readouterr().err
