"""Probes: what they show is what eager attention computes, and looking changes nothing."""
from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from policies import PIC, POLICIES, WINDOWED, asking
from reading import IDS, run
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from backend import Lab
from backend.inference.kv_cache import FramedCache
from backend.inference.model_runner import Runner, runner
from backend.inference.probes import EDGES, Probe
from backend.models import embedded as embedded_files
from backend.models.pool import Loaded, Models
from backend.positions import Plain, policy_of
from backend.settings import RunSettings, Watch
from backend.steps import SINKS, Logits, Step

PROMPT = 16


def entropies(weights: Tensor) -> np.ndarray:
    """−Σ p ln p over the last dimension."""
    return -torch.special.xlogy(weights.double(), weights.double()).sum(-1).numpy()


def on_the_first(weights: Tensor) -> np.ndarray:
    """Share [layers] of attention weights [layers, heads, keys] on the first tokens, mean over heads."""
    return weights[..., :SINKS].double().sum(-1).mean(-1).numpy()


def check_bins(found: Logits, layer: np.ndarray, distance: np.ndarray, atol: float) -> None:
    """The recorded bins are those of a layer's scores [heads, keys] at these perceived distances [keys], unseen ones
    nan."""
    seen = ~np.isnan(distance)
    layer, distance = layer[:, seen], distance[seen]
    scores = layer[found.head]
    bins = [
        (distance[inside], scores[inside])
        for low, high in zip([-np.inf, *EDGES], [*EDGES, np.inf], strict=True)
        if (inside := (distance >= low) & (distance < high)).any()
    ]
    assert len(found.distance) == len(bins) and found.heads is not None
    means = [[head[np.digitize(distance, EDGES) == place].mean() for place in np.unique(np.digitize(distance, EDGES))]
             for head in layer]  # fmt: skip
    np.testing.assert_allclose(found.heads, means, rtol=0, atol=atol)
    for i, (d, s) in enumerate(bins):
        assert found.distance[i] == pytest.approx(d.mean(), abs=1e-6)
        assert found.mean[i] == pytest.approx(s.mean(), abs=atol)
        assert (found.low[i], found.high[i]) == (pytest.approx(s.min(), abs=atol), pytest.approx(s.max(), abs=atol))


def test_bins_are_narrow_near_the_query_and_cover_every_distance():
    assert (np.diff(EDGES) > 0).all() and EDGES[0] < 0 and EDGES[-1] > 131_072
    assert (np.diff(EDGES)[:8] == 1).all() and (EDGES[9:] / EDGES[8:-1]).max() < 1.3


# ---- against eager attention, on the embedded model


@pytest.fixture(scope="module")
def eager() -> PreTrainedModel:
    folder = embedded_files.folder()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return model.requires_grad_(False)


def own_scores(model: PreTrainedModel, hidden: Tensor, layer: int) -> Tensor:
    """Pre-softmax scores [heads, n, n] of one layer by transformers' own projections and rotation."""
    block = model.model.layers[layer]
    own, h = block.self_attn, block.input_layernorm(hidden)
    q, k = (p(h).unflatten(-1, (-1, own.head_dim)).transpose(1, 2) for p in (own.q_proj, own.k_proj))
    q, k = apply_rotary_pos_emb(q, k, *model.model.rotary_emb(hidden, torch.arange(hidden.shape[1])[None]))
    return (q @ k.repeat_interleave(own.num_key_value_groups, 1).transpose(-1, -2))[0] * own.scaling


@pytest.mark.parametrize("exact", [False, True])
def test_probes_equal_eager_attention(exact: bool, embedded_fp32: Loaded, eager: PreTrainedModel):
    text = "The water of the sea rises as vapour, cools, and falls as rain. " * 3
    ids = embedded_fp32.tokenizer(text, return_tensors="pt").input_ids[0]
    with torch.inference_mode():
        seen = eager(ids[None], output_attentions=True, output_hidden_states=True)
    weights = torch.stack(seen.attentions)[:, 0]
    run_it = Runner(embedded_fp32, exact=True) if exact else runner(embedded_fp32)
    probe, cache = run_it.probe(Watch()), run_it.cache(Plain())
    prompt = len(ids) - 5
    run_it.read(ids[:prompt], cache, probe)
    rows = probe.sampled(prompt)
    assert rows[0] == 0 and rows[-1] == prompt - 1 and len(rows) == 8
    found, attended = probe.prefilled()
    np.testing.assert_allclose(found, entropies(weights[:, :, rows]).transpose(2, 0, 1), rtol=0, atol=1e-4)
    assert attended.tolist() == [row + 1 for row in rows]
    first = seen.hidden_states[1][0].numpy()
    np.testing.assert_allclose(probe.states(rows), first[rows], rtol=2e-3, atol=2e-3)
    for t in range(prompt - 1, len(ids)):
        if t >= prompt:
            run_it.read(ids[t : t + 1], cache, probe)
            np.testing.assert_allclose(probe.decoded(), entropies(weights[:, :, t, : t + 1]), rtol=0, atol=1e-4)
            np.testing.assert_allclose(probe.states([-1])[0], first[t], rtol=2e-3, atol=2e-3)
        np.testing.assert_allclose(probe.sink_share(cache), on_the_first(weights[:, :, t, : t + 1]), rtol=0, atol=1e-4)
        for layer, head in ((0, 0), (13, 4), (29, 8)):
            expected = own_scores(eager, seen.hidden_states[layer], layer)[:, t, : t + 1].numpy()
            check_bins(probe.logits(cache, layer, head), expected, t - np.arange(t + 1.0), 1e-3)


# ---- against the reference, under every policy


def look(runner_: Runner, asked: RunSettings, whole_prompt: bool) -> tuple[Probe, FramedCache, list[np.ndarray]]:
    """Read the prompt and the rest with a probe; the entropies [layers, heads] of each decoded token."""
    probe, cache, decoded = runner_.probe(Watch()), runner_.cache(policy_of(asked)), []
    runner_.read(IDS[:PROMPT], cache, probe, None, whole_prompt)
    for token in IDS[PROMPT:].split(1):
        runner_.read(token, cache, probe)
        decoded.append(probe.decoded())
    return probe, cache, decoded


CASES = [("llama", name) for name in POLICIES] + [("gptj", name) for name in PIC] + [("mpt", name) for name in WINDOWED]


@pytest.mark.parametrize(("family", "name"), CASES)
def test_probes_equal_the_reference(family: str, name: str, tiny):
    asked = POLICIES[name]
    _, scores = reference.forward(tiny(family).double(), IDS, asked)
    expected = torch.stack([entropies_of(layer) for layer in scores], 1)
    probing = run(tiny(family))
    probe, cache, decoded = look(probing, asked, False)
    np.testing.assert_allclose(np.stack(decoded), expected[PROMPT:].numpy(), rtol=0, atol=1e-4)
    last = torch.stack([layer[:, -1].softmax(-1) for layer in scores])
    np.testing.assert_allclose(probe.sink_share(cache), on_the_first(last), rtol=0, atol=1e-4)
    distance = reference.distances(len(IDS), asked)[-1].numpy()
    for layer, head in ((0, 0), (2, 3)):
        check_bins(probe.logits(cache, layer, head), scores[layer][:, -1].numpy(), distance, 1e-3)
    assert probe.logits(cache, 99, 99).layer == 2 and probe.logits(cache, 99, 99).head == 3


def entropies_of(scores: Tensor) -> Tensor:
    """[rows, heads] of scores [heads, rows, keys]."""
    return torch.from_numpy(entropies(scores.softmax(-1))).T


@pytest.mark.parametrize(("name", "whole"), [(name, False) for name in POLICIES] + [(name, True) for name in PIC])
def test_what_the_prompts_rows_show_equals_the_reference(name: str, whole: bool, tiny):
    asked = POLICIES[name]
    _, scores = reference.forward(tiny("llama").double(), IDS[:PROMPT], asked, PROMPT if whole else 0)
    expected = torch.stack([entropies_of(layer) for layer in scores], 1)
    probing = run(tiny("llama"))
    probe, cache = probing.probe(Watch()), probing.cache(policy_of(asked))
    probing.read(IDS[:PROMPT], cache, probe, None, whole)
    rows = probe.sampled(PROMPT)
    found, attended = probe.prefilled()
    np.testing.assert_allclose(found, expected[rows].numpy(), rtol=0, atol=1e-4)
    assert attended.tolist() == [sum(reference.sees(t, j, asked) for j in range(t + 1)) for t in rows]
    last = torch.stack([layer[:, -1].softmax(-1) for layer in scores])
    np.testing.assert_allclose(probe.sink_share(cache), on_the_first(last), rtol=0, atol=1e-4)
    distance = reference.distances(PROMPT, asked, PROMPT if whole else 0)[-1].numpy()
    check_bins(probe.logits(cache, 1, 2), scores[1][:, -1].numpy(), distance, 1e-3)


# ---- looking changes nothing


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("exact", [False, True])
def test_logits_are_the_same_with_and_without_a_probe(name: str, exact: bool, tiny):
    for family in ("llama", "mpt") if name in WINDOWED else ("llama",):
        reading = run(tiny(family), exact)
        seen = []
        for probe in (None, reading.probe(Watch())):
            cache = reading.cache(policy_of(POLICIES[name]))
            seen.append([reading.read(part, cache, probe) for part in (IDS[:PROMPT], *IDS[PROMPT:].split(1))])
        assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))


@pytest.mark.parametrize("name", POLICIES)
def test_runs_write_the_same_with_and_without_probes(name: str, small: Lab, folder: str):
    parts = POLICIES[name].model_dump(exclude={"prompt", "model", "precision", "watch"})
    parts |= {"model": folder, "temperature": 1.0, "max_new_tokens": 15}
    on, off = (
        [event for event in small.stream(asking(**parts, watch={"enabled": enabled})) if isinstance(event, Step)]
        for enabled in (True, False)
    )
    assert [step.token for step in on] == [step.token for step in off]
    assert [(step.p, step.p_eos, step.spread) for step in on] == [(step.p, step.p_eos, step.spread) for step in off]
    assert all(step.entropy is step.state is step.logits is step.reading is None for step in off)


@pytest.fixture(scope="module")
def folder(tiny_folder) -> str:
    return str(tiny_folder("llama"))


@pytest.fixture(scope="module")
def small(folder: str) -> Lab:
    return Lab(Models([folder]))


def test_the_embedded_model_writes_the_same_with_and_without_probes(lab: Lab):
    for parts in ({}, {"pic": "dynamic", "ratio": 4.0, "window": 40, "recent": 16}):
        asked = RunSettings(prompt="Tell me about the sea.", max_new_tokens=24, **parts)
        on, off = (
            [event.token for event in lab.stream(one) if isinstance(event, Step)]
            for one in (asked, asked.model_copy(update={"watch": Watch(enabled=False)}))
        )
        assert on == off and len(on) == 24


def test_states_are_the_first_layers_output(tiny):
    for family in ("llama", "gpt_neox", "gptj", "mpt"):
        reading, own = run(tiny(family)), tiny(family)
        probe, cache = reading.probe(Watch()), reading.cache(Plain())
        reading.read(IDS, cache, probe)
        expected = own(IDS[None], output_hidden_states=True).hidden_states[1][0]
        np.testing.assert_allclose(probe.states(), expected.numpy(), rtol=2e-3, atol=2e-3)
