"""What trainings were given: recorded by each, and held against each other."""

import json
from dataclasses import replace

import pytest
import torch

from backend.methods import methods
from backend.models import adapters
from backend.training import train as training
from backend.training.budget import Budget, budgets, differences
from tests.test_training import letters, quick, tiny_loaded, trained


def given(folder, method="ldpe", texts=None, **changes):
    return training.train(tiny_loaded(), texts or letters(), quick(method, **changes), folder / method, str).path


def card(folder):
    return (folder / "README.md").read_text()


def test_a_training_tells_its_budget_and_every_one_before_it(tmp_path):
    first = given(tmp_path / "1")
    second = given(tmp_path / "2", start=str(first), texts=letters(12))
    checksum = adapters.Adapter.load(first).sha256
    last, before = budgets(second)
    assert (before.texts, before.start, last.texts, last.start) == (24, "", 12, checksum)
    log = json.loads((second / "training.jsonl").read_text().splitlines()[-1])
    assert (last.labels, last.samples) == (log["labels"], log["samples"])
    assert f"| Distinct texts | 12 |\n| SHA-256 of the set of texts | {last.texts_sha256} |" in card(second)
    assert f"SHA-256 {checksum}" in card(second)
    assert f"of all trainings | {last.labels + before.labels:,} |" in card(second)
    assert "unrecorded" not in card(second)


def test_texts_are_those_seen_and_their_set_has_one_hash(tmp_path):
    few = budgets(given(tmp_path / "few", texts=letters(24), longest=20))[0]
    again = budgets(given(tmp_path / "again", texts=letters(24)[::-1] + letters(24), longest=20))[0]
    assert few.texts == again.texts == 24 and few.texts_sha256 == again.texts_sha256
    part = budgets(given(tmp_path / "part", texts=letters(200), longest=20))[0]
    assert 24 < part.texts <= part.samples < 60


def test_a_stopped_run_counts_its_texts_once(tmp_path):
    settings = quick()
    trained(tmp_path / "whole", settings)
    trained(tmp_path / "parts", settings, stop_at=3)
    texts = [
        training._Run(tiny_loaded(), letters(), settings, tmp_path / name).texts for name in ("whole", "parts")
    ]
    assert texts[1] < texts[0] and len(texts[0]) == 24
    trained(tmp_path / "parts", settings)
    assert training._Run(tiny_loaded(), letters(), settings, tmp_path / "parts").texts == texts[0]


def test_what_an_earlier_version_did_not_count_is_called_unrecorded(tmp_path):
    trained(tmp_path / "ldpe.training", quick(), stop_at=2)
    state = torch.load(tmp_path / "ldpe.training" / training.CHECKPOINT, weights_only=True)
    del state["texts"]
    torch.save(state, tmp_path / "ldpe.training" / training.CHECKPOINT)
    folder = given(tmp_path)
    (budget,) = budgets(folder)
    assert budget.labels and budget.texts is None and budget.texts_sha256 is None
    assert "| Distinct texts | unrecorded |" in card(folder)
    start = given(tmp_path / "2")
    (start / "training.json").unlink()
    later = given(tmp_path / "3", start=str(start))
    assert budgets(later)[-1] == Budget() and "| Before that | unrecorded |" in card(later)


def test_rows_are_held_equal_or_told_apart(tmp_path):
    ldpe, orpe = (given(tmp_path / "1", method) for method in ("ldpe", "orpe"))
    assert differences(ldpe, orpe) == []
    others = [replace(sample, text="others") for sample in letters()]
    assert differences(ldpe, given(tmp_path / "2", texts=others)) == ["the texts"]
    assert differences(ldpe, given(tmp_path / "3", samples=96)) == ["the label tokens"]
    assert differences(ldpe, given(tmp_path / "4", start=str(orpe))) == ["the number of trainings"]


@pytest.mark.parametrize("method", [method.name for method in methods if method.adapter and method.causal])
def test_no_shipped_adapter_claims_a_budget_that_it_did_not_record(method):
    folder = adapters.ROOT / method
    stages = [json.loads((folder / "training.json").read_text())]
    while before := stages[-1].get("resumed_from"):
        stages.append(before)
    recorded = ["budget" in stage and stage["budget"]["texts"] is not None for stage in stages]
    assert ("| Distinct texts | unrecorded |" in card(folder)) != recorded[0]
    # The first training of all went on from none.
    whole = all(recorded) and not stages[-1]["settings"]["start"]
    assert ("unrecorded" in card(folder)) != whole
    assert bool(differences(folder, folder)) != whole
