"""Position policies: perceived distances and rotations against the papers' definitions."""
from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import reference
import torch
from conftest import FAMILIES
from hypothesis import given, settings
from hypothesis import strategies as st
from policies import POLICIES, any_policy, asking
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from backend.positions import heeds_limit, policy_of
from backend.positions.rope import Rope
from backend.positions.yarn import Yarn
from backend.settings import RunSettings

LONGEST = 48
ROTATED = [family for family in FAMILIES if family != "mpt"]


def distances(asked: RunSettings, n: int) -> np.ndarray:
    return policy_of(asked).distance(np.arange(n), np.arange(n))


@pytest.mark.parametrize("name", POLICIES)
def test_named_policies_have_the_papers_distances(name: str):
    expected = reference.distances(LONGEST, POLICIES[name]).numpy()
    np.testing.assert_allclose(distances(POLICIES[name], LONGEST), expected, rtol=0, atol=1e-12)


@settings(max_examples=250, deadline=None)
@given(asked=any_policy(LONGEST), n=st.integers(1, LONGEST))
def test_all_policies_have_the_papers_distances(asked: RunSettings, n: int):
    expected = reference.distances(n, asked).numpy()
    np.testing.assert_allclose(distances(asked, n), expected, rtol=1e-12, atol=1e-12)


@settings(max_examples=150, deadline=None)
@given(
    asked=any_policy(LONGEST).filter(lambda asked: asked.window is None),
    prompt=st.integers(1, LONGEST),
)
def test_one_frame_for_the_whole_prompt(asked: RunSettings, prompt: int):
    policy, tokens = policy_of(asked), np.arange(prompt)
    frame = policy.prompt_frame(tokens, prompt)
    if frame is None:
        assert asked.ratio == 1 or asked.pic != "dynamic"
        return
    found = np.where(np.tri(prompt, dtype=bool), frame[:, None] - frame, np.nan)
    np.testing.assert_allclose(found, reference.distances(prompt, asked, prompt).numpy(), rtol=1e-12, atol=1e-12)


@settings(max_examples=100, deadline=None)
@given(
    window=st.integers(1, 12),
    sinks=st.integers(0, 5),
    over=st.integers(-1, 1),
    pic=st.sampled_from(("none", "dynamic")),
)
def test_each_query_sees_its_window_and_the_sinks(window: int, sinks: int, over: int, pic: str):
    n = max(1, window + over)
    asked = asking(window=window, sinks=sinks, pic=pic, ratio=2.0)
    seen = ~np.isnan(distances(asked, n + sinks))
    for t, row in enumerate(seen):
        local = {j for j in range(t + 1) if j > t - window}
        assert set(np.flatnonzero(row)) == local | set(range(min(sinks, t + 1)))
        assert len(local) == min(window, t + 1)


@settings(max_examples=100, deadline=None)
@given(asked=any_policy(LONGEST), n=st.integers(1, LONGEST), beyond=st.integers(0, 2))
def test_a_window_as_long_as_the_text_changes_nothing(asked: RunSettings, n: int, beyond: int):
    wide = asked.model_copy(update={"window": n + beyond, "distance_limit": "off"})
    initial = reference.initial_tokens(wide)
    open_ended = asked.model_copy(update={"window": None, "initial": initial})
    np.testing.assert_array_equal(distances(wide, n), distances(open_ended, n))


@pytest.mark.parametrize("pic", ["naive", "ntk", "dynamic"])
@pytest.mark.parametrize("window", [None, 9])
def test_a_ratio_of_one_is_plain(pic: str, window: int | None):
    same, plain = (policy_of(asking(pic=p, ratio=1.0, window=window)) for p in (pic, "none"))
    t = np.arange(LONGEST)
    np.testing.assert_array_equal(same.distance(t, t), plain.distance(t, t))
    assert same == plain


@settings(max_examples=100, deadline=None)
@given(ratio=st.sampled_from((0.1, 0.5, 0.9, 1.1, 4.0, 16.0)), initial=st.integers(0, 8), recent=st.integers(1, 8))
def test_contiguous_distances_bend_one_way(ratio: float, initial: int, recent: int):
    found = distances(asking(pic="dynamic", ratio=ratio, initial=initial, recent=recent), LONGEST)
    plain = distances(asking(), LONGEST)
    seen = ~np.isnan(plain)
    assert (found[seen] >= 0).all()
    bent = found[seen] - plain[seen]
    assert (bent <= 1e-9).all() if ratio > 1 else (bent >= -1e-9).all()
    assert np.abs(bent).max() > 0
    away = np.diff(found, axis=1)
    assert (away[~np.isnan(away)] < 0).all()


@settings(max_examples=100, deadline=None)
@given(
    asked=any_policy(200),
    t=st.lists(st.integers(0, 200), min_size=1, max_size=5),
    j=st.lists(st.integers(0, 200), min_size=1, max_size=5),
)
def test_distances_of_picked_queries_and_keys(asked: RunSettings, t: list[int], j: list[int]):
    expected = [[reference.perceived(a, b, asked) for b in j] for a in t]
    np.testing.assert_allclose(policy_of(asked).distance(np.array(t), np.array(j)), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("distance_limit", [1, 5])
def test_tokens_that_would_leave_the_limit_again_are_refused(distance_limit: int):
    asked = {"pic": "dynamic", "ratio": 0.25, "reading": "literal", "recent": 6, "window": 12}
    with pytest.raises(ValueError, match="choose the contiguous reading"):
        policy_of(asking(**asked, distance_limit=distance_limit))
    policy_of(asking(**asked, distance_limit=6))
    policy_of(asking(**asked | {"recent": 100}))


# ---- rotation


@pytest.mark.parametrize("family", ROTATED)
@pytest.mark.parametrize("ratio", [1.0, 0.5, 16.0])
def test_rotated_products_depend_on_the_distance_alone(family: str, ratio: float, tiny):
    model, asked = tiny(family), asking(pic="ntk", ratio=ratio)
    rope = policy_of(asked).rope(model.config)
    random = np.random.default_rng(0)
    a, b = np.sort(random.uniform(0, 3000, 20))[::-1].copy(), random.uniform(0, 3000, 30)
    q, k = torch.randn(2, 20, 16, dtype=torch.float64), torch.randn(2, 30, 16, dtype=torch.float64)
    turned = [rope.rotate(x, rope.phases(at, torch.float64, torch.device("cpu"))) for x, at in ((q, a), (k, b))]
    theta, delta = reference.frequencies(model, asked)[0], torch.from_numpy(a[:, None] - b)
    expected = reference.rope_scores(q, k, delta, theta, family == "gptj")
    # The model's frequencies are float32: at distance 3000 that alone turns a phase by up to 2e-4.
    torch.testing.assert_close(turned[0] @ turned[1].transpose(-1, -2), expected, rtol=0, atol=2e-3)
    exact = dataclasses.replace(rope, inv_freq=theta)
    turned = [exact.rotate(x, exact.phases(at, torch.float64, torch.device("cpu"))) for x, at in ((q, a), (k, b))]
    torch.testing.assert_close(turned[0] @ turned[1].transpose(-1, -2), expected, rtol=0, atol=1e-10)


def check_own_rotation(model: PreTrainedModel, n: int, dtype: torch.dtype) -> None:
    """Whole frames 0 … n − 1 are rotated as transformers does it, bit for bit."""
    rope = Rope.of(model.config)
    cos, sin = model.base_model.rotary_emb(torch.zeros(1, dtype=dtype), torch.arange(n)[None])
    x = torch.randn(1, 2, n, rope.width, generator=torch.Generator().manual_seed(0)).to(dtype)
    expected, _ = apply_rotary_pos_emb(x, x, cos, sin)
    assert torch.equal(rope.rotate(x, rope.phases(np.arange(n), dtype, torch.device("cpu"))), expected)


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotations_inside_the_training_length_are_the_models_own(family: str, dtype: torch.dtype, tiny):
    check_own_rotation(tiny(family), 512, dtype)


def test_rotations_keep_their_digits_far_out(tiny):
    rope = Rope.of(tiny("llama").config)
    frames = np.array([0.25, 511.5, 512.0, 20_000.0, 131_071.75])
    x = torch.cat((torch.ones(5, 8), torch.zeros(5, 8)), -1)
    turned = rope.rotate(x, rope.phases(frames, torch.float32, torch.device("cpu")))
    angle = frames[:, None] * rope.inv_freq.double().numpy()
    np.testing.assert_allclose(turned.numpy(), np.concatenate((np.cos(angle), np.sin(angle)), -1), rtol=0, atol=6e-8)


@pytest.mark.parametrize("kind", ["linear", "llama3", "yarn"])
def test_scaled_rope_types_keep_their_scaling(kind: str, tiny):
    scaling = {"rope_type": kind, "factor": 8.0, "rope_theta": 10_000.0, "original_max_position_embeddings": 64}
    if kind == "llama3":
        scaling |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    model = tiny("llama", rope_parameters=scaling)
    check_own_rotation(model, 200, torch.float32)
    larger = tiny("llama", rope_parameters=scaling | {"rope_theta": 160_000.0})
    assert torch.equal(Rope.of(model.config, 16.0).inv_freq, Rope.of(larger.config).inv_freq)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_a_base_that_changes_with_length_is_refused(kind: str, tiny):
    config = tiny("llama").config
    config.rope_parameters = {"rope_type": kind, "rope_theta": 10_000.0, "factor": 2.0}
    with pytest.raises(ValueError, match="choose another model"):
        Rope.of(config)


def test_yarn_is_transformers_own(tiny):
    asked = {"rope_type": "yarn", "factor": 8.0, "rope_theta": 10_000.0, "original_max_position_embeddings": 512}
    own = Rope.of(tiny("llama", rope_parameters=asked).config)
    found = Yarn(8.0).rope(tiny("llama", max_position_embeddings=512).config)
    torch.testing.assert_close(found.inv_freq, own.inv_freq, rtol=1e-6, atol=0)
    assert found.scaling == own.scaling > 1


@pytest.mark.parametrize(
    ("chosen", "heeded"),
    [
        ({"window": 64}, True),
        ({"window": 64, "pic": "naive", "ratio": 2}, True),
        ({}, False),
        ({"window": 64, "pic": "streaming_llm"}, False),
        ({"window": 64, "pic": "dual_chunk", "recent": 16}, False),
    ],
)
def test_policies_that_bound_distances_themselves_heed_no_limit(chosen, heeded):
    asked = RunSettings(prompt="p", **chosen)
    assert heeds_limit(asked) == heeded
    if not heeded:
        limits = {policy_of(asked.model_copy(update={"distance_limit": limit})) for limit in ("off", 16, "window")}
        assert len(limits) == 1
