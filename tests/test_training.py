"""Training: data, curriculum, the loss, exact resume, and that a signal is learnt."""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from itertools import islice

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from backend.__main__ import main
from backend.evaluation.experiments.length_control import prompts
from backend.inference.embedding import SignalContext, signalling
from backend.inference.embedding import attach as attach_signal
from backend.inference.model_runner import Runner
from backend.inference.signal import signal_rows
from backend.methods.signal import SignalSettings
from backend.models.adapters import Adapter
from backend.models.capabilities import describe
from backend.models.pool import Loaded
from backend.positions import Plain, PositionPolicy
from backend.record import jsonlines
from backend.settings import RunSettings
from backend.splits import prompts as split_prompts
from backend.text.prompt import token_ids
from backend.text.units import tolerance
from backend.training import distill as distilling
from backend.training import train as training
from backend.training.command import _hub
from backend.training.curriculum import EVEN, SHORT_FIRST, learning_rate, stage
from backend.training.data import SUMMARISE, Row, Sample, Text, batches, held_out, hub_texts, prompts_of, samples, texts
from backend.training.distill import HINTS, distill
from backend.training.settings import PRESETS, TrainSettings
from tests.conftest import tiny_model, tiny_tokenizer

# How far nats computed in bf16 may be from those in fp32.
BF16 = 0.1


def tiny_loaded(family: str = "llama") -> Loaded:
    model = tiny_model(family)
    return Loaded(model, tiny_tokenizer(), describe("tiny", model, "fp32"))


def letters(count: int = 24) -> list[Sample]:
    """Prompts of a few letters, responses of one letter repeated, which may be cut anywhere."""
    draw = random.Random(0)
    return [
        Sample("", tuple(draw.randrange(5, 90) for _ in range(draw.randrange(3, 9))), (7,) * 20, tuple(range(2, 20)))
        for _ in range(count)
    ]


def quick(method: str = "ldpe", **changes) -> TrainSettings:
    return TrainSettings(
        **{"method": method, "samples": 48, "budget": 150, "rank": 4, "alpha": 8, "longest": 20} | changes
    )


# Data


def test_every_tenth_prompt_is_held_out_whatever_surrounds_it():
    share = sum(held_out(f"question {i}") for i in range(4000)) / 4000
    assert 0.08 < share < 0.12
    assert held_out("question 3") == held_out("  question 3\n")
    assert all(map(held_out, prompts(40)["questions"]))


def test_prompts_of_the_validation_and_the_test_set_are_held_out(embedded):
    asked = [prompt.text for split in ("validation", "test") for prompt in split_prompts(split)]
    assert len(asked) >= 100 and all(map(held_out, asked))
    assert not samples([Text("t", text, "One sentence.") for text in asked], embedded.tokenizer, 1000, 50)


def test_files_are_read_by_their_fields(tmp_path):
    def file(name, *rows):
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)) + "\n")
        return tmp_path / name

    own = file("own.jsonl", {"prompt": "a", "response": "b", "source": "own", "id": "1", "ended": True}, {"done": 5})
    assert [(t.source, t.prompt, t.response, t.ended) for t in texts(own)] == [("own", "a", "b", True)]
    cut = file("cut.jsonl", {"prompt": "a", "response": "b", "ended": False})
    assert not next(texts(cut)).ended
    file("prompts.jsonl", {"id": "q1", "prompt": "why?"})
    answers = file("responses.jsonl", {"id": "q1", "response": "so."}, {"id": "gone", "response": "no."})
    assert [(t.prompt, t.response) for t in texts(answers)] == [("why?", "so.")]
    papers = file("papers.jsonl", {"abstract": "long", "tldr": "short", "title": "t"})
    assert [(t.prompt, t.response) for t in texts(papers)] == [(SUMMARISE + "long", "short")]
    with pytest.raises(ValueError, match="give prompt and response"):
        list(texts(file("odd.jsonl", {"question": "x"})))


def test_data_sets_of_the_hub_are_read_by_their_fields(tmp_path, monkeypatch):
    """The hub's own layouts in local folders of the same names, which `datasets` prefers."""
    monkeypatch.chdir(tmp_path)
    for library in ("datasets.config", "huggingface_hub.constants"):
        monkeypatch.setattr(f"{library}.HF_HUB_OFFLINE", True)

    def rows(folder, split, *lines, config="default"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
        files = f"  data_files:\n  - split: {split}\n    path: rows.jsonl\n"
        (tmp_path / folder / "README.md").write_text(f"---\nconfigs:\n- config_name: {config}\n{files}---\n")

    def read(name, most=9):
        return [(text.prompt, text.response) for text in hub_texts(name, most)]

    asked = ({"system_prompt": "", "question": f"q{n}", "response": "r"} for n in range(5))
    rows("Open-Orca/OpenOrca", "train", *asked)
    assert {prompt for prompt, _ in read("Open-Orca/OpenOrca")} == {f"q{n}" for n in range(5)}
    assert len(read("Open-Orca/OpenOrca", 2)) == 2
    question = {"question": "2 + 2?", "subject": "", "choices": ["3", "4", "5", "6"], "answer": 1}
    rows("cais/mmlu", "auxiliary_train", question, config="all")
    assert read("cais/mmlu") == [("2 + 2?\nA. 3\nB. 4\nC. 5\nD. 6", "B. 4")]
    rows("odd/set", "train", {"text": "x"})
    with pytest.raises(ValueError, match="rows with text: give"):
        read("odd/set")
    for name in ("odd/none", "a b/c"):
        with pytest.raises(ValueError, match="cannot be read"):
            read(name)


def test_samples_leave_out_what_cannot_be_learnt(embedded):
    kept = next(f"Tell me about number {i}." for i in range(50) if not held_out(f"Tell me about number {i}."))
    out = next(f"Tell me about number {i}." for i in range(200) if held_out(f"Tell me about number {i}."))
    given = [
        Text("t", kept, "One sentence. Two sentences. And a"),
        Text("t", out, "One sentence."),
        Text("t", kept, "no sentence " * 60),
        Text("t", kept + " word" * 300, "One sentence."),
    ]
    (found,) = samples(given, embedded.tokenizer, 100, 50)
    assert [embedded.tokenizer.decode(found.response[:cut]) for cut in found.cuts] == [
        "One sentence.",
        "One sentence. Two sentences.",
    ]
    assert not found.ended
    whole = Text("t", kept, "One sentence. Two sentences.")
    assert [s.ended for s in samples([whole, replace(whole, ended=False)], embedded.tokenizer, 100, 50)] == [
        True,
        False,
    ]
    assert not samples([whole], embedded.tokenizer, 100, 5)[0].ended
    given = [whole, replace(whole, ended=False), given[0]]
    assert [s.ended for s in samples(given, embedded.tokenizer, 100, 50, ended=True)] == [True]
    assert not samples([whole], embedded.tokenizer, 100, 5, ended=True)


@pytest.mark.parametrize("method", ["ldpe", "mnt_orpe"])
def test_a_share_of_the_samples_say_their_length_as_a_run_does(embedded, tmp_path, method):
    kept = [Text("t", text, "It rains. Then it stops.") for i in range(60) if not held_out(text := f"Name {i} rains.")]
    found = samples(kept, embedded.tokenizer, 100, 50)

    def said(share):
        loaded = replace(tiny_loaded(), tokenizer=embedded.tokenizer)
        run = training._Run(loaded, found, quick(method, said=share), tmp_path / f"{share}")
        return [run._prompt(sample, 14) for sample in found]

    ways = dict.fromkeys(said(1.0))
    asked = [RunSettings(prompt=text.prompt, method=method, target=14, limit=14, in_prompt=True) for text in kept]
    assert [*ways] == [tuple(token_ids(one, embedded.tokenizer).tolist()) for one in asked]
    assert said(0.0) == [sample.prompt for sample in found]
    half = said(0.5)
    count = sum(prompt in ways for prompt in half)
    assert 0.25 < count / len(found) < 0.75 and half == said(0.5)


def spelt(text: str, kind: str) -> PreTrainedTokenizerFast:
    """A tokenizer of one kind that knows the beginnings of a text's words; other characters are bytes."""
    words = [(" " + word).replace(" ", "▁" if kind != "byte-level" else "Ġ") for word in text.split() if word.isascii()]
    bytes_ = list(bytes_to_unicode().values()) if kind == "byte-level" else [f"<0x{byte:02X}>" for byte in range(256)]
    starts = [word[:n] for word in words for n in range(1, len(word) + 1)]
    pieces = dict.fromkeys(["<unk>", "<s>", "</s>", *bytes_, *sorted(set("".join(words))), *starts])
    merges = dict.fromkeys((word[:n], word[n]) for word in words for n in range(1, len(word)))
    ids = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(BPE(ids, list(merges), byte_fallback=kind != "byte-level", unk_token="<unk>"))
    if kind == "byte-level":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    elif kind == "metaspace":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(), decoders.Fuse()])
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        tokenizer.decoder = decoders.Sequence(parts)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


@pytest.mark.parametrize("kind", ["prepended", "metaspace", "byte-level"])
def test_responses_are_cut_at_their_sentences_by_tokenizers_of_every_kind(kind):
    """As Llama 2 and Mistral spell (spaces within tokens, bytes for unknown characters), and as GPT does."""
    said = ["Rain falls.", "Who knows why?", "Clouds 🌧 do!", "It was 3.5 mm, or so they say.", "Then 雨 stopped."]
    tokenizer = spelt(" ".join(said), kind)
    (found,) = samples([Text("t", "Tell me of rain.", " ".join(said))], tokenizer, 100, 500)
    cut = [tokenizer.decode(found.response[:n]).strip() for n in found.cuts]
    assert cut == [" ".join(said[:n]) for n in range(1, len(said) + 1)] and found.ended


def test_batches_keep_their_budget_and_their_cuts():
    given = letters()
    found = batches(given, 12, 60, random.Random(3))
    rows = [row for batch in found for row in batch]
    assert len(rows) == len(given)
    assert all(2 <= len(row.response) <= 12 for row in rows)
    for batch in found:
        assert len(batch) == 1 or max(len(row.prompt) + len(row.response) + 1 for row in batch) * len(batch) <= 60
    assert batches(given, 12, 60, random.Random(3)) == found != batches(given, 12, 60, random.Random(4))


def test_a_limit_exceeds_a_cut_response_by_less_than_its_next_sentence():
    ended = Sample("a", (1,), tuple(range(20)), (4, 9, 20), ended=True)
    broken = Sample("b", (2,), tuple(range(20)), (4, 9), ended=False)
    rows = [row for seed in range(99) for (row,) in batches([ended, broken], 99, 9, random.Random(seed), whole=0.1)]
    leads = {(row.prompt[0], len(row.response), row.lead) for row in rows}
    assert leads == {(1, 4, 4), (1, 9, 10), (1, 20, None), (2, 4, 4), (2, 9, 11)}
    inside = [row for seed in range(9) for (row,) in batches([ended], 99, 9, random.Random(seed), 0.9, whole=0.1)]
    assert {row.lead for row in inside if len(row.response) not in ended.cuts} == {1}
    assert {row.lead for batch in batches([ended, broken], 99, 9, random.Random(0)) for row in batch} == {None}


def test_responses_that_ended_by_themselves_are_left_whole_as_often_as_asked():
    given = [Sample("a", (1,), tuple(range(20)), (4, 9, 20), ended=True), Sample("b", (2,), (3,) * 20, (4, 9))]
    rows = [
        row for seed in range(99) for batch in batches(given, 99, 9, random.Random(seed), whole=1.0) for row in batch
    ]
    assert {len(row.response) for row in rows if row.prompt == (1,)} == {20}
    assert {len(row.response) for row in rows if row.prompt == (2,)} == {4, 9}
    assert all(len(row.response) <= 9 for batch in batches(given, 9, 9, random.Random(0), whole=1.0) for row in batch)


def test_with_slack_each_answer_is_given_targets_that_it_meets():
    given = [Sample(f"{n}", (1,), tuple(range(n)), (n,), ended=True) for n in (1, 4, 30, 62, 119, 203)]
    drawn = [
        row
        for seed in range(300)
        for batch in batches(given, 999, 9, random.Random(seed), whole=1.0, slack=True)
        for row in batch
    ]
    for n in (1, 4, 30, 62, 119, 203):
        targets = {row.target for row in drawn if len(row.response) == n}
        assert targets == {t for t in range(1, 400) if abs(t - n) <= tolerance(t, "tokens")}
    assert {row.target for row in batches(given, 999, 9999, random.Random(0), whole=1.0)[0]} == {1, 4, 30, 62, 119, 203}


def test_with_slack_a_prompt_says_the_target_that_the_signal_is_shown_for(tmp_path):
    loaded, settings = tiny_loaded(), quick("ldpe_slack")
    run = training._Run(loaded, letters(), settings, tmp_path / "t")
    shown = run._rows([Row((5, 6, 7), (9,) * 12, target=14)], 15, 1.0)
    longest = SignalContext(SignalSettings("ldpe", 0.5, run.signal.constant, (1, 99)), [3], [17])
    torch.testing.assert_close(shown, longest.rows(15, shown.shape[-1], torch.device("cpu")))
    asked = []
    batches([Sample("Why?", (1,), (2,) * 9, (9,), ended=True)], 99, 99, random.Random(1), 0.0, 1.0,
            lambda sample, target: asked.append(target) or (1,), True)  # fmt: skip
    assert asked != [9] and abs(asked[0] - 9) <= 3


def test_long_texts_are_kept_whole(embedded):
    kept = next(f"Tell me about number {i}." for i in range(50) if not held_out(f"Tell me about number {i}."))
    found = samples((Text("t", kept, "one two " * n) for n in (5, 20, 60)), embedded.tokenizer, 100, 100, shortest=30)
    assert [sample.cuts for sample in found] == [(len(found[0].response),)] and 30 <= found[0].cuts[0] <= 100


def test_stages_and_rates():
    assert stage(SHORT_FIRST, 0.0).longest == 40 and stage(SHORT_FIRST, 1.0) == SHORT_FIRST[-1]
    assert stage(EVEN, 0.3).end_weight == 1.0
    rates = [learning_rate(1e-3, share / 100) for share in range(101)]
    assert max(rates) <= 1e-3 and rates[-1] == 0 and rates[0] > 0
    assert rates[3:] == sorted(rates[3:], reverse=True)


# The loss


@pytest.mark.parametrize("method", ["ldpe", "orpe", "lrpe"])
def test_the_loss_is_that_of_the_whole_model_row_by_row(method, tmp_path):
    loaded, settings = tiny_loaded(), quick(method)
    run = training._Run(loaded, letters(), settings, tmp_path / "t")
    rows = [Row((5, 6, 7, 8), (9, 10, 11)), Row((5, 6), (12, 13, 14, 15, 16))]
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        nll, kl, is_end = run._nll(rows, 0.0)
    assert not kl.any()
    assert is_end.tolist() == [False] * 3 + [True] + [False] * 5 + [True]
    attach_signal(loaded.model)
    expected = []
    for prompt, response, *_ in rows:
        ids = torch.tensor([[*prompt, *response]])
        with torch.no_grad(), signalling(SignalContext(run.signal, [len(prompt)], [len(response)])):
            logits = run.lora.get_base_model()(ids).logits[0, len(prompt) - 1 :]
        expected.append(F.cross_entropy(logits.float(), torch.tensor([*response, 2]), reduction="none"))
    # The run computes in bf16 where the processor has it, the reference in fp32.
    torch.testing.assert_close(nll, torch.cat(expected), atol=BF16, rtol=0)


@pytest.mark.parametrize("listed", [2, [2, 40], [40, 41, 2]])
def test_the_divergence_is_that_from_the_untouched_model(tmp_path, listed):
    loaded, rows = tiny_loaded(), [Row((5, 6, 7, 8), (9, 10, 11)), Row((5, 6), (12, 13, 14, 15, 16))]
    loaded.model.generation_config.eos_token_id = listed
    same = training._Run(loaded, letters(), quick("prompted_tuned", match=1.0), tmp_path / "same")
    ends = []
    for prompt, response, *_ in rows:
        with torch.no_grad():
            logits = same.lora.get_base_model()(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 :]
        ends.append(logits.float().softmax(-1)[:, listed].reshape(len(logits), -1).sum(-1))
    with torch.no_grad():
        kl = same._nll(rows, 0.0)[1]
    # All that a base model strays from itself without its EOS tokens is their share.
    torch.testing.assert_close(kl, -torch.log1p(-torch.cat(ends)), atol=1e-3, rtol=0.1)
    other = training._Run(tiny_loaded(), letters(), quick("ldpe", match=1.0, gain=4.0), tmp_path / "other")
    with torch.no_grad():
        nll, kl, is_end = other._nll(rows, 0.0)
    assert kl.shape == nll.shape == is_end.shape and (kl > 1e-4).all()


def test_max_new_tokens_plus_plus_lengthens_counts_and_pre_is_noisy(tmp_path):
    rows, loaded = [Row((5, 6, 7), (9,) * 12, lead=None)], tiny_loaded()
    for method in ("mnt_ldpe", "mnt_orpe", "pre"):
        run = training._Run(loaded, letters(), quick(method), tmp_path / method)
        torch.manual_seed(0)
        early, late, again = (run._rows(rows, 15, share) for share in (0.0, 1.0, 1.0))
        assert not torch.equal(late, again)
        assert torch.equal(early[0, :2], again[0, :2]) == (method in ("pre", "mnt_orpe"))


def test_a_limit_in_training_heeds_what_its_row_allows(tmp_path):
    run = training._Run(tiny_loaded(), letters(), quick("mnt_ldpe"), tmp_path / "t")
    exact, near = (run._rows([Row((5, 6, 7), (9,) * 12, lead)], 15, 1.0) for lead in (0, 1))
    places, prompts = torch.arange(15)[None], torch.tensor([[3]])
    for rows, shift in ((exact, 0), (near, 1)):
        assert torch.equal(rows, signal_rows(run.signal, places, prompts, torch.tensor([[12 + shift]]), rows.shape[-1]))


def test_limits_are_trained_on_whole_responses(tmp_path):
    whole = [replace(sample, cuts=(2, 20), ended=True) for sample in letters()]
    run = training._Run(tiny_loaded(), whole, quick("mnt_ldpe", curriculum="limits"), tmp_path / "t")
    rows = [row for group in islice(run._groups(), 8) for batch in group for row in batch]
    amid = [row for row in rows if len(row.response) not in (2, 20)]
    assert {(len(row.response), row.lead) for row in rows if row not in amid} == {(2, 17), (20, None)}
    assert {row.lead for row in amid} == {1} and 0.15 < len(amid) / len(rows) < 0.4
    assert sum(len(row.response) == 20 for row in rows) > 0.4 * len(rows)


def test_an_adapter_starts_as_the_model_itself(tmp_path):
    loaded = tiny_loaded()
    loaded.model.set_attn_implementation("eager")
    ids = torch.arange(3, 30)[None]
    before = loaded.model(ids).logits
    run = training._Run(loaded, letters(), quick(), tmp_path / "t")
    assert torch.equal(run.lora.get_base_model()(ids).logits, before)
    assert {p.dtype for p in run.lora.parameters() if p.requires_grad} == {torch.float32}


def policy_nll(row, end: int, policy: PositionPolicy) -> torch.Tensor:
    """Nats of a row's response and EOS, read under a policy in fp32."""
    prompt, response, *_ = row
    reader = Runner(tiny_loaded(), exact=True)
    ids = torch.tensor([*prompt, *response])
    logits = reader.read(ids, reader.cache(policy, len(ids)), every_row=True)[len(prompt) - 1 :]
    return F.cross_entropy(logits, torch.tensor([*response, end]), reduction="none")


@pytest.mark.parametrize("method, kind", [("sft", "none"), ("sft_ntk", "ntk"), ("sft_dynamic", "dynamic")])
def test_long_texts_are_trained_on_under_their_positions(tmp_path, method, kind):
    settings = quick(method, ratio=4.0, initial=2, recent=5, segment=1)
    run = training._Run(tiny_loaded(), letters(), settings, tmp_path / "t")
    (row,) = next(run._groups())[0]
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        nll, _, _ = run._nll([row], 0.0)
    assert run.longform.kind == kind and run.signal is None
    expected, plain = (policy_nll(row, run.end, policy) for policy in (run.longform.policy, Plain()))
    # The run computes in bf16 where the processor has it, the reference in fp32.
    torch.testing.assert_close(nll, expected, atol=BF16, rtol=0)
    assert ((nll - plain).abs().max() > BF16) == (kind != "none")
    adapter = training.train(tiny_loaded(), letters(), settings, tmp_path / method, str)
    assert Adapter.load(adapter.path).method == method and adapter.longform == settings.longform
    card = (adapter.path / "README.md").read_text()
    assert "evaluate pic_sft" in card and ("compression by 4" in card) == (kind != "none")


# The loop


def trained(folder, settings, stop_at=None):
    run = training._Run(tiny_loaded(), letters(), settings, folder)
    step = run._step

    def counted(group, seen):
        if run.progress.step == stop_at:
            run._checkpoint()
            raise KeyboardInterrupt
        return step(group, seen)

    run._step = counted
    try:
        list(run.steps())
    except KeyboardInterrupt:
        return None
    return {name: p.detach().clone() for name, p in run.lora.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("method", ["ldpe", "mnt_orpe", "pre", "sft_dynamic"])
def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(tmp_path, method):
    settings = quick(method, dropout=0.1)
    whole = trained(tmp_path / "whole", settings)
    assert trained(tmp_path / "parts", settings, stop_at=3) is None
    resumed = trained(tmp_path / "parts", settings)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_run_that_dies_goes_on_from_where_it_was_by_the_clock(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0)
    run = training._Run(tiny_loaded(), letters(), quick(), tmp_path / "t")
    step = run._step

    def dying(group, seen):
        if run.progress.step == 3:
            raise KeyboardInterrupt
        return step(group, seen)

    run._step = dying
    with pytest.raises(KeyboardInterrupt):
        list(run.steps())
    assert training._Run(tiny_loaded(), letters(), quick(), tmp_path / "t").progress.step == 3


def test_the_log_of_a_resumed_run_tells_each_step_once(tmp_path):
    settings = quick()
    trained(tmp_path / "t", settings, stop_at=3)
    jsonlines.append(tmp_path / "t" / training.LOG, [{"step": 2}, {"step": 5}])
    trained(tmp_path / "t", settings)
    steps = [row["step"] for row in jsonlines.read(tmp_path / "t" / training.LOG)]
    assert steps[0] == 2 and 5 not in steps[:2] and steps == sorted(set(steps))


def test_a_run_does_not_go_on_with_other_settings(tmp_path):
    trained(tmp_path / "t", quick(), stop_at=2)
    with pytest.raises(ValueError, match=r"other settings \(rate\)"):
        trained(tmp_path / "t", quick(rate=1e-2))


def test_a_run_goes_on_that_began_before_a_setting_was_known(tmp_path):
    trained(tmp_path / "t", quick(), stop_at=2)
    state = torch.load(tmp_path / "t" / training.CHECKPOINT, weights_only=True)
    del state["settings"]["mnt_nearest"]
    torch.save(state, tmp_path / "t" / training.CHECKPOINT)
    assert training._Run(tiny_loaded(), letters(), quick(), tmp_path / "t").progress.step == 2
    with pytest.raises(ValueError, match=r"other settings \(mnt_nearest\)"):
        training._Run(tiny_loaded(), letters(), quick(mnt_nearest=True), tmp_path / "t")


def test_a_folder_is_one_trainings_at_a_time(tmp_path):
    given = (tiny_loaded(), letters(), quick(samples=2), tmp_path / "t")
    with training.sole(tmp_path / "t.training"), pytest.raises(ValueError, match="another training writes to"):
        training.train(*given)
    assert training.train(*given).path == tmp_path / "t"


def test_a_run_does_not_go_on_with_other_texts(tmp_path):
    trained(tmp_path / "t", quick(), stop_at=2)
    with pytest.raises(ValueError, match=r"other settings \(texts\)"):
        training._Run(tiny_loaded(), letters(25), quick(), tmp_path / "t")


@pytest.mark.parametrize("targets", ["q_proj", "q_proj,v_proj"])
def test_modules_for_the_lora_are_named_by_commas(targets, tmp_path):
    run = training._Run(tiny_loaded(), letters(), quick(targets=targets), tmp_path / "t")
    trainable = [name for name, p in run.lora.named_parameters() if p.requires_grad]
    assert {name.split(".lora")[0].rsplit(".", 1)[1] for name in trainable} == set(targets.split(","))


def test_training_learns_to_end_where_the_count_does(tmp_path):
    settings = quick("orpe", samples=1500, budget=400, gain=1.0, rank=8, alpha=16, rate=5e-3, curriculum="even")
    run = training._Run(tiny_loaded(), letters(), settings, tmp_path / "t")
    held = [Row((40, 50, 60), (7,) * length) for length in (3, 8, 13, 18)]

    def ends():
        with torch.no_grad():
            nll, _, is_end = run._nll(held, 0.0)
        return nll[is_end].mean()

    before = ends()
    list(run.steps())
    assert before > 2 and ends() < 0.3


def test_an_adapter_lies_with_its_log_and_settings(tmp_path):
    adapter = training.train(tiny_loaded(), letters(), quick("mnt_ldpe"), tmp_path / "mnt_ldpe", str)
    assert Adapter.load(adapter.path).method == "mnt_ldpe" and adapter.settings.mnt.shift_max == 256
    log = [json.loads(line) for line in (adapter.path / "training.jsonl").read_text().splitlines()]
    assert log[-1]["samples"] >= 48 and {"loss_end", "loss_text", "rate", "seconds"} <= set(log[-1])
    about = json.loads((adapter.path / "training.json").read_text())
    assert about["settings"]["method"] == "mnt_ldpe" and about["commit"]
    with safe_open(adapter.path / "adapter_model.safetensors", "pt") as tensors:
        assert {tensors.get_tensor(name).dtype for name in tensors.keys()} == {torch.float16}


def test_a_prompt_tuned_adapter_has_no_signal(tmp_path):
    text = Sample("Say it.", (5, 6), (7,) * 20, tuple(range(2, 20)))
    adapter = training.train(
        tiny_loaded(), [text] * 8, quick("prompted_tuned", longest_prompt=200), tmp_path / "p", str
    )
    assert adapter.settings is None and adapter.method == "prompted_tuned"


def test_rows_of_a_hub_set_may_be_counted():
    assert _hub("Open-Orca/OpenOrca") == ("Open-Orca/OpenOrca", 100_000)
    assert _hub("cais/mmlu:10000") == ("cais/mmlu", 10_000)
    for wrong in ("cais/mmlu:0", "cais/mmlu:ten", "cais/mmlu:-3"):
        with pytest.raises(ValueError, match="give NAME, or NAME:ROWS"):
            _hub(wrong)


def test_presets_are_settings():
    for name, values in PRESETS.items():
        assert TrainSettings(**{"method": "ldpe", **values}), name
    butcher = TrainSettings(method="ldpe", **PRESETS["butcher"])
    assert (butcher.rank, butcher.alpha, butcher.dropout, butcher.rate) == (16, 32, 0.05, 3e-4)
    assert (butcher.betas, butcher.accumulate, butcher.gain) == ((0.9, 0.99), 5, 1.0)
    whole = Sample("Say it.", (5, 6), tuple(range(20)), (4, 9, 20), ended=True)
    (way,) = butcher.stages
    for seed in range(20):
        ((row,),) = batches([whole], way.longest, butcher.budget, random.Random(seed), way.anywhere, way.whole)
        assert row.response == whole.response


# The command


def corpus(file):
    jsonlines.append(file, [{"prompt": f"number {n}", "response": f"It is {n}. That is all."} for n in range(40)])
    return str(file)


def test_a_quantised_model_is_trained_and_its_adapter_loads(tmp_path, tiny_folder):
    folder = tiny_folder("llama")
    given = ["--data", corpus(tmp_path / "c.jsonl"), "--samples", "30", "--load-in-4bit", "--note", "Made up."]
    assert main(["train", "--method", "orpe", "--model", str(folder), "--out", str(tmp_path / "a"), *given]) == 0
    adapter = Adapter.load(tmp_path / "a")
    assert adapter.method == "orpe" and adapter.base == str(folder)
    card = (adapter.path / "README.md").read_text()
    assert "Made up." in card and f"base_model: {folder}" in card and "- c: 36" in card


def test_an_answer_without_a_full_stop_ends_where_it_ends(embedded):
    prompt = next(f"Which of {i}?" for i in range(50) if not held_out(f"Which of {i}?"))
    (found,) = samples([Text("mmlu", prompt, "B. 4")], embedded.tokenizer, 200, 40)
    assert found.cuts == (len(found.response),) and embedded.tokenizer.decode(found.response) == "B. 4"


@pytest.mark.scale
def test_two_processes_train_one_adapter(tmp_path, tiny_folder):
    given = ["--method", "ldpe", "--model", str(tiny_folder("llama")), "--samples", "30", "--budget", "100"]
    given += ["--data", corpus(tmp_path / "c.jsonl"), "--out", str(tmp_path / "a")]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1"}
    done = subprocess.run(
        [*launch, "-m", "backend", "train", *given],
        capture_output=True, text=True, env=environment, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert Adapter.load(tmp_path / "a").method == "ldpe"
    steps = [row["step"] for row in jsonlines.read(tmp_path / "a" / training.LOG)]
    assert steps == sorted(set(steps))


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], "nothing to train on"),
        (["--data", "nowhere.jsonl"], "there is no file nowhere.jsonl"),
        (["--samples", "0"], "samples is 0: give at least 1"),
        (["--rate", "nan"], "rate is nan: give a number above 0"),
        (["--gain", "-1"], "gain is -1.0: give a number from 0"),
        (["--curriculum", "none"], "choose one of short-first, long, even"),
        (["--dropout", "1"], "dropout and betas"),
        (["--match", "2"], "match is 2.0: give a share from 0 to 1"),
    ],
)
def test_the_command_says_what_is_missing(arguments, words, tmp_path, capsys):
    assert main(["train", "--method", "ldpe", "--out", str(tmp_path / "a"), *arguments]) == 2
    assert words in capsys.readouterr().err


def test_corpora_are_read_line_by_line_or_refused_with_a_sentence(tmp_path, capsys):
    file = tmp_path / "a.jsonl"
    jsonlines.append(file, [{"prompt": "one\u2028line"}, {"done": 1}])
    jsonlines.append(file, [{"prompt": "two"}])
    assert jsonlines.read(file) == [{"prompt": "one\u2028line"}, {"done": 1}, {"prompt": "two"}]
    with pytest.raises(ValueError, match=r"document 2 of .* lacks prompt"):
        jsonlines.read(file, "prompt")
    file.write_text('{"prompt": "x"}\n{oops\n')
    with pytest.raises(ValueError, match=r"document 2 of .* is no JSON"):
        jsonlines.read(file)
    file.write_bytes(b"\xff\xfe")
    assert main(["distill", "--out", str(tmp_path / "o.jsonl"), "--prompts", str(file)]) == 2
    assert "is not UTF-8 text" in capsys.readouterr().err
    assert main(["distill", "--out", str(tmp_path / "o.jsonl"), "--prompts", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_corpus_is_asked_for_under_its_hints_and_gone_on_with_under_the_same(embedded, tmp_path, monkeypatch):
    asked, ids = [], distilling._ids
    monkeypatch.setattr(distilling, "_ids", lambda loaded, text: asked.append(text) or ids(loaded, text))
    out, given = tmp_path / "c.jsonl", [("t", f"What is {thing}? One sentence.") for thing in ("rain", "snow")]
    short = {"questions": 0, "prompts": given, "longest": 24, "turns": 2, "report": str}
    distill(embedded, out, **short)
    assert {f"{given[0][1]}\n\n{HINTS[1]}", given[0][1]} <= set(asked[2:])
    kept = out.read_text()
    assert distill(embedded, out, **short) == sum("done" not in row for row in jsonlines.read(out))
    assert out.read_text() == kept and json.loads(out.with_suffix(".manifest.json").read_text())["pairs"] >= 0
    with pytest.raises(ValueError, match=r"other settings \(hints\)"):
        distill(embedded, out, **short, hints=("",))
    assert all({"prompt", "response", "ended"} <= row.keys() for row in jsonlines.read(out) if "done" not in row)


def test_sampled_questions_go_on_from_how_they_begin(embedded, tmp_path, monkeypatch):
    monkeypatch.setattr(distilling, "SHARD", 4)
    out, begins = tmp_path / "c.jsonl", ("Write a story about", "Tell me of")
    short = {"longest": 8, "turns": 1, "report": str}
    distill(embedded, out, 4, **short, begins=begins)
    found = jsonlines.read(out.with_suffix(".questions.jsonl"))
    assert len(found) >= 4 and all(text.startswith(begins) and len(text) > 20 for text in found)
    with pytest.raises(ValueError, match=r"other settings \(begins\)"):
        distill(embedded, out, 4, **short)


def test_abstracts_are_asked_to_be_summarised_where_they_are_short_enough(embedded, tmp_path):
    about = [f"Rain of kind {i} falls {'on the plain ' * (1 if i % 2 else 60)}." for i in range(12)]
    file = tmp_path / "abstracts.jsonl"
    jsonlines.append(file, [{"abstract": text, "tldr": "It rains."} for text in about])
    asked = prompts_of(file)
    assert asked == [SUMMARISE + text for text in about if not held_out(SUMMARISE + text)] and len(asked) > 6
    jsonlines.append(file, [{"prompt": "Why?"}])
    with pytest.raises(ValueError, match=r"document 13 of .* lacks abstract"):
        prompts_of(file)
    distill(embedded, tmp_path / "c.jsonl", 0, [("a", text) for text in asked], 8, 1, report=str, longest_prompt=90)
    manifest = json.loads((tmp_path / "c.manifest.json").read_text())
    assert manifest["asked"] == sum(len(text) < 200 for text in asked)


def test_a_corpus_may_be_asked_for_by_words(embedded, tmp_path, monkeypatch, capsys):
    asked, ids = [], distilling._ids
    monkeypatch.setattr(distilling, "_ids", lambda loaded, text: asked.append(text) or ids(loaded, text))
    given = tmp_path / "given.jsonl"
    jsonlines.append(given, [{"prompt": "What is rain?"}])
    flags = ["--questions", "0", "--prompts", str(given), "--longest", "8", "--out", str(tmp_path / "c.jsonl")]
    assert main(["distill", *flags, "--turns", "3", "--words", "0", "1", "20"]) == 0
    hints = ["What is rain?", "What is rain?\n\nAnswer in about 1 word.", "What is rain?\n\nAnswer in about 20 words."]
    assert asked[-3:] == hints
    assert main(["distill", *flags, "--turns", "5", "--words", "0"]) == 2
    assert main(["distill", *flags, "--words", "-1"]) == 2
    assert "from 0" in capsys.readouterr().err
