"""Every family under every policy against the dense reference, and plain against transformers itself."""
from __future__ import annotations

import itertools
import re

import pytest
import reference
import torch
from conftest import FAMILIES, tiny_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from policies import PIC, POLICIES, WINDOWED, any_policy, asking
from reading import IDS, greedy, loaded, rows, run
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache, GPT2Config, PreTrainedModel

from backend import Lab
from backend.families import families
from backend.inference.attach import attach
from backend.inference.embedding import SignalContext
from backend.inference.model_runner import Runner
from backend.methods.signal import SignalSettings
from backend.models.pool import Models
from backend.positions import policy_of
from backend.settings import RunSettings

BIT_EQUAL = ("llama", "mistral", "qwen2", "qwen3", "gpt_neox")
FUSED = ("llama", "qwen2", "qwen3")
# Mistral and Qwen2 are Llama but for their biases: a part of the policies will do.
SOME = ("plain", "naive", "ntk", "dynamic", "dynamic, literal", "window", "dynamic, stretching + window")
TAKEN = {"mpt": WINDOWED, "mistral": SOME, "qwen2": SOME}
CASES = [(family, name) for family in FAMILIES for name in TAKEN.get(family, POLICIES)]
PROMPT = 20


@pytest.fixture(scope="module")
def wide(tiny) -> dict[str, tuple[Runner, PreTrainedModel]]:
    """By family: a runner in float64, and a base model of the same weights for the reference."""
    return {family: (run(tiny(family).double()), tiny(family).double()) for family in FAMILIES}


@pytest.fixture(scope="module")
def single(tiny) -> dict[str, Runner]:
    """By family: the runner that the lab would use in float32, fused where that is possible."""
    return {family: run(tiny(family)) for family in FAMILIES}


def close(found: Tensor, expected: Tensor, share: float) -> None:
    """found within a share of the largest logit."""
    assert found.shape == expected.shape and torch.isfinite(found).all()
    worst = (found.double() - expected.double()).abs().max() / expected.abs().max()
    assert worst < share, f"{float(worst):.1e} of the largest logit"


@pytest.mark.parametrize(("family", "name"), CASES)
def test_prefill_and_decode_equal_the_reference(family: str, name: str, wide, single):
    runner, untouched = wide[family]
    asked = POLICIES[name]
    expected = reference.logits(untouched, IDS, asked)
    # Frequencies and norms are float32 in the models themselves.
    close(rows(runner, asked, IDS, [PROMPT]), expected, 1e-5)
    if family in FUSED:
        assert single[family].fused is not None
        close(rows(single[family], asked, IDS, [PROMPT]), expected, 5e-5)


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "gptj"])
@pytest.mark.parametrize("name", [name for name in PIC if name != "plain"])
@pytest.mark.parametrize("prompt", [4, PROMPT])
def test_a_prompt_under_one_frame_equals_the_reference(family: str, name: str, prompt: int, wide):
    runner, untouched = wide[family]
    asked = asking(**PIC[name], prefill="paper")
    expected = reference.logits(untouched, IDS, asked, prompt)
    close(rows(runner, asked, IDS, [prompt], whole_prompt=True), expected, 1e-5)


@settings(max_examples=60, deadline=None)
@given(asked=any_policy(len(IDS)), prompt=st.integers(1, len(IDS)), family=st.sampled_from(sorted(FAMILIES)))
def test_any_policy_equals_the_reference(asked: RunSettings, prompt: int, family: str, wide):
    if family == "mpt":
        asked = asked.model_copy(update={"pic": "none"})
    runner, untouched = wide[family]
    expected = reference.logits(untouched, IDS, asked)
    close(rows(runner, asked, IDS, [prompt]), expected, 1e-5)


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(sorted(POLICIES)),
    cuts=st.sets(st.integers(1, len(IDS) - 1), max_size=6),
    family=st.sampled_from(("llama", "gpt_neox", "gptj", "mpt")),
)
def test_any_chunking_is_equal(name: str, cuts: set[int], family: str, wide):
    asked = POLICIES[name]
    if family == "mpt":
        asked = asked.model_copy(update={"pic": "none"})
    runner, _ = wide[family]
    edges = [0, *sorted(cuts), len(IDS)]
    chunks = [b - a for a, b in itertools.pairwise(edges)]
    close(rows(runner, asked, IDS, chunks), rows(runner, asked, IDS), 1e-5)


# Long enough for a window to drop what it has left behind, more than once.
LONG = torch.randint(3, 100, (620,), generator=torch.Generator().manual_seed(6))


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("llama", "window"),
        ("llama", "window, near limit"),
        ("llama", "naive + window"),
        ("llama", "dynamic + window, sinks beyond initial"),
        ("gptj", "dynamic, literal + window, no limit"),
        ("mpt", "window"),
        ("mpt", "window, no sinks"),
    ],
)
def test_long_texts_equal_the_reference(family: str, name: str, tiny):
    layers = {"gptj": "n_layer", "mpt": "n_layers"}.get(family, "num_hidden_layers")
    sizes = {layers: 1} | ({"max_seq_len": 1024} if family == "mpt" else {})
    expected = reference.logits(tiny(family, **sizes).double(), LONG, POLICIES[name])
    runner = run(tiny(family, **sizes).double())
    cache = runner.cache(policy_of(POLICIES[name]))
    found = rows(runner, POLICIES[name], LONG, [7, 200, 40, 40, 40, 40, 130], cache)
    close(found, expected, 1e-5)
    assert cache.length == len(LONG) and cache.slots < 400


# ---- plain is transformers' own


def transformers_rows(model: PreTrainedModel, prompt: int) -> list[Tensor]:
    """Logits of the prompt's rows and of each later token, by the model alone."""
    past = DynamicCache(config=model.config)
    with torch.inference_mode():
        found = [model(IDS[None, :prompt], past_key_values=past).logits[0]]
        found += [model(IDS[None, i : i + 1], past_key_values=past).logits[0] for i in range(prompt, len(IDS))]
    return found


@pytest.mark.parametrize(("family", "precision"), [(f, p) for f in BIT_EQUAL for p in ("fp32", "bf16")])
def test_plain_is_transformers_bit_for_bit(family: str, precision: str, tiny_folder):
    folder = str(tiny_folder(family))
    ours, own = (Models([folder]).load(folder, precision) for _ in range(2))
    found = rows(Runner(ours, exact=True), asking(), IDS, [PROMPT])
    assert torch.equal(found, torch.cat(transformers_rows(own.model, PROMPT)).float())


@pytest.mark.parametrize("family", ["gptj", "mpt"])
def test_plain_is_transformers_within_roundings(family: str, single, tiny):
    expected = torch.cat(transformers_rows(tiny(family), PROMPT))
    torch.testing.assert_close(rows(single[family], asking(), IDS, [PROMPT]), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_attached_model_is_untouched_elsewhere(family: str, tiny):
    own, attached = tiny(family), tiny(family)
    runner = run(attached)
    inside = greedy(runner, asking(), IDS, 12)
    prompt = {"input_ids": IDS[None], "attention_mask": torch.ones_like(IDS)[None]}
    padded = {"input_ids": torch.stack((IDS[:20], IDS[20:])), "attention_mask": torch.ones(2, 20, dtype=torch.int64)}
    padded["attention_mask"][1, :7] = 0
    for call in (prompt, padded):
        sizes = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False}
        assert torch.equal(attached.generate(**call, **sizes), own.generate(**call, **sizes))
        assert torch.equal(attached(**call).logits, own(**call).logits)
    assert greedy(runner, asking(), IDS, 12) == inside


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "changes", [{"window": len(IDS)}, {"window": 500}, {"pic": "naive"}, {"pic": "ntk"}, {"pic": "dynamic"}]
)
def test_settings_that_change_nothing_equal_plain(family: str, changes: dict, single):
    if family == "mpt" and "pic" in changes:
        changes = {"window": len(IDS), "sinks": 0}
    asked = asking(**changes)
    expected = rows(single[family], asking(), IDS, [PROMPT])
    assert torch.equal(rows(single[family], asked, IDS, [PROMPT]), expected)


# ---- batches


@pytest.mark.parametrize("family", FAMILIES)
def test_batches_with_left_padding_equal_their_rows_alone(family: str, single, tiny):
    runner = run(tiny(family), exact=True)
    names = list(TAKEN.get(family, POLICIES))
    for start in range(0, len(names), 5):
        asked = [POLICIES[name] for name in names[start : start + 5]]
        lengths = [21, 1, 30, 12, 29][: len(asked)]
        alone = [rows(runner, one, IDS[: n + 8], [n])[n - 1 :] for one, n in zip(asked, lengths, strict=True)]
        caches = [runner.cache(policy_of(one)) for one in asked]
        longest = max(lengths)
        prompts = torch.stack([torch.cat((torch.full((longest - n,), 2), IDS[:n])) for n in lengths])
        found = [runner.read_batch(prompts, [longest - n for n in lengths], caches)]
        for step in range(8):
            tokens = torch.stack([IDS[n + step : n + step + 1] for n in lengths])
            found.append(runner.read_batch(tokens, [0] * len(lengths), caches))
        for row, expected in enumerate(alone):
            close(torch.stack([step[row] for step in found]), expected, 2e-5)
        assert [cache.length for cache in caches] == [n + 8 for n in lengths]


@pytest.mark.parametrize("family", ["llama", "gptj"])
def test_batches_carry_the_length_signal_of_each_row(family: str, tiny):
    runner, asked = run(tiny(family), exact=True), POLICIES["dynamic + window"]
    signal, lengths, targets = SignalSettings("ldpe", 1.0, 0.5, (1, 100)), [9, 17, 1], [20, 5, 11]
    alone = []
    for n, target in zip(lengths, targets, strict=True):
        context, cache = SignalContext(signal, [n], [target]), runner.cache(policy_of(asked))
        parts = [IDS[:n], *IDS[n : n + 8].split(1)]
        alone.append(torch.stack([runner.read(part, cache, None, context) for part in parts]))
    longest = max(lengths)
    pads = [longest - n for n in lengths]
    context, caches = SignalContext(signal, lengths, targets, pads), [runner.cache(policy_of(asked)) for _ in lengths]
    prompts = torch.stack([torch.cat((torch.full((longest - n,), 2), IDS[:n])) for n in lengths])
    found = [runner.read_batch(prompts, pads, caches, context)]
    for step in range(8):
        tokens = torch.stack([IDS[n + step : n + step + 1] for n in lengths])
        found.append(runner.read_batch(tokens, [0] * 3, caches, context))
    for row, expected in enumerate(alone):
        close(torch.stack([step[row] for step in found]), expected, 2e-5)


# ---- what is refused


DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}


def gpt2() -> PreTrainedModel:
    return AutoModelForCausalLM.from_config(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=128))


@pytest.mark.parametrize(
    ("family", "changes", "words"),
    [
        ("gpt2", {}, "learned vector .* choose a model of gpt_neox, gptj, llama"),
        ("mistral", {"sliding_window": 16}, "choose one without"),
        ("llama", {"rope_parameters": DYNAMIC}, "change with the length.* choose a model whose rope_type is"),
    ],
)
def test_models_that_cannot_run_say_so_at_once_and_in_the_same_words(
    family: str, changes: dict, words: str, tiny, tmp_path
):
    model = gpt2() if family == "gpt2" else tiny(family, **changes)
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    lab = Lab(Models([str(tmp_path)]))
    why = lab.capabilities(str(tmp_path), "fp32").unsupported["model"]
    assert re.search(words, why)
    asked = RunSettings(prompt="hi", model=str(tmp_path), precision="fp32")
    for refused in (lambda: next(lab.stream(asked)), lambda: lab.runner(asked), lambda: attach(model)):
        with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
            refused()


def test_every_family_of_the_lab_is_tested():
    assert {*FAMILIES} == {*families.names()}


def test_packed_weights_of_other_layers_are_refused(tiny):
    with pytest.raises(ValueError, match="choose bf16"):
        Runner(loaded(tiny("gpt_neox"), "int8"))


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt_neox", "gptj"])
@pytest.mark.parametrize("name", ["rerope", "leaky rerope", "rerope + window, near limit", "self-extend", "yarn"])
def test_texts_beyond_the_training_length_equal_the_reference(family: str, name: str, tiny):
    short = {"n_positions" if family == "gptj" else "max_position_embeddings": 16}
    expected = reference.logits(tiny(family, **short).double(), IDS, POLICIES[name])
    close(rows(run(tiny(family, **short).double()), POLICIES[name], IDS, [PROMPT]), expected, 1e-5)
    found = run(tiny(family, **short))
    assert (found.fused is not None) == (family in FUSED)
    close(rows(found, POLICIES[name], IDS, [3, PROMPT]), expected, 5e-5)
