"""Quality of responses: values worked by hand, independent computations, and what holds for any text."""

import math
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backend.evaluation import quality
from backend.evaluation.quality import Likelihood, bert_score, corpus_bleu, perplexity, rouge, similarity
from backend.measures.overlap import distinct, repetition
from backend.text.sentences import sentences

CAT = "The cat sat on the mat. It was warm there."
tokens = st.lists(st.integers(0, 5), max_size=30)


def alone(model, prompt: list[int], response: list[int]) -> float:
    """Nats of a response by the plain way: one row, every logit."""
    logits = model(torch.tensor([prompt + response])).logits[0].double().log_softmax(-1)
    return -sum(logits[len(prompt) + i - 1, token].item() for i, token in enumerate(response))


def test_perplexity_of_the_embedded_model_is_that_of_each_row_alone(embedded_fp32):
    tokenizer, model = embedded_fp32.tokenizer, embedded_fp32.model
    texts = [
        ("Why does it rain?", " Because warm air rises, cools, and can no longer hold its water."),
        ("Name a fruit.", " Apple"),
        ("Tell me about the history of the printing press in Europe, briefly.", " It" + " spread quickly" * 40),
        ("Say nothing.", ""),
        ("Count.", " one two three four five six seven eight nine ten"),
    ]
    prompts, responses = ([tokenizer(part)["input_ids"] for part in column] for column in zip(*texts, strict=True))
    found = perplexity(model, prompts, responses)
    assert [each.tokens for each in found] == [len(response) for response in responses]
    expected = [alone(model, *pair) for pair in zip(prompts, responses, strict=True)]
    for each, nats in zip(found, expected, strict=True):
        assert each.nats / max(1, each.tokens) == pytest.approx(nats / max(1, each.tokens), abs=1e-4)
    assert found[0].perplexity == pytest.approx(math.exp(expected[0] / len(responses[0])), rel=1e-4)
    assert found[2].perplexity < found[0].perplexity


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen3", "gpt_neox", "gptj", "mpt"])
@pytest.mark.parametrize("batch", [1, 64, 4096])
def test_perplexity_does_not_depend_on_the_batches(tiny, family, batch, monkeypatch):
    monkeypatch.setattr(quality, "BATCH_TOKENS", batch)
    monkeypatch.setattr(quality, "HEAD_ROWS", 7)
    model, random = tiny(family), torch.Generator().manual_seed(0)
    lengths = [(1, 1), (9, 20), (3, 0), (30, 2), (4, 31), (9, 20)]
    prompts, responses = (
        [torch.randint(3, 128, (n,), generator=random).tolist() for n in column]
        for column in zip(*lengths, strict=True)
    )
    for each, prompt, response in zip(perplexity(model, prompts, responses), prompts, responses, strict=True):
        assert each.tokens == len(response)
        assert each.nats == pytest.approx(alone(model, prompt, response), abs=1e-3, rel=1e-5)


def test_perplexity_says_what_it_cannot_measure(tiny):
    with pytest.raises(ValueError, match="a prompt has no tokens"):
        perplexity(tiny("llama"), [[]], [[5]])
    with pytest.raises(ValueError):
        perplexity(tiny("llama"), [[5], [6]], [[5]])
    with pytest.raises(ZeroDivisionError):
        _ = Likelihood(0.0, 0).perplexity
    assert perplexity(tiny("llama"), [], []) == []


@given(st.lists(st.integers(0, 5000), max_size=40))
def test_batches_hold_every_row_once_and_stay_small(lengths):
    found = list(quality._batches(lengths))
    assert sorted(i for batch in found for i in batch) == list(range(len(lengths)))
    assert all(
        len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= quality.BATCH_TOKENS for batch in found
    )


def test_rouge_by_hand():
    found = rouge(["the cat sat", "a dog"], ["the cat slept", "a dog"])
    assert found["rouge1"] == pytest.approx((2 / 3 + 1) / 2)
    assert found["rouge2"] == pytest.approx((1 / 2 + 1) / 2)
    assert found["rougeLsum"] == pytest.approx((2 / 3 + 1) / 2)


def test_rouge_lsum_unites_the_sentences():
    # "the cat" of one sentence and "slept" of the other cover "the cat slept": with one long line it would be less.
    assert rouge(["The cat sat. It slept."], ["The cat slept. It sat."])["rougeLsum"] == 1


def test_sentences_end_where_a_reader_would_end_them():
    assert sentences("It rains. Dr. Low stays\nat home.") == ["It rains.", "Dr. Low stays", "at home."]
    assert sentences(' 1. "Stop!"\n2. Go on?  ') == ['1. "Stop!"', "2. Go on?"]
    assert sentences(" \n ") == []


@given(st.text(alphabet="aA .!?\n1", max_size=60))
def test_sentences_keep_every_word(text):
    found = sentences(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() and "\n" not in sentence and sentence for sentence in found)


def test_bleu_by_hand():
    assert corpus_bleu([CAT], [CAT]) == pytest.approx(100)
    # n-gram precisions 5/6, 3/5, 2/4, 1/3 and no brevity penalty.
    expected = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert corpus_bleu(["the cat sat on a mat"], ["the cat sat on the mat"]) == pytest.approx(expected)
    with pytest.raises(ValueError):
        corpus_bleu(["a", "b"], ["a"])


def test_bert_score_matches_greedily_by_cosine():
    candidate = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    reference = torch.tensor([[1.0, 0.0]])
    precision, recall = (1 + 0 + 0.6) / 3, 1.0
    found = quality._matched(candidate, reference)
    assert found == pytest.approx((precision, recall, 2 * precision * recall / (precision + recall)))
    assert quality._matched(reference, candidate) == pytest.approx((recall, precision, found.f1))


def test_bert_score_is_that_of_a_plain_computation():
    tokenizer, model = quality._encoder()
    other = "A kitten lay on a rug, which was cosy."
    states = [
        model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states[5][0, 1:-1]
        for text in (CAT, other)
    ]
    cosines = torch.cosine_similarity(states[0][:, None], states[1][None], dim=-1)
    precision, recall = cosines.max(1).values.mean().item(), cosines.max(0).values.mean().item()
    found = bert_score([CAT], [other])
    assert found == pytest.approx((precision, recall, 2 * precision * recall / (precision + recall)), abs=1e-5)
    # A longer text in the same batch adds padding, which must not be seen.
    beside = bert_score([CAT, CAT * 5], [other, other])
    alone = bert_score([CAT * 5], [other])
    assert beside.f1 == pytest.approx((found.f1 + alone.f1) / 2, abs=1e-5)


def test_bert_score_ranks_the_same_matter_above_another():
    close, far = "The kitten was sitting on the rug. It felt cosy.", "Interest rates rose by half a percent in March."
    assert bert_score([CAT], [CAT]).f1 == pytest.approx(1, abs=1e-5)
    assert bert_score([close], [CAT]).f1 > bert_score([far], [CAT]).f1 + 0.1
    assert similarity([CAT], [CAT]) == pytest.approx(1, abs=1e-5)
    assert similarity([close], [CAT]) > similarity([far], [CAT]) + 0.3


def test_texts_longer_than_the_encoder_reads_count_to_their_end(monkeypatch):
    monkeypatch.setattr(quality, "WINDOW", 8)
    start = "Bees gather nectar from flowers, fly home and make honey of it. "
    assert len(quality._windows(quality._encoder()[0], start)) == 2
    same, other = start + "They live in hives.", start + "The stock market fell sharply on Monday."
    assert bert_score([start], [same]).recall > bert_score([start], [other]).recall + 0.05
    assert similarity([start], [same]) > similarity([start], [other]) + 0.05


def test_an_empty_text_scores_nothing():
    assert bert_score([""], [CAT]) == (0, 0, 0)
    assert set(rouge([""], [CAT]).values()) == {0}
    for measure in (bert_score, similarity, rouge):
        with pytest.raises(ValueError):
            measure([], [])
        with pytest.raises(ValueError):
            measure([CAT, CAT], [CAT])


def test_a_missing_package_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ModuleNotFoundError, match=r"sacrebleu.*pip install -r requirements-dev\.txt"):
        corpus_bleu([CAT], [CAT])


def test_distinct_by_hand():
    assert distinct([1, 2, 1, 2, 1], 1) == 2 / 5
    assert distinct([1, 2, 1, 2, 1], 2) == 2 / 4
    assert distinct([1, 2], 3) == 1 and distinct([], 1) == 1


@given(tokens, st.integers(1, 6))
def test_distinct_is_a_share_that_grows_with_n(found, n):
    assert 0 < distinct(found, n) <= 1
    assert distinct(found, n) <= distinct(found, n + 1) + 1e-12
    assert repetition(found) == pytest.approx(1 - distinct(found, 4))
