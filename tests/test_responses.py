"""Responses to token ids, many at a time: each is what transformers' own generate writes alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import run

from backend import RunSettings
from backend.inference.model_runner import Runner, runner
from backend.inference.responses import Response, respond
from backend.inference.side_by_side import side_by_side
from backend.models.pool import Loaded

ENDS = [2]


def prompts(count: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 128, (3 + 7 * i % 23,), generator=generator) for i in range(count)]


def asked(most: int, **sampling) -> RunSettings:
    return RunSettings(prompt="-", max_new_tokens=most, **sampling)


def alone(model, ids: torch.Tensor, most: int) -> list[int]:
    out = model.generate(ids[None], max_new_tokens=most, do_sample=False, pad_token_id=0)[0, len(ids) :].tolist()
    return out[: out.index(2)] if 2 in out else out


def all_of(model: Runner, ids: list[torch.Tensor], wanted: list[RunSettings], rows: int) -> list[Response]:
    return list(side_by_side(lambda case: respond(model, *case, ENDS), zip(ids, wanted, strict=True), rows))


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "gpt_neox", "mpt"])
def test_each_is_what_generate_writes(tiny, family):
    model, ids, most = tiny(family), prompts(11), [5 + 9 * (i % 4) for i in range(11)]
    found = all_of(run(model), ids, [asked(each) for each in most], 4)
    for one, each, cap in zip(found, ids, most, strict=True):
        assert one.tokens == alone(model, each, cap) and one.ended == (len(one.tokens) < cap)


@settings(max_examples=12, deadline=None)
@given(count=st.integers(1, 9), rows=st.integers(1, 6), most=st.integers(1, 20), seed=st.integers(0, 99))
def test_how_many_are_written_at_a_time_changes_nothing(tiny, count, rows, most, seed):
    model, ids = run(tiny("llama")), prompts(count, seed)
    for sampling in ({}, {"temperature": 1.0, "top_k": 40, "top_p": 0.95}):
        wanted = [asked(most, seed=place, **sampling) for place in range(count)]
        assert all_of(model, ids, wanted, rows) == all_of(model, ids, wanted, 1)


def test_sampling_repeats_with_its_seed_and_only_with_it(tiny):
    model, ids = run(tiny("llama")), prompts(6)

    def sampled(seed: int) -> list[Response]:
        return all_of(model, ids, [asked(20, temperature=1.0, top_p=0.95, seed=seed)] * 6, 6)

    assert sampled(1) == sampled(1) != sampled(2)


def test_an_error_ends_the_others_too(tiny):
    model, ids = run(tiny("llama")), [*prompts(3), torch.tensor([10**6, 3])]
    with pytest.raises((IndexError, RuntimeError)):
        all_of(model, ids, [asked(5)] * 4, 2)


def test_the_embedded_model_writes_the_same_in_fp32(embedded_fp32: Loaded):
    tokenizer = embedded_fp32.tokenizer
    texts = ["Why is the sky blue?", "Name three fruits.", "Write a short poem about rain."]
    encoded = [
        tokenizer.apply_chat_template([{"role": "user", "content": t}], add_generation_prompt=True, return_dict=True)
        for t in texts
    ]
    ids = [torch.tensor(e["input_ids"]) for e in encoded]
    found = all_of(runner(embedded_fp32), ids, [asked(40)] * 3, 3)
    assert [one.tokens for one in found] == [alone(embedded_fp32.model, each, 40) for each in ids]
