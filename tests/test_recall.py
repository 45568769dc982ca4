"""After a long text: what is written depends on no other visit, and the passkey lies where it should."""

import pytest
import torch

from backend.engine import Lab
from backend.evaluation import reader
from backend.evaluation.experiments import continuation, experiments
from backend.evaluation.experiments import passkey_retrieval as retrieval
from backend.evaluation.experiments.continuation import continuations
from backend.evaluation.experiments.passkey_retrieval import hidden, passkeys
from backend.evaluation.perplexity import tokenise
from backend.evaluation.reader import Reader
from backend.evaluation.texts import TRUNCATION, documents
from backend.settings import RunSettings

POLICIES = {"plain": {}, "Λ": {"window": 128}, TRUNCATION: {}}


@pytest.fixture(scope="module")
def lab(models) -> Lab:
    return Lab(models)


@pytest.fixture(scope="module")
def ids(lab) -> torch.Tensor:
    return tokenise(lab, documents(None, 1)["pydoc"], RunSettings(prompt="-"), 600)


@pytest.mark.parametrize("policy", POLICIES)
def test_lengths_visited_together_or_apart_give_the_same_text(lab, ids, policy, monkeypatch):
    monkeypatch.setattr(reader, "WINDOW", 128)
    reads = Reader.of(lab, "embedded", POLICIES[policy], policy == TRUNCATION)
    together = list(reads.after(ids, [200, 300], 8))
    apart = [next(reads.after(ids, [length], 8)) for length in (200, 300)]
    assert together == apart and len(together[0]) == 8


def test_truncation_reads_the_last_tokens_alone(lab, ids, monkeypatch):
    monkeypatch.setattr(reader, "WINDOW", 128)
    (written,) = Reader.of(lab, "embedded", {}, truncated=True).after(ids, [300], 8)
    assert written == next(Reader.of(lab, "embedded", {}).after(ids[172:300], [128], 8))


def test_continuations_are_held_against_the_text_itself(lab, ids, monkeypatch):
    monkeypatch.setattr(continuation, "WRITTEN", 20)
    rows = continuations(lab, "embedded", "plain", {"a": ids, "short": ids[:100]}, [128, 256])
    assert [(row["tokens"], row["documents"]) for row in rows] == [(128, 1), (256, 1)]
    assert all(0 <= row["ROUGE-Lsum"] <= 1 and 0 <= row["BLEU"] <= 100 for row in rows)


@pytest.mark.parametrize("depth", [0.1, 0.9])
def test_a_passkey_lies_at_its_depth_and_the_prompt_has_its_length(lab, ids, depth):
    tokenizer = lab.models.load("embedded").tokenizer
    found, back = hidden(tokenizer, "12345", ids, depth)
    text = tokenizer.decode(found)
    assert len(found) == len(ids) and text.count("12345") == 2 and text.endswith(retrieval.QUESTION)
    assert text.index("12345") / len(text) == pytest.approx(depth, abs=0.12)
    sentence = tokenizer.decode(found[-back:])
    assert sentence.startswith("\n\nThe pass key is 12345.") and sentence.count("12345") == 2


@pytest.mark.scale
def test_lambda_tells_no_passkey_outside_its_window(lab, ids, monkeypatch):
    monkeypatch.setattr(retrieval, "DEPTHS", (0.1,))
    rows = {name: passkeys(lab, "embedded", name, [ids[:512]], [512, 1024], keys=2) for name in ("plain", "Λ 128")}
    assert all(len(found) == 1 and found[0]["back"] > 128 for found in rows.values())
    assert rows["plain"][0]["recalled"] > rows["Λ 128"][0]["recalled"] == 0


def test_passkeys_are_hidden_alike_under_every_policy(in_lab, monkeypatch):
    monkeypatch.setattr(retrieval, "DEPTHS", (0.5,))
    experiment, said = experiments["passkey_retrieval"], []
    *_, whole = experiment.measure(experiment.Options(lengths=(96,), keys=1), None, said.append)
    assert [row["policy"] for row in whole["rows"]] == list(retrieval.WINDOWS) and whole["keys"] == 1
    assert all(line.endswith("asked for, 1 counted") for line in said) and len(said) == 3
    assert len({row["back"] for row in whole["rows"]}) == 1
