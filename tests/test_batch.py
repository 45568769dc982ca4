"""Many responses at once write what one at a time would."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backend import batch
from backend.batch import Request, Sampling, write
from backend.capabilities import describe
from backend.models import Loaded
from backend.positions import Policy
from backend.runner import Runner
from backend.signals import SignalContext, SignalSettings, attach, signalling
from tests.conftest import tiny_tokenizer

ENDS = [2]


def prompts(count: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 128, (3 + 7 * i % 23,), generator=generator) for i in range(count)]


def alone(model, ids: torch.Tensor, most: int) -> list[int]:
    out = model.generate(ids[None], max_new_tokens=most, do_sample=False, pad_token_id=0)[0, len(ids) :].tolist()
    return out[: out.index(2)] if 2 in out else out


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_each_row_is_what_generate_writes(tiny, family):
    model = tiny(family)
    requests = [Request(ids, 5 + 9 * (i % 4)) for i, ids in enumerate(prompts(11))]
    found = dict(write(model, requests, ENDS, room=64, slots=4))
    assert sorted(found) == list(range(11))
    for i, request in enumerate(requests):
        assert found[i].tokens == alone(model, request.ids, request.most)
        assert found[i].ended == (len(found[i].tokens) < request.most)


@settings(max_examples=15, deadline=None)
@given(count=st.integers(1, 9), slots=st.integers(1, 6), most=st.integers(1, 20), seed=st.integers(0, 99))
def test_the_number_of_slots_changes_nothing(tiny, count, slots, most, seed):
    model = tiny("llama")
    requests = [Request(ids, most) for ids in prompts(count, seed)]
    one = dict(write(model, requests, ENDS, room=64, slots=1))
    assert dict(write(model, requests, ENDS, room=64, slots=slots)) == one


POLICIES = {
    "naive": Policy("naive", 2.0),
    "ntk": Policy("ntk", 4.0),
    "dynamic": Policy("dynamic", 4.0, initial=2, recent=40),
    "longer": Policy("dynamic", 0.5, initial=3, recent=30),
    "literal": Policy("dynamic", 4.0, initial=2, recent=40, literal=True),
}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_acts_as_in_a_single_run(tiny, name):
    model, policy = tiny("llama"), POLICIES[name]
    requests = [Request(ids, 30 + 10 * (i % 3)) for i, ids in enumerate(prompts(7))]
    found = dict(write(model, requests, ENDS, room=96, slots=3, policy=policy))
    plain = dict(write(model, requests, ENDS, room=96))
    runner = Runner(Loaded(model, tiny_tokenizer(), describe("tiny", model, "fp32")), exact=True)
    for i, request in enumerate(requests):
        cache, written = runner.cache(policy), []
        logits = runner.read(request.ids, cache)
        while len(written) < request.most and (token := int(logits.argmax())) not in ENDS:
            written.append(token)
            logits = runner.read(torch.tensor([token]), cache)
        assert found[i].tokens == written
    assert found != plain


def test_what_a_batch_cannot_do_is_said(tiny):
    model, request = tiny("llama"), [Request(torch.arange(3, 40), 4)]
    with pytest.raises(ValueError, match="one by one"):
        write(model, request, ENDS, 64, policy=Policy(window=8))
    with pytest.raises(ValueError, match="compressed by itself"):
        next(write(model, request, ENDS, 64, policy=Policy("dynamic", 4.0, initial=2, recent=30)))


def test_what_is_drawn_depends_on_the_request_alone(tiny):
    model, requests = tiny("llama"), [Request(ids, 20) for ids in prompts(6)]
    one, many = (dict(write(model, requests, ENDS, 64, sampling=Sampling(1.0, 0, 0.95), slots=n)) for n in (1, 6))
    assert one == many


def test_a_nucleus_is_that_of_the_whole_vocabulary(tiny, monkeypatch):
    model, requests = tiny("llama"), [Request(ids, 20) for ids in prompts(6)]
    found = dict(write(model, requests, ENDS, 64, sampling=Sampling(1.0, 0, 0.9)))
    monkeypatch.setattr(batch, "LIKELIEST", 2)
    assert dict(write(model, requests, ENDS, 64, sampling=Sampling(1.0, 0, 0.9))) == found


@pytest.mark.parametrize("kind", ["ldpe", "orpe", "lrpe", "pre"])
def test_signals_are_those_of_a_single_run(tiny, kind):
    model = tiny("llama")
    signal = SignalSettings(kind, 1.0, 0.7, (1, 30))
    asked = prompts(5)
    found = dict(write(model, [Request(p, 12, lambda _: 20) for p in asked], ENDS, room=64, signal=signal, slots=3))
    attach(model)
    for i, ids in enumerate(asked):
        with signalling(SignalContext(signal, [len(ids)], [20])):
            assert found[i].tokens == alone(model, ids, 12)


def test_a_goal_may_change_while_a_row_is_written(tiny):
    model, signal, ids = tiny("llama"), SignalSettings("orpe", 1.0, 3.0, (1, 30)), prompts(3)[2]
    steady, changed, late = (
        dict(write(model, [Request(ids, 14, goal)], ENDS, 64, signal))[0].tokens
        for goal in (lambda _: 25, lambda tokens: 25 if len(tokens) < 6 else 9, lambda _: 9)
    )
    assert changed[:6] == steady[:6]
    assert changed not in (steady, late)


def test_sampling_repeats_with_its_seed_and_only_with_it(tiny):
    model, requests = tiny("llama"), [Request(ids, 20) for ids in prompts(6)]

    def sampled(seed: int):
        return dict(write(model, requests, ENDS, 64, sampling=Sampling(1.0, 40, 0.95, seed)))

    assert sampled(1) == sampled(1) != sampled(2)


def test_the_likeliest_token_alone_is_greedy(tiny):
    model, requests = tiny("llama"), [Request(ids, 20) for ids in prompts(6)]
    greedy = dict(write(model, requests, ENDS, 64))
    assert dict(write(model, requests, ENDS, 64, sampling=Sampling(1.0, 1))) == greedy
    assert dict(write(model, requests, ENDS, 64, sampling=Sampling(1.0, 50, 1e-9))) == greedy


def test_other_families_and_too_long_requests_are_refused(tiny):
    with pytest.raises(ValueError, match="families"):
        next(write(tiny("mpt"), [Request(torch.tensor([3]), 4)], ENDS, 64))
    with pytest.raises(ValueError, match="room"):
        next(write(tiny("llama"), [Request(torch.arange(3, 40), 40)], ENDS, 64))


def test_the_embedded_model_writes_the_same_in_fp32(embedded_fp32):
    tokenizer = embedded_fp32.tokenizer
    texts = ["Why is the sky blue?", "Name three fruits.", "Write a short poem about rain."]
    encoded = [
        tokenizer.apply_chat_template([{"role": "user", "content": t}], add_generation_prompt=True, return_dict=True)
        for t in texts
    ]
    asked = [torch.tensor(e["input_ids"]) for e in encoded]
    found = dict(write(embedded_fp32.model, [Request(ids, 40) for ids in asked], ENDS, room=128))
    assert [found[i].tokens for i in range(3)] == [alone(embedded_fp32.model, ids, 40) for ids in asked]
