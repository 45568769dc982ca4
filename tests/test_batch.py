"""Many responses at once write what one at a time would."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.batch import Request, Sampling, write
from backend.signals import SignalContext, SignalSettings, attach, signalling

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
