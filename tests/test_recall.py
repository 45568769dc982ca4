"""After a long text: what is written depends on no other visit, and the passkey lies where it should."""

import pytest
import torch

from backend.engine import Lab
from backend.evaluation import recall
from backend.evaluation.fluency import documents
from backend.evaluation.perplexity import tokenise
from backend.evaluation.recall import continuations, hidden, passkeys, reader
from backend.settings import RunSettings


@pytest.fixture(scope="module")
def lab(models) -> Lab:
    return Lab(models)


@pytest.fixture(scope="module")
def ids(lab) -> torch.Tensor:
    return tokenise(lab, documents(None, 1)["pydoc"], RunSettings(prompt="-"), 600)


@pytest.mark.parametrize("policy", recall.POLICIES)
def test_lengths_visited_together_or_apart_give_the_same_text(lab, ids, policy, monkeypatch):
    monkeypatch.setattr(recall, "WINDOW", 128)
    monkeypatch.setitem(recall.POLICIES, "Λ", {"window": 128})
    together = list(reader(lab, "embedded", policy).after(ids, [200, 300], 8))
    apart = [next(reader(lab, "embedded", policy).after(ids, [length], 8)) for length in (200, 300)]
    assert together == apart and len(together[0]) == 8


def test_truncation_reads_the_last_tokens_alone(lab, ids, monkeypatch):
    monkeypatch.setattr(recall, "WINDOW", 128)
    (written,) = reader(lab, "embedded", recall.TRUNCATION).after(ids, [300], 8)
    assert written == next(reader(lab, "embedded", "plain").after(ids[172:300], [128], 8))


def test_continuations_are_held_against_the_text_itself(lab, ids, monkeypatch):
    monkeypatch.setattr(recall, "WRITTEN", 20)
    rows = continuations(lab, "embedded", "plain", {"a": ids, "short": ids[:100]}, [128, 256])
    assert [(row["tokens"], row["documents"]) for row in rows] == [(128, 1), (256, 1)]
    assert all(0 <= row["ROUGE-Lsum"] <= 1 and 0 <= row["BLEU"] <= 100 for row in rows)


@pytest.mark.parametrize("depth", [0.1, 0.9])
def test_a_passkey_lies_at_its_depth_and_the_prompt_has_its_length(lab, depth):
    tokenizer = lab.models.load("embedded").tokenizer
    found = hidden(tokenizer, "12345", 800, depth)
    text = tokenizer.decode(found)
    assert abs(len(found) - 800) < 20 and text.count("12345") == 2
    assert text.index("12345") / len(text) == pytest.approx(depth, abs=0.12)


def test_passkeys_are_counted(lab, monkeypatch):
    monkeypatch.setattr(recall, "DEPTHS", (0.5,))
    (row,) = passkeys(lab, "embedded", "plain", [256], keys=2)
    assert row["told"] in (0, 0.5, 1) and row["depth"] == 0.5
