"""Many answers at once: each is what transformers would write alone, and is judged as the joint rule says."""
from __future__ import annotations

import pytest
import torch
from conftest import tiny_model, tiny_tokenizer
from peft import LoraConfig, get_peft_model

from backend.inference.responses import Response
from backend.inference.signal import signal_rows
from backend.methods.signal import SignalSettings
from backend.training.batch_sampling import Sampling, Weights, likelihoods, written
from backend.training.reward import CUT, SENTENCE, Sampled, _judged, _text

PROMPTS = [[5, 9, 11], [7, 20, 33, 41, 50, 61, 12], [90]]
END = 2


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama").double()


def test_greedy_rows_are_what_transformers_writes_to_each_alone(model):
    for prompt, found in zip(PROMPTS, written(Weights(model), PROMPTS, 24, END, Sampling(0)), strict=True):
        alone = model.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False)[0, len(prompt) :].tolist()
        expected = alone[: alone.index(END)] if END in alone else alone
        assert found == Response(expected, END in alone)


def test_rows_end_at_eos_and_at_the_cap(model):
    [free] = written(Weights(model), PROMPTS[:1], 24, END, Sampling(0))
    [ended] = written(Weights(model), PROMPTS[:1], 24, free.tokens[10], Sampling(0))
    assert ended == Response(free.tokens[: free.tokens.index(free.tokens[10])], True)
    [capped] = written(Weights(model), PROMPTS[:1], 5, END, Sampling(0))
    assert capped.tokens == free.tokens[:5] and not capped.ended


def test_an_adapter_and_a_signal_act_on_every_row(model):
    lora = get_peft_model(tiny_model("llama").double(), LoraConfig(r=4, target_modules="all-linear",
                                                                   init_lora_weights=False))
    weights = Weights(model)
    weights.take(lora.get_base_model())
    settings = SignalSettings("ldpe", 0.5, 0.7, (1, 40))
    lengths, targets = torch.tensor([[len(each)] for each in PROMPTS]), torch.tensor([[9], [14], [20]])

    def signal(rows, positions):
        return signal_rows(settings, positions, lengths[rows], targets[rows], 64)

    for row, found in enumerate(written(weights, PROMPTS, 20, END, Sampling(0), signal)):
        ids = [*PROMPTS[row], *found.tokens]
        shown = signal_rows(settings, torch.arange(len(ids)), len(PROMPTS[row]), int(targets[row]), 64)
        logits = lora(inputs_embeds=lora.get_input_embeddings()(torch.tensor([ids])) + shown).logits[0]
        expected = logits[len(PROMPTS[row]) - 1 :].argmax(-1).tolist()
        assert expected[: len(found.tokens)] == found.tokens
        assert not found.ended or expected[len(found.tokens)] == END


def test_likelihoods_are_those_of_a_full_forward(model):
    answers = [[3, 4, 5], [], [8] * 9]
    each, last = likelihoods(Weights(model), PROMPTS, answers, [[END], [END, 3]])
    for prompt, answer, own, after in zip(PROMPTS, answers, each, last, strict=True):
        likely = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 :].log_softmax(-1)
        expected = [float(likely[i, token]) for i, token in enumerate(answer)]
        assert own == pytest.approx(expected, abs=1e-5)
        assert after == pytest.approx([float(likely[-1, END].exp()), float(likely[-1, [END, 3]].exp().sum())], abs=1e-6)


@pytest.mark.parametrize("sampling", [Sampling(0.7, 5, 0.9), Sampling(1.5, 50, 0.5)])
def test_drawn_tokens_are_of_the_nucleus_and_as_likely_as_they_should_be(sampling: Sampling):
    torch.manual_seed(0)
    logits = torch.randn(1, 60).expand(40_000, -1)
    drawn = torch.bincount(sampling.draw(logits), minlength=60) / 40_000
    best, ids = logits[0].topk(sampling.top_k)
    share = (best / sampling.temperature).softmax(-1)
    share = share * (share.cumsum(-1) - share < sampling.top_p)
    expected = torch.zeros(60).scatter(0, ids, share / share.sum())
    assert ((drawn > 0) <= (expected > 0)).all()
    torch.testing.assert_close(drawn, expected, rtol=0, atol=0.012)


def sampled(text: str, target: int, p_mark: float, p_eos: float, ended: bool = True) -> Sampled:
    tokens = tiny_tokenizer()(text)["input_ids"]
    likely = [-0.1] * (len(tokens) - 1) + [float(torch.tensor(p_mark).log())]
    return Sampled(tokens, ended, target, likely, p_eos, p_eos)


@pytest.mark.parametrize(("answer", "worth"), [
    (sampled("It rains.", 9, 0.5, 0.5), 1.0),
    (sampled("It rains.", 9, 0.5, 0.0), SENTENCE),
    (sampled("It rains.", 9, 0.01, 0.5), CUT),
    (sampled("It rains", 9, 0.5, 0.0), CUT),
    (sampled("It rains.", 30, 0.5, 0.5), 0.0),
    (sampled("It rains.", 9, 0.5, 0.5, ended=False), 0.0),
])  # fmt: skip
def test_an_answer_is_worth_what_a_reader_would_say(answer: Sampled, worth: float):
    found = _judged(tiny_tokenizer(), answer)
    assert found.worth == pytest.approx(worth) and found.joint == (worth >= SENTENCE)


def test_what_repeats_itself_is_worth_less_and_is_no_whole_answer():
    tokenizer, text = tiny_tokenizer(), "It rains. It rains. It rains. It rains."
    assert _judged(tokenizer, sampled(text, len(text), 0.5, 0.5)).worth < 0.8
    ids = tokenizer(text)["input_ids"]
    assert _text(tokenizer, Response(ids, True)) is None
    assert _text(tokenizer, Response(ids[:9], True)) == "It rains."
    assert _text(tokenizer, Response(ids[:9], False)) is None and _text(tokenizer, Response(ids[:8], True)) is None
