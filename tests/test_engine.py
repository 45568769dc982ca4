"""The whole engine: equal to transformers where it must be, and the course and ends of a run."""
from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import peft
import pytest
import reference
import torch
from conftest import tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st
from policies import LAMBDA, PIC, POLICIES, asking
from pydantic import ValidationError
from reading import greedy, rows
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel

from backend import Lab
from backend.inference import chunks
from backend.inference.control import Control
from backend.inference.kv_cache import FramedCache
from backend.inference.model_runner import Runner, runner
from backend.methods.signal import SignalSettings
from backend.models import adapters
from backend.models import embedded as embedded_files
from backend.models.pool import Loaded, Models
from backend.positions import Plain
from backend.refused import Refused
from backend.settings import RunSettings, Watch
from backend.steps import Finish, Step
from backend.text.prompt import TextStream, token_ids

NAN, INF = math.nan, math.inf
PROMPT = "Explain to a child how rain forms, step by step."
# The largest difference that a bf16 logit of the embedded model may have from transformers' own: they reach 38, and
# transformers' bf16 is itself up to 1.6 away from fp32, because both round every product to 8 bits.
BF16_TOLERANCE = 2.5


def untouched(precision: torch.dtype) -> PreTrainedModel:
    """The embedded model as transformers alone loads it."""
    folder = embedded_files.folder()
    return AutoModelForCausalLM.from_pretrained(folder, dtype=precision, attn_implementation="sdpa").eval()


@pytest.fixture(scope="module")
def own_fp32() -> PreTrainedModel:
    return untouched(torch.float32)


@pytest.fixture(scope="module")
def own_bf16() -> PreTrainedModel:
    return untouched(torch.bfloat16)


def ids_of(loaded: Loaded, **changes) -> Tensor:
    return token_ids(RunSettings(**({"prompt": PROMPT} | changes)), loaded.tokenizer)


def continued(model: PreTrainedModel, prompt: Tensor, tokens: int, **options) -> list[int]:
    """What `generate` writes after a prompt."""
    sizes = {"max_new_tokens": tokens, "do_sample": False} | options
    out = model.generate(prompt[None], attention_mask=torch.ones_like(prompt)[None], **sizes)
    return out[0, len(prompt) :].tolist()


def teacher_forced(model: PreTrainedModel, ids: Tensor, prompt: int) -> Tensor:
    """Logits of the prompt's rows at once and of each later token with transformers' own cache."""
    past = DynamicCache(config=model.config)
    with torch.inference_mode():
        found = [model(ids[None, :prompt], past_key_values=past).logits[0]]
        found += [model(ids[None, i : i + 1], past_key_values=past).logits[0] for i in range(prompt, len(ids))]
    return torch.cat(found).float()


# ---- equal to transformers, on the embedded model


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_exact_plain_logits_are_transformers_bit_for_bit(precision: str, request: pytest.FixtureRequest):
    loaded = request.getfixturevalue("embedded" if precision == "bf16" else "embedded_fp32")
    own = request.getfixturevalue(f"own_{precision}")
    prompt = ids_of(loaded)
    text = loaded.tokenizer("Rain begins when the sun warms the sea. " * 4, return_tensors="pt").input_ids[0]
    ids = torch.cat((prompt, text[:30]))
    assert len(ids) == len(prompt) + 30
    expected = teacher_forced(own, ids, len(prompt))
    assert torch.equal(rows(Runner(loaded, exact=True), asking(), ids, [len(prompt)]), expected)


def test_fused_bf16_logits_stay_close(embedded: Loaded, own_bf16: PreTrainedModel, own_fp32: PreTrainedModel):
    prompt = ids_of(embedded)
    ids = torch.cat((prompt, torch.tensor(continued(own_bf16, prompt, 30))))
    expected, true = teacher_forced(own_bf16, ids, len(prompt)), teacher_forced(own_fp32, ids, len(prompt))
    found = rows(runner(embedded), asking(), ids, [len(prompt)])
    assert (found - expected).abs().max() < BF16_TOLERANCE
    # Not farther from the fp32 model than transformers' own bf16 is.
    assert (found - true).square().mean() < 1.1 * (expected - true).square().mean()


def test_200_greedy_tokens_are_generates_own(lab: Lab, embedded_fp32: Loaded, own_fp32: PreTrainedModel):
    asked = RunSettings(prompt=PROMPT, precision="fp32", max_new_tokens=200)
    *steps, finish = lab.stream(asked)
    expected = continued(own_fp32, ids_of(embedded_fp32), 200)
    tokens = [step.token for step in steps]
    assert tokens == [token for token in expected if token != 2] and len(tokens) > 150
    assert finish.text == embedded_fp32.tokenizer.decode(tokens)
    assert runner(embedded_fp32).fused is not None


def test_an_adapter_writes_what_peft_writes(tmp_path: Path, models: Models, own_fp32: PreTrainedModel):
    torch.manual_seed(3)
    model = untouched(torch.float32)
    parts = ["q_proj", "v_proj", "down_proj"]
    config = peft.LoraConfig(r=4, lora_alpha=4, target_modules=parts, init_lora_weights=False)
    lora = peft.get_peft_model(model, config).eval()
    for name, weight in lora.named_parameters():
        if "lora_B" in name:
            weight.data.mul_(0.3)
    lora.save_pretrained(tmp_path)
    loaded = models.load("embedded", "fp32", adapter=tmp_path)
    prompt = ids_of(loaded)
    expected = continued(lora, prompt, 60, min_new_tokens=60)
    with torch.inference_mode():
        assert (lora(prompt[None]).logits - own_fp32(prompt[None]).logits).abs().max() > 1
    assert without_end(Runner(loaded), prompt, 60) == expected


def without_end(run: Runner, prompt: Tensor, tokens: int) -> list[int]:
    """Greedy tokens, EOS forbidden, as generate's min_new_tokens does."""
    cache, found = run.cache(Plain(), len(prompt) + tokens), []
    logits = run.read(prompt, cache)
    while len(found) < tokens:
        found.append(int(logits.index_fill(0, torch.tensor(2), -math.inf).argmax()))
        logits = run.read(torch.tensor(found[-1:]), cache)
    return found


def test_the_embedded_model_under_policies_equals_the_reference(embedded_fp32: Loaded):
    """Rounded to float32, on a text that reaches every part of every policy."""
    ids = embedded_fp32.tokenizer("The water of the sea rises as vapour, and then it cools. " * 3, return_tensors="pt")
    ids = ids.input_ids[0, :30]
    wide = untouched(torch.float64)
    for name in ("ntk", "dynamic", "dynamic, literal + window"):
        expected = reference.logits(wide, ids, POLICIES[name])
        found = rows(runner(embedded_fp32), POLICIES[name], ids, [20])
        assert (found - expected).abs().max() < 2e-3, name


# ---- a small lab


@pytest.fixture(scope="module")
def folder(tiny_folder) -> str:
    return str(tiny_folder("llama"))


@pytest.fixture(scope="module")
def small(folder: str) -> Lab:
    return Lab(Models([folder]))


@pytest.fixture(scope="module")
def own_small() -> PreTrainedModel:
    return tiny_model("llama")


@pytest.fixture(scope="module")
def ask(folder: str) -> Callable[..., RunSettings]:
    """Settings for the small lab."""

    def made(**changes) -> RunSettings:
        return asking(**({"prompt": "How does it rain?", "model": folder, "precision": "fp32"} | changes))

    return made


def tokens_of(lab: Lab, asked: RunSettings) -> list[int]:
    return [event.token for event in lab.stream(asked) if isinstance(event, Step)]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by the number of tokens of each forward call."""
    calls: list[int] = []
    own = Runner.signalled

    def counted(self, tokens, *args, **kwargs):
        calls.append(len(tokens))
        return own(self, tokens, *args, **kwargs)

    monkeypatch.setattr(Runner, "signalled", counted)
    return calls


def own_parts(asked: RunSettings) -> dict:
    """What a policy sets, without the text and the model."""
    return asked.model_dump(exclude={"prompt", "model", "precision"})


def test_a_prompt_under_one_frame_has_no_window(ask):
    for parts in LAMBDA.values():
        with pytest.raises(ValidationError, match="or choose no window"):
            ask(**parts, prefill="paper")


@pytest.mark.parametrize(
    ("name", "prefill"), [(name, "row_exact") for name in POLICIES] + [(name, "paper") for name in PIC]
)
def test_a_run_writes_the_references_likeliest_tokens(name: str, prefill: str, small: Lab, ask, tiny):
    asked = POLICIES[name]
    asked = ask(**own_parts(asked) | {"prefill": prefill, "max_new_tokens": 20})
    prompt = token_ids(asked, small.models.load(asked.model, "fp32").tokenizer)
    *steps, finish = small.stream(asked)
    tokens = [step.token for step in steps] + [2] * (finish.reason == "eos")
    assert finish.reason == "eos" or finish.tokens == 20
    ids = torch.cat((prompt, torch.tensor(tokens)))
    logits = reference.logits(tiny("llama").double(), ids, asked, len(prompt) if prefill == "paper" else 0)
    chosen = logits[len(prompt) - 1 : -1]
    short = chosen.max(-1).values - chosen[torch.arange(len(tokens)), tokens]
    assert short.max() < 1e-4


@pytest.mark.parametrize(
    "changes",
    [
        {"repetition_penalty": 1.3},
        {"temperature": 0.8},
        {"temperature": 1.5, "top_k": 10},
        {"temperature": 0.9, "top_p": 0.7},
        {"temperature": 1.1, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.2},
    ],
)
@pytest.mark.parametrize("seed", [0, 7])
def test_choices_are_generates_own(changes: dict, seed: int, small: Lab, ask, own_small: PreTrainedModel):
    asked = ask(**changes, seed=seed, max_new_tokens=40)
    prompt = token_ids(asked, small.models.load(asked.model, "fp32").tokenizer)
    options = {key: value for key, value in changes.items() if key in ("temperature", "top_p", "repetition_penalty")}
    if asked.temperature > 0:
        options |= {"do_sample": True, "top_k": asked.top_k}
    torch.manual_seed(seed)
    expected = continued(own_small, prompt, 40, **options)
    found = tokens_of(small, asked)
    assert found == [token for token in expected if token != 2]


@pytest.mark.parametrize(
    "changes", [{}, {"temperature": 1.0}, {"temperature": 0.7, "top_k": 5}, {"temperature": 0.7, "top_p": 0.5}]
)
def test_a_decaying_length_penalty_ends_where_generates_does(
    changes: dict, small: Lab, ask, own_small: PreTrainedModel
):
    lengths = []
    for target in (2, 3, 10):
        asked = ask(method="exp_decay", target=target, max_new_tokens=150, **changes)
        prompt = token_ids(asked, small.models.load(asked.model, "fp32").tokenizer)
        options = {"do_sample": True, "top_k": 0} | changes if changes else {}
        torch.manual_seed(0)
        expected = continued(own_small, prompt, 150, exponential_decay_length_penalty=(target, 1.05), **options)
        *steps, finish = small.stream(asked)
        assert [step.token for step in steps] == expected[:-1] and finish.reason == "eos"
        lengths.append(len(steps))
    assert len(set(lengths)) > 1


@pytest.mark.parametrize(("unit", "target"), [("tokens", 20), ("words", 16), ("characters", 80)])
def test_the_decay_ends_an_answer_past_its_target_in_every_unit(lab: Lab, unit: str, target: int):
    asked = {"prompt": "Why is the sky blue?", "max_new_tokens": 200, "watch": {"enabled": False}}
    *_, free = lab.stream(RunSettings(**asked))
    *steps, ended = lab.stream(RunSettings(method="exp_decay", target=target, unit=unit, **asked))
    assert free.tokens > 150 and ended.reason == "eos" and ended.tokens < 80
    # Past the target it counts from where that was met.
    assert steps[-1].p_eos > 1.5 * steps[-1].p_eos_model


def test_seeds_reproduce_and_differ(small: Lab, ask):
    runs = [tokens_of(small, ask(temperature=1.2, seed=seed, max_new_tokens=30)) for seed in (1, 1, 2, 2**32 - 1)]
    assert runs[0] == runs[1] and runs[0] != runs[2] != runs[3]
    torch.manual_seed(99)
    state = torch.get_rng_state()
    assert tokens_of(small, ask(temperature=1.2, seed=1, max_new_tokens=30)) == runs[0]
    assert torch.equal(torch.get_rng_state(), state)


def drawn_with(logits: Tensor, read: list[int], prompt: int, asked: RunSettings) -> Tensor:
    """The distribution that the next token is drawn from, by the definitions of its penalties and cuts."""
    scores, seen = logits.clone(), torch.tensor(sorted(set(read)))
    penalty, late = asked.repetition_penalty, len(read) - prompt - asked.target
    scores[seen] = torch.where(scores[seen] > 0, scores[seen] / penalty, scores[seen] * penalty)
    if asked.method == "exp_decay" and late > 0:
        scores[2] += scores[2].abs() * (1.05**late - 1)
    if asked.temperature == 0:
        return scores.softmax(-1)
    best = (scores / asked.temperature).sort(descending=True)
    place = torch.arange(len(scores))
    kept = best.values.masked_fill(place >= (asked.top_k or len(scores)), -math.inf).softmax(-1)
    kept = kept.masked_fill(kept.cumsum(-1) - kept >= asked.top_p, 0)
    return torch.zeros_like(kept).scatter(0, best.indices, kept / kept.sum())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"repetition_penalty": 1.2},
        {"temperature": 1.3, "top_k": 5, "repetition_penalty": 1.2},
        {"temperature": 0.7, "top_p": 0.6},
        {"method": "exp_decay", "target": 2},
        {"method": "exp_decay", "target": 2, "temperature": 0.8, "top_k": 50},
    ],
    ids=str,
)
def test_probabilities_are_those_drawn_with_and_the_models_own(
    changes: dict, small: Lab, ask, own_small: PreTrainedModel
):
    asked = ask(**changes, max_new_tokens=100)
    prompt = token_ids(asked, small.models.load(asked.model, "fp32").tokenizer)
    *steps, finish = small.stream(asked)
    ended = [2] * (finish.reason == "eos")
    ids = torch.cat((prompt, torch.tensor([step.token for step in steps] + ended)))
    logits = teacher_forced(own_small, ids, len(prompt))[len(prompt) - 1 : -1].double()
    found = [(step.token, step.p, step.p_eos, step.p_model, step.p_eos_model) for step in steps]
    found += [(2, finish.p_eos, finish.p_eos, finish.p_eos_model, finish.p_eos_model)] * len(ended)
    for place, (one, row) in enumerate(zip(found, logits, strict=True), len(prompt)):
        own, drawn = row.softmax(-1), drawn_with(row, ids[:place].tolist(), len(prompt), asked)
        token = one[0]
        assert one[1:] == pytest.approx([float(p[i]) for p in (drawn, own) for i in (token, 2)], abs=1e-4)
        assert drawn[token] > 0
    for step, row in zip(steps, logits, strict=False):
        own = row.softmax(-1)
        assert step.spread == pytest.approx(float(-(own * own.log()).sum()), abs=1e-4)
    assert (finish.p_eos is None) == (finish.p_eos_model is None) == (finish.reason != "eos")
    assert "decay" not in changes.get("method", "") or finish.p_eos > 2 * finish.p_eos_model


def test_gain_zero_is_plain(small: Lab, ask, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(adapters, "ROOT", tmp_path)
    lora = peft.get_peft_model(tiny_model("llama"), peft.LoraConfig(r=2, target_modules=["q_proj"]))
    for gain in (0.0, 1.0):
        adapters.save(tmp_path / "ldpe", lora, SignalSettings("ldpe", gain, gain, (1, 50)), folder)
        found = tokens_of(small, ask(method="ldpe", target=15, max_new_tokens=30))
        assert (found == tokens_of(small, ask(max_new_tokens=30))) == (gain == 0)


# ---- the course of a run


def test_steps_tell_where_the_run_is(small: Lab, ask):
    for name in ("plain", "dynamic", "window", "dynamic + window, near limit"):
        asked = ask(**own_parts(POLICIES[name]) | {"method": "prompted", "target": 12, "max_new_tokens": 20})
        *steps, finish = small.stream(asked)
        n = finish.prompt_tokens
        for index, step in enumerate(steps, 1):
            assert (step.index, step.context) == (index, n + index - 1)
            assert step.attended == sum(reference.sees(step.context - 1, j, asked) for j in range(step.context))
            assert (step.goal, step.remaining) == (12, 12 - index)
            assert (step.reading is not None) == (index == 1)
            assert step.entropy.shape == (3, 4) and step.state.shape == (64,)
            assert (step.entropy >= 0).all() and (step.entropy <= math.log(step.attended) + 1e-5).all()
            assert (step.logits is not None) == (index % 4 == 1)
        assert [s.seconds for s in steps] == sorted(s.seconds for s in steps)
        assert (finish.tokens, finish.error) == (len(steps), len(steps) - 12)
        assert finish.cache_bytes > 0 and finish.prefill_seconds > 0
        reading = steps[0].reading
        assert reading.tokens == n and reading.positions[-1] == n - 1
        assert reading.entropy.shape == (len(reading.positions), 3, 4)
        seen = [sum(reference.sees(t, j, asked) for j in range(t + 1)) for t in reading.positions]
        assert reading.attended.tolist() == seen


def test_a_run_without_target_has_none(small: Lab, ask):
    *steps, finish = small.stream(ask(max_new_tokens=3))
    assert finish.error is None and all(step.goal is None and step.remaining is None for step in steps)


def test_the_cap_ends_a_run_without_another_forward(small: Lab, ask, reads: list[int]):
    *steps, finish = small.stream(ask(max_new_tokens=4))
    assert finish.reason == "cap" and len(steps) == finish.tokens == 4
    assert reads == [finish.prompt_tokens, 1, 1, 1]


def test_the_end_mark_ends_a_run(lab: Lab, embedded: Loaded):
    asked = RunSettings(prompt="What is the capital of France? Answer in one word.", max_new_tokens=100)
    *steps, finish = lab.stream(asked)
    assert finish.reason == "eos" and finish.tokens == len(steps) < 100
    assert 2 not in [step.token for step in steps]
    assert "Paris" in finish.text == "".join(step.text for step in steps)


@pytest.mark.parametrize("after", [1, 5])
def test_stop_frees_compute_within_a_token(after: int, small: Lab, ask, reads: list[int]):
    control = Control()
    events: Iterator[Step | Finish] = small.stream(ask(max_new_tokens=200), control)
    for _ in range(after):
        step = next(events)
    calls = len(reads)
    control.stop()
    finish = next(events)
    assert isinstance(finish, Finish) and finish.reason == "stopped" and finish.tokens == step.index == after
    assert len(reads) == calls == after and control.stopped
    assert next(events, None) is None


def test_stop_from_another_thread_while_the_model_computes(small: Lab, ask, monkeypatch: pytest.MonkeyPatch):
    control, calls, own = Control(), [], Runner.signalled

    def stopping(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 6:
            thread = threading.Thread(target=control.stop)
            thread.start()
            thread.join()
        return own(self, *args, **kwargs)

    monkeypatch.setattr(Runner, "signalled", stopping)
    *steps, finish = small.stream(ask(max_new_tokens=200), control)
    assert finish.reason == "stopped" and len(calls) == 6 and len(steps) in (5, 6)


def test_stop_while_a_long_prompt_is_read(small: Lab, ask, monkeypatch: pytest.MonkeyPatch):
    control, calls, own = Control(), [], Runner.signalled

    def stopping(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            control.stop()
        return own(self, *args, **kwargs)

    monkeypatch.setattr(Runner, "signalled", stopping)
    events = list(small.stream(ask(prompt="It rains. " * 400), control))
    assert len(calls) == 2 and len(events) == 1
    assert events[0].reason == "stopped" and events[0].tokens == 0 and events[0].text == ""


@pytest.mark.parametrize("exact", [False, True])
def test_stop_amid_a_prompt_that_is_read_at_once(exact: bool, small: Lab, ask, monkeypatch: pytest.MonkeyPatch):
    control, layers, own = Control(), [], FramedCache.write

    def stopping(self, layer, *args):
        layers.append(layer)
        control.stop()
        return own(self, layer, *args)

    monkeypatch.setattr(FramedCache, "write", stopping)
    asked = ask(prompt="It rains. " * 40, pic="dynamic", ratio=4, prefill="paper")
    monkeypatch.setattr(small.runner(asked), "fused", None if exact else small.runner(asked).fused)
    (finish,) = small.stream(asked, control)
    assert finish.reason == "stopped" and finish.tokens == 0 and finish.message == "" and layers == [0]


def test_stopped_before_it_starts(small: Lab, ask, reads: list[int]):
    control = Control()
    control.stop()
    events = list(small.stream(ask(), control))
    assert reads == [] and [type(event) for event in events] == [Finish] and events[0].reason == "stopped"


def test_closing_the_stream_ends_the_run(small: Lab, ask, reads: list[int]):
    events = small.stream(ask(max_new_tokens=200))
    next(events), next(events)
    calls = len(reads)
    events.close()
    assert next(events, None) is None and len(reads) == calls == 2


def test_a_long_prompt_is_read_in_chunks_with_the_same_result(small: Lab, ask, reads: list[int]):
    asked = ask(prompt="It rains in spring. " * 150, max_new_tokens=5, pic="dynamic", ratio=4.0, window=300)
    *steps, finish = small.stream(asked)
    assert sum(reads[:-4]) == finish.prompt_tokens > 2048 and max(reads) <= 512
    prompt = token_ids(asked, small.models.load(asked.model, "fp32").tokenizer)
    assert [step.token for step in steps] == greedy(runner(small.models.load(asked.model, "fp32")), asked, prompt, 5)
    assert any("training length" in note for note in finish.notes)
    assert steps[0].reading.positions.tolist() == sorted(set(steps[0].reading.positions.tolist()))


def test_the_target_moves_while_the_run_streams(small: Lab, ask):
    control = Control()
    seen = []
    for event in small.stream(ask(method="prompted", target=30, max_new_tokens=10), control):
        seen.append(event)
        if isinstance(event, Step) and event.index == 3:
            control.retarget(7)
    *steps, finish = seen
    assert [step.goal for step in steps] == [30] * 3 + [7] * 7
    assert [step.remaining for step in steps][-1] == 7 - 10 and finish.error == finish.tokens - 7


@pytest.mark.parametrize("goal", [0, -5, 100_001, 10**30, NAN, INF, -INF])
def test_targets_out_of_range_are_refused_while_a_run_streams(goal: float):
    control = Control()
    with pytest.raises(ValueError, match="target"):
        control.retarget(goal)
    assert control.goal(RunSettings(prompt="Hello", target=30)) == 30


def test_a_target_in_words_is_estimated_afresh(lab: Lab):
    asked = RunSettings(prompt="Describe the sea.", method="prompted", target=40, unit="words", max_new_tokens=30)
    *steps, finish = lab.stream(asked)
    assert finish.error == finish.words - 40
    goals = [step.goal for step in steps]
    assert len(set(goals)) > 1 and all(40 < goal < 80 for goal in goals)
    assert all(step.remaining == step.goal - step.index for step in steps)


def test_another_layer_and_head_can_be_watched(small: Lab, ask):
    control = Control()
    seen = []
    for event in small.stream(ask(max_new_tokens=6, watch={"every": 1, "layer": 1, "head": 2}), control):
        seen.append(event)
        if len(seen) == 3:
            control.watch(99, 3)
    assert [(step.logits.layer, step.logits.head) for step in seen[:-1]] == [(1, 2)] * 3 + [(2, 3)] * 3


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception, reads: int) -> None:
    """Lets every forward call after the first `reads` raise."""
    own, calls = Runner.signalled, []

    def read(self, *args, **kwargs):
        calls.append(1)
        if len(calls) > reads:
            raise error
        return own(self, *args, **kwargs)

    monkeypatch.setattr(Runner, "signalled", read)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("CUDA error: an illegal access\nand more"), "The run failed after 3 tokens (RuntimeError: CUDA"),
        (ValueError("no"), "(ValueError: no): try again, or change the settings."),
        (torch.OutOfMemoryError("CUDA out of memory"), "Memory ran out after 3 tokens: choose a lower cap"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "or a smaller model."),
        (MemoryError(), "Memory ran out"),
    ],
)
def test_what_goes_wrong_under_way_ends_the_run_and_keeps_its_text(
    error: Exception, message: str, small: Lab, ask, monkeypatch: pytest.MonkeyPatch
):
    failing(monkeypatch, error, reads=3)
    *steps, finish = small.stream(ask(method="exp_decay", target=20, max_new_tokens=9))
    assert len(steps) == finish.tokens == 3 and finish.text == "".join(step.text for step in steps)
    assert (finish.reason, finish.error) == ("error", 3 - 20)
    assert message in finish.message and "\n" not in finish.message


def test_before_the_first_token_only_settings_that_cannot_run_are_raised(
    small: Lab, ask, monkeypatch: pytest.MonkeyPatch
):
    failing(monkeypatch, Refused("choose another"), reads=0)
    with pytest.raises(Refused, match="choose another"):
        next(small.stream(ask()))
    for mistake in (RuntimeError("broken"), ValueError("operands could not be broadcast")):
        failing(monkeypatch, mistake, reads=0)
        [finish] = small.stream(ask())
        assert (finish.reason, finish.tokens, finish.text) == ("error", 0, "")


# ---- text


def test_text_pieces_join_to_the_decoded_text(lab: Lab, embedded: Loaded):
    prompt = "Write the words for water in Chinese, Greek and Russian, and five emoji."
    asked = RunSettings(prompt=prompt, max_new_tokens=60)
    *steps, finish = lab.stream(asked)
    text = embedded.tokenizer.decode([step.token for step in steps], skip_special_tokens=True)
    assert "".join(step.text for step in steps) == finish.text == text.rstrip("\ufffd")
    assert not text.isascii()


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=30) | st.text("añ你🙂👩\u200d🚀e\u0301 \n", max_size=20))
def test_any_text_streams_whole_characters(text: str, embedded: Loaded):
    stream = TextStream(embedded.tokenizer)
    ids = embedded.tokenizer(text)["input_ids"]
    pieces = [stream.add(token) for token in ids]
    whole = embedded.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert "".join(pieces) == stream.text
    assert whole == stream.text if not whole.endswith("\ufffd") else whole.startswith(stream.text)


@settings(max_examples=150, deadline=None)
@given(ids=st.lists(st.integers(3, 49_151), max_size=20))
def test_any_tokens_stream_their_text(ids: list[int], embedded: Loaded):
    stream = TextStream(embedded.tokenizer)
    pieces = [stream.add(token) for token in ids]
    whole = embedded.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert "".join(pieces) == stream.text
    assert whole == stream.text if not whole.endswith("\ufffd") else whole.startswith(stream.text)


# ---- what is refused, and what only looks extreme

@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("prompt", ["", "  \n", "x" * 400_001, "\ud800", None, 5]),
        ("precision", ["fp64", "", None]),
        ("method", ["longer", None]),
        ("target", [0, -1, 100_001, NAN, INF, 1.5, "many", None]),
        ("limit", [0, -1, 100_001, NAN, INF]),
        ("max_new_tokens", [0, -1, 16_385, NAN, INF, 10**30]),
        ("pic", ["Dynamic", None]),
        ("ratio", [0, -1, 0.049, 1025, NAN, INF, -INF, None]),
        ("initial", [-1, 100_001, NAN, 2.5]),
        ("recent", [0, -1, 100_001, NAN]),
        ("window", [0, -1, 131_073, NAN, INF, 10**30]),
        ("sinks", [-1, 4097, NAN]),
        ("distance_limit", [0, -1, 131_073, "far", NAN, None]),
        ("temperature", [-0.1, 10.1, NAN, INF, -INF]),
        ("top_k", [-1, 10**7, NAN]),
        ("top_p", [0, -0.1, 1.1, NAN, INF]),
        ("repetition_penalty", [0, -1, 10.1, NAN, INF]),
        ("seed", [-1, 2**32, NAN, 0.5]),
        ("colour", ["blue"]),
    ],
)
def test_settings_out_of_range_are_refused_with_a_sentence(name: str, values: list):
    for value in values:
        with pytest.raises(ValidationError) as refused:
            RunSettings(**({"prompt": "Hello"} | {name: value}))
        message = refused.value.errors()[0]["msg"]
        assert len(message.split()) > 3 and message[0].isupper(), (name, value, message)


@pytest.mark.parametrize("changes", [{"every": 0}, {"layer": -1}, {"head": 1001}, {"colour": 1}])
def test_watches_out_of_range_are_refused(changes: dict):
    with pytest.raises(ValidationError):
        RunSettings(prompt="Hello", watch=changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 1e-300},
        {"temperature": 1e-6},
        {"temperature": 10.0},
        {"temperature": 1.0, "top_p": 1e-9},
        {"temperature": 1.0, "top_k": 1_000_000, "seed": 2**32 - 1},
        {"temperature": 1.0, "top_k": 1},
        {"repetition_penalty": 0.1},
        {"repetition_penalty": 10.0},
        {"pic": "naive", "ratio": 0.05},
        {"pic": "naive", "ratio": 1024.0},
        {"pic": "ntk", "ratio": 0.05},
        {"pic": "ntk", "ratio": 1024.0},
        {"pic": "dynamic", "ratio": 1024.0, "initial": 0, "recent": 1},
        {"pic": "dynamic", "ratio": 0.05, "initial": 100_000, "recent": 100_000},
        {"window": 1, "sinks": 0, "distance_limit": 1},
        {"window": 1, "sinks": 4096, "distance_limit": 131_072},
        {"window": 131_072, "sinks": 0},
        {"method": "prompted", "target": 100_000, "unit": "characters"},
        {"method": "exp_decay", "target": 1},
        {"watch": {"enabled": True, "layer": 2, "head": 3, "every": 1000}},
    ],
)
def test_extreme_settings_run(changes: dict, small: Lab, ask):
    *steps, finish = small.stream(ask(**({"max_new_tokens": 8} | changes)))
    assert finish.reason in ("cap", "eos") and len(steps) == finish.tokens
    for step in steps:
        assert 0 <= step.p <= 1 and math.isfinite(step.spread)
        assert torch.isfinite(torch.from_numpy(step.entropy)).all()


def test_a_tiny_temperature_is_greedy(small: Lab, ask):
    assert tokens_of(small, ask(temperature=1e-6, max_new_tokens=20)) == tokens_of(small, ask(max_new_tokens=20))


def test_runs_that_cannot_be_are_refused_before_the_first_step(small: Lab, ask, reads: list[int], tiny_folder):
    for changes, sentence in (
        ({"prompt": "a" * 131_073}, "shorten it"),
        ({"model": "nobody/nothing"}, "allow-list"),
        ({"method": "pre"}, "train one"),
    ):
        with pytest.raises(ValueError, match=sentence):
            next(small.stream(ask(**changes)))
    mpt = str(tiny_folder("mpt"))
    for changes in (PIC["naive"], PIC["ntk"], PIC["dynamic"]):
        with pytest.raises(ValueError, match="ALiBi"):
            next(Lab(Models([mpt])).stream(ask(model=mpt, **changes)))
    assert reads == []
    assert len(list(Lab(Models([mpt])).stream(ask(model=mpt, max_new_tokens=3, **LAMBDA["window"])))) > 1


@pytest.mark.parametrize("rest", [1, 2])
def test_prompts_that_end_in_a_chunk_of_one_token_are_seen_whole(lab, monkeypatch, rest):
    asked = RunSettings(prompt="Why is the sky blue?", max_new_tokens=2, precision="fp32")
    step = next(iter(lab.stream(asked)))
    monkeypatch.setattr(chunks, "FIRST_CHUNK", 1)
    monkeypatch.setattr(chunks, "CHUNK", (step.reading.tokens - 1) if rest == 1 else 1)
    found = next(iter(lab.stream(asked)))
    assert found.token == step.token and found.attended == step.attended
    assert found.reading.positions[-1] == step.reading.positions[-1]
    assert found.reading.attended[-1] == step.reading.attended[-1] == step.reading.tokens
    assert np.allclose(found.reading.entropy[-1], step.reading.entropy[-1], atol=1e-3)


def test_layers_and_heads_the_model_lacks_are_refused(lab):
    for watch in (Watch(layer=30), Watch(head=9)):
        with pytest.raises(ValueError, match="30 layers of 9 heads"):
            next(iter(lab.stream(RunSettings(prompt="Hi", watch=watch))))


def test_a_model_without_the_head_that_is_watched_by_default_shows_its_last(folder):
    lab = Lab(Models([folder]))
    asked = RunSettings(prompt="Hi", model=folder, precision="fp32", max_new_tokens=1)
    can, logits = lab.capabilities(folder, "fp32"), next(iter(lab.stream(asked))).logits
    assert can.layers <= Watch().layer and can.heads <= Watch().head
    assert (logits.layer, logits.head) == (can.layers - 1, can.heads - 1)
    with pytest.raises(ValueError, match=f"{can.layers} layers of"):
        next(iter(lab.stream(asked.model_copy(update={"watch": Watch(layer=can.layers)}))))


def test_a_distance_limit_that_does_nothing_is_said(lab):
    asked = RunSettings(prompt="Why?", pic="streaming_llm", window=16, sinks=2, distance_limit=8, max_new_tokens=2)
    notes = [list(lab.stream(each))[-1].notes for each in (asked, asked.model_copy(update={"pic": "none"}))]
    assert notes == [("the distance limit did nothing: StreamingLLM bounds distances by itself",), ()]
