"""What is kept of 002's three diagnoses agrees with the probes of a run, and stands where it was seen."""

import numpy as np
import pytest
import torch

from backend.engine import Lab
from backend.evaluation.experiments import attention_diagnostics as diagnoses
from backend.evaluation.experiments import experiments
from backend.evaluation.perplexity import read, tokenise
from backend.evaluation.texts import documents
from backend.settings import RunSettings, Watch


@pytest.fixture(scope="module")
def lab(models) -> Lab:
    return Lab(models)


@pytest.fixture(scope="module")
def ids(lab) -> torch.Tensor:
    return tokenise(lab, documents(None, 1)["pydoc"], RunSettings(prompt="-"), 1200)


@pytest.mark.parametrize("length", [17, 64, 1200, 16384])
def test_positions_ascend_within_the_text_and_hold_its_start_and_end(length):
    found = diagnoses.positions(length)
    assert found[:16] == list(range(16)) and found[-1] == length - 1
    assert found == sorted(set(found))


@pytest.mark.scale
@pytest.mark.parametrize("policy", [{}, {"window": 128, "sinks": 4}])
def test_a_reading_is_what_the_probes_of_a_text_show(lab, ids, policy):
    settings = RunSettings(prompt="-", watch=Watch(layer=7, head=2), **policy)
    found, states = diagnoses.reading(lab, settings, ids, 2)
    chunks = list(read(lab, ids, settings))
    assert found["position"] == [chunk.position for chunk in chunks]
    assert found["attended"] == [chunk.attended for chunk in chunks]
    np.testing.assert_allclose(found["entropy"], [chunk.entropy.mean(-1) for chunk in chunks], atol=2e-3)
    assert [row["layer"] for row in found["logits"]] == list(range(30))
    np.testing.assert_allclose(found["logits"][7]["mean"], chunks[-1].logits.mean, atol=0.02)
    at = dict(zip(chunks[-1].state_positions.tolist(), chunks[-1].states, strict=True))
    same = [i for i, place in enumerate(diagnoses.positions(len(ids))) if place in at]
    assert same and all(np.array_equal(states[i], at[diagnoses.positions(len(ids))[i]]) for i in same)


def test_the_result_holds_both_policies_of_the_first_text_and_the_states_of_all(lab, ids, in_lab, tmp_path):
    tokenizer = lab.models.load("embedded").tokenizer
    for name, part in zip("abc", ids.split(500), strict=True):
        (tmp_path / f"{name}.txt").write_text(tokenizer.decode(part.tolist()), "utf-8")
    experiment = experiments["attention_diagnostics"]
    *_, result = experiment.measure(experiment.Options(data=tmp_path, length=400), None, str)
    assert [(row["document"], row["policy"]) for row in result["readings"]] == [("a", "plain"), ("a", "Λ")]
    assert [text["document"] for text in result["states"]["texts"]] == ["a", "b"], "the third is too short"
    assert 0 < sum(result["states"]["explained"]) <= 1
    with pytest.raises(ValueError, match="no text has 4,000 tokens"):
        list(experiment.measure(experiment.Options(data=tmp_path, length=4000), None, str))
