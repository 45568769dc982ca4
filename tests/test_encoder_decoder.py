"""Encoder-decoders: a signal at the decoder's input, search as transformers does it, runs, training and measures."""

import itertools
import json
import shutil
import threading
from urllib.parse import urlencode

import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    MarianMTModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from app import __main__ as app
from app.controls import method_options
from backend.__main__ import main
from backend.encoder_decoder import many, pairs
from backend.encoder_decoder.beam_search import beam_search
from backend.encoder_decoder.model import SharedWriter, Writer, load
from backend.encoder_decoder.pairs import Pair, Tokenizers
from backend.encoder_decoder.run import BEAMS, written
from backend.encoder_decoder.signal import DecoderSignal
from backend.engine import Lab
from backend.evaluation import headlines as measure
from backend.evaluation import runner
from backend.evaluation.experiments import experiments
from backend.inference.control import Control
from backend.methods import methods
from backend.methods.laam import scaled
from backend.methods.signal import SignalSettings
from backend.models import headlines
from backend.models.adapters import Adapter, available
from backend.models.pool import Models
from backend.refused import Refused
from backend.settings import RunSettings
from backend.steps import Finish, Searching, Step
from backend.terminal import WRONG
from backend.training import encoder_decoder
from backend.training.encoder_decoder import train, train_base
from backend.training.settings import HeadlineSettings, TrainSettings

KINDS = ["ldpe", "orpe", "lrpe", "pre", "rpe", "len_init", "lc", "laam"]
WORDS = "a small tool for reading and writing files of many kinds with fast tests".split()
PAIRS = [Pair(" ".join(WORDS[i % 9 :]), " ".join(WORDS[i % 9 : i % 9 + 3])) for i in range(64)]


def marian():
    return MarianMTModel(headlines.config(40, 128, 2))


def bart():
    sizes = dict.fromkeys(("encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads"), 2)
    return BartForConditionalGeneration(
        BartConfig(
            vocab_size=40, d_model=64, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64,
            pad_token_id=0, eos_token_id=1, bos_token_id=0, decoder_start_token_id=1, forced_eos_token_id=None, **sizes,
        )
    )  # fmt: skip


def t5():
    shape = T5Config(vocab_size=40, d_model=64, d_kv=16, num_heads=4, d_ff=64, num_layers=2, decoder_start_token_id=0)
    return T5ForConditionalGeneration(shape)


FAMILIES = pytest.mark.parametrize("make", [marian, bart, t5], ids=["marian", "bart", "t5"])


def made(make, louder=3.0):
    torch.manual_seed(0)
    model = make().eval().requires_grad_(False)
    for weights in model.parameters():
        if weights.dim() > 1:
            weights.mul_(louder)
    return model


def sources(model):
    ids = torch.randint(3, 40, (3, 12), generator=torch.Generator().manual_seed(1))
    ids[1, 8:] = model.config.pad_token_id
    return ids


def settings(kind, **more):
    return SignalSettings(kind, 1.0, 1.0, (1, 50), **more)


def signal_of(model, kind, **more):
    return DecoderSignal(model, settings(kind, **more)).eval()


# Search


@FAMILIES
@pytest.mark.parametrize("beams", [1, 2, 5])
@pytest.mark.parametrize("eager", [0.0, 3.0], ids=["long", "with ends"])
def test_search_is_transformers_own(make, beams, eager):
    model = made(make)
    if eager and make is t5:
        # It has no bias: its end is made a token that it likes.
        model.config.eos_token_id = model.generation_config.eos_token_id = 1
    elif eager:
        model.final_logits_bias[0, model.config.eos_token_id] = eager
    ids = sources(model)
    mask = (ids != model.config.pad_token_id).long()
    theirs = model.generate(
        input_ids=ids, attention_mask=mask, num_beams=beams, max_new_tokens=20, num_return_sequences=beams,
        do_sample=False, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    *_, last = beam_search(model, ids, beams, 20)
    ours = [one for found in last.ended for one in found]
    end, pad = model.config.eos_token_id, model.config.pad_token_id
    for one, row in zip(ours, theirs.sequences[:, 1:].tolist(), strict=True):
        text = row[: row.index(end)] if end in row else row
        assert one.tokens == text[: len(one.tokens)] and all(token == pad for token in text[len(one.tokens) :])
        assert one.ended == (end in row)
    if beams > 1:
        assert torch.tensor([one.score for one in ours]).allclose(theirs.sequences_scores, atol=1e-4)
    if eager and make is not t5:
        assert any(one.ended for one in ours)


def test_many_sources_are_searched_as_each_alone():
    model = made(marian)
    writer = Writer(model, tokenizers(), signal_of(model, "ldpe", beside=True))
    texts = ["a tool", "fast tests of many files and kinds of writing", "reading", "small files with a tool"]
    together = many.search(writer, texts, [5, 9, 7, 6], 3, 12, 32)
    for text, target, found in zip(texts, [5, 9, 7, 6], together, strict=True):
        [alone] = many.search(writer, [text], [target], 3, 12, 32)
        assert [one.tokens for one in alone] == [one.tokens for one in found]


# Signals


@FAMILIES
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside"])
def test_step_by_step_equals_the_whole(make, kind, beside):
    model = made(make, 1.0)
    signal = signal_of(model, kind, beside=beside)
    signal.targets = torch.tensor([5, 6, 7])
    ids, texts = sources(model), torch.randint(3, 40, (3, 9), generator=torch.Generator().manual_seed(2))
    whole = model(input_ids=ids, decoder_input_ids=texts).logits
    past, steps = None, []
    for place in range(texts.shape[1]):
        out = model(input_ids=ids, decoder_input_ids=texts[:, place : place + 1], past_key_values=past, use_cache=True)
        past = out.past_key_values
        steps.append(out.logits)
    assert torch.cat(steps, 1).allclose(whole, atol=1e-5)
    signal.targets = torch.tensor([15, 16, 17])
    assert not model(input_ids=ids, decoder_input_ids=texts).logits.allclose(whole, atol=1e-4)


@FAMILIES
def test_without_targets_the_model_is_as_it_was(make):
    plain, model = made(make), made(make)
    signal_of(model, "ldpe", beside=False)
    ids, texts = sources(model), torch.randint(3, 40, (3, 9))
    assert torch.equal(
        plain(input_ids=ids, decoder_input_ids=texts).logits, model(input_ids=ids, decoder_input_ids=texts).logits
    )


def seen(model, texts):
    """What the decoder's first layer reads."""
    found = []
    first = model.get_decoder().layers[0] if hasattr(model.get_decoder(), "layers") else model.get_decoder().block[0]
    handle = first.register_forward_pre_hook(lambda _, args: found.append(args[0]))
    model(input_ids=sources(model), decoder_input_ids=texts)
    handle.remove()
    return found[0]


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside"])
def test_positions_are_added_once_or_not_at_all(beside):
    model, texts = made(bart, 1.0), torch.randint(3, 40, (3, 9))
    decoder = model.get_decoder()
    rows = methods["pre"].rows(torch.arange(9)[None], torch.tensor([[5], [6], [7]]), 64).float()
    positions = decoder.embed_positions.weight[2:11] if beside else 0
    wanted = decoder.layernorm_embedding(decoder.embed_tokens(texts) + rows + positions)
    signal_of(model, "pre", beside=beside).targets = None
    model_signal = signal_of(made(bart, 1.0), "pre", beside=beside)
    assert model_signal.targets is None
    again = made(bart, 1.0)
    shown = signal_of(again, "pre", beside=beside)
    shown.targets = torch.tensor([5, 6, 7])
    assert seen(again, texts).allclose(wanted, atol=1e-5)


def test_marians_scaled_embeddings_get_the_rows_as_they_are():
    model, texts = made(marian, 1.0), torch.randint(3, 40, (3, 9))
    signal_of(model, "ldpe", beside=False).targets = torch.tensor([5, 6, 7])
    rows = methods["ldpe"].rows(torch.arange(9)[None], torch.tensor([[5], [6], [7]]), 128).float()
    embeddings = model.get_decoder().embed_tokens(texts) * 128**0.5
    assert seen(model, texts).allclose(embeddings + rows, atol=1e-5)


def test_the_last_symbol_is_shown_the_count_one():
    rows = methods["rpe"].rows(torch.tensor([0, 1, 7, 8, 20]), 8, 16)
    counts = methods["orpe"].rows(torch.tensor([1, 1, 7, 8, 8]), 8, 16)
    assert torch.equal(rows[1:], counts[1:])
    torch.manual_seed(0)
    noisy = methods["rpe"].training_rows(torch.arange(1, 500), 600, 16)
    assert 0.3 < float((noisy != methods["rpe"].rows(torch.arange(1, 500), 600, 16)).any(-1).double().mean()) < 0.9


def test_lengths_of_learned_vectors_stand_where_the_papers_have_them():
    at = torch.arange(4)
    assert methods["len_init"].rows(at, 30, 8).flatten().tolist() == [30, 0, 0, 0]
    assert methods["lc"].rows(at, 30, 8).flatten().tolist() == [30, 30, 30, 30]


def test_attention_is_raised_by_what_is_still_to_come_but_for_the_end():
    weights = torch.rand(2, 3, 4, 6, generator=torch.Generator().manual_seed(3)).softmax(-1)
    remaining, ends = torch.tensor([[4, 3, 2, 1], [9, 2, 1, 1]]), torch.zeros(2, 6, dtype=torch.bool)
    ends[0, 5] = ends[1, 3] = True
    found = scaled(weights, remaining, ends)
    for row, head, place in itertools.product(range(2), range(3), range(4)):
        one, left = weights[row, head, place].tolist(), int(remaining[row, place])
        strongest = sorted(range(6), key=lambda key: -one[key])[:left]
        raised = [value * (left if key in strongest and not ends[row, key] else 1) for key, value in enumerate(one)]
        assert found[row, head, place].allclose(torch.tensor(raised) / sum(raised), atol=1e-6)
    assert found[0, :, 3].allclose(weights[0, :, 3], atol=1e-6)


def test_left_out_lengths_are_not_trained_on(folder, tmp_path):
    said = []
    lengths = {len(pair.text) for pair in PAIRS}
    asked = TrainSettings(
        method="ldpe", model=str(folder / "base"), samples=8, budget=100, rank=2, left_out=tuple(sorted(lengths)[1:])
    )
    writer = load(str(folder / "base"))
    adapter = train(writer.model, writer.tokenizers, PAIRS, asked, tmp_path / "left", said.append)
    assert adapter.settings.lengths == (min(lengths), min(lengths))


def test_a_causal_models_method_is_refused():
    with pytest.raises(Refused, match="unknown kind"):
        settings("mnt_ldpe")


# Runs


def tokenizers():
    source = headlines.subwords([" ".join(WORDS)] * 3, 300)
    return Tokenizers(source, headlines.characters([" ".join(WORDS)] * 30))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A headline model of a few steps, and an LDPE adapter on it."""
    top = tmp_path_factory.mktemp("model")
    small = HeadlineSettings(steps=4, batch=8, width=64, layers=1, warmup=2)
    train_base(PAIRS, PAIRS[:8], small, top / "base", lambda _: None)
    writer = load(str(top / "base"))
    asked = TrainSettings(method="ldpe", model=str(top / "base"), samples=32, budget=200, rank=2, gain=1.0)
    train(writer.model, writer.tokenizers, PAIRS, asked, top / "ldpe", lambda _: None)
    return top


@pytest.fixture
def shared(folder):
    return SharedWriter(load(str(folder / "base"), Adapter.load(folder / "ldpe")), threading.Lock())


def ask(**more):
    return RunSettings(**{"prompt": "a small tool", "method": "ldpe", "target": 12, "max_new_tokens": 20} | more)


def test_a_run_searches_then_tells_each_symbol(shared):
    events = list(written(shared, ask(), Control(), True))
    searching = [event for event in events if isinstance(event, Searching)]
    steps, finish = [event for event in events if isinstance(event, Step)], events[-1]
    assert isinstance(finish, Finish) and len(searching[0].texts) == BEAMS
    assert "".join(step.text for step in steps) == finish.text and len(steps) == finish.tokens
    assert finish.error == finish.tokens - 12 and len(finish.notes) == BEAMS - 1
    assert [step.remaining for step in steps] == [12 - step.index for step in steps]
    assert steps[0].entropy.shape == (1, 1) and steps[0].state.shape == (64,)
    # The start and the first three symbols are all that these see.
    assert all(step.sink_share == pytest.approx(1, abs=1e-5) for step in steps[:3]) and steps[-1].sink_share < 1
    assert "".join(steps[0].source).strip() == "a small tool </s>" and not any(step.source for step in steps[1:])
    assert all(step.looked.sum() == pytest.approx(1) and len(step.looked) == len(steps[0].source) for step in steps)
    assert [event for event in written(shared, ask(), Control(), False) if isinstance(event, Searching)] == []
    # Its best text is search's own, and its chances those of one reading of the whole.
    [found] = many.search(shared.writer, ["a small tool"], [12], BEAMS, 21, 512)
    assert [step.token for step in steps] == found[0].tokens


def test_a_run_is_stopped_and_retargeted_as_it_searches(shared):
    control = Control()
    run = written(shared, ask(), control, True)
    next(run), next(run)
    control.stop()
    *_, finish = run
    assert finish.reason == "stopped" and finish.tokens == 2
    control = Control()
    run = written(shared, ask(), control, True)
    next(run)
    control.retarget(7)
    *_, finish = run
    assert finish.error == finish.tokens - 7 and int(shared.writer.signal.targets[0]) == 7


def test_runs_take_turns_and_none_waits_for_anothers_reader(shared):
    alone = {target: list(written(shared, ask(target=target), Control(), False))[-1] for target in (5, 15)}
    one, two = (written(shared, ask(target=target), Control(), True) for target in (5, 15))
    # Both are amid their search, and one of them is not read any more for now.
    next(one), next(two), next(one)
    assert list(two)[-1].text == alone[15].text
    assert list(one)[-1].text == alone[5].text


def test_a_run_that_fails_says_what_to_do(shared, monkeypatch):
    monkeypatch.setattr(shared.writer.model, "get_encoder", lambda: 1 / 0)
    [finish] = written(shared, ask(), Control(), True)
    assert finish.reason == "error" and finish.message.endswith(".") and "ZeroDivisionError" in finish.message


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"unit": "words"}, "tokens or characters"),
        ({"temperature": 0.7}, "temperature to 0"),
    ],
)
def test_what_it_cannot_do_is_refused_with_what_to_do(shared, more, says):
    with pytest.raises(Refused, match=says):
        list(written(shared, ask(**more), Control(), False))


def test_what_does_nothing_there_is_said(shared):
    *_, finish = written(shared, ask(landing=4, in_prompt=True), Control(), False)
    assert ["landing" in finish.notes[0], "source" in finish.notes[1]] == [True, True]
    assert finish.notes[2].startswith("hypothesis 2 of ")


def test_the_lab_runs_a_folder_and_says_which_methods_it_takes(folder):
    lab = Lab(Models([str(folder / "base")]), Adapter.load(folder / "ldpe"))
    can = lab.capabilities(str(folder / "base"))
    offered = {option["id"] for option in method_options(available(str(folder / "base")), can)}
    assert {"none", *KINDS} == offered
    assert can.encoder_decoder and {"pic", "window", "int4"} <= can.unsupported.keys()
    *_, finish = lab.stream(ask(model=str(folder / "base")))
    assert finish.tokens == finish.error + 12
    for more in ({"method": "prompted"}, {"pic": "naive", "ratio": 2.0}, {"window": 64}):
        with pytest.raises(Refused):
            next(iter(lab.stream(ask(model=str(folder / "base"), **more))))
    with pytest.raises(Refused, match="that have an encoder"):
        next(iter(Lab().stream(ask(method="lc"))))


# Training


@pytest.mark.parametrize("kind", ["len_init", "pre"])
def test_training_goes_on_as_if_it_had_not_stopped(folder, tmp_path, monkeypatch, kind):
    asked = TrainSettings(
        method=kind, model=str(folder / "base"), samples=60, budget=100, rank=2, gain=1.0, beside=True
    )

    def trained(name):
        writer = load(str(folder / "base"))
        return train(writer.model, writer.tokenizers, PAIRS, asked, tmp_path / name, lambda _: None)

    whole = trained("whole")
    step, taken = encoder_decoder._Trainer.training_step, []

    def stops(self, *args, **options):
        taken.append(1)
        if len(taken) == 4:
            raise KeyboardInterrupt
        return step(self, *args, **options)

    monkeypatch.setattr(encoder_decoder._Trainer, "training_step", stops)
    with pytest.raises(KeyboardInterrupt):
        trained("parts")
    done = len(taken)
    parts = trained("parts")
    assert done < len(taken) < 2 * done + 10
    assert parts.sha256 == whole.sha256 and parts.settings == whole.settings
    assert bool(parts.settings.learned) == (kind == "len_init")


def test_model_and_adapter_have_cards(folder):
    model, adapter = ((folder / name / "README.md").read_text() for name in ("base", "ldpe"))
    assert "| Pairs | 64 |" in model and "| Trained | 4 steps of 8, 0.5 times all, rate 0.001, inverse_sqrt |" in model
    assert "A LoRA (rank 2, alpha 12) on the decoder, that reads the signal." in adapter
    assert "| Distinct texts | 64 |" in adapter and "Their licences were not stated." in adapter
    assert json.loads((folder / "ldpe" / "training.json").read_text())["settings"]["method"] == "ldpe"


def test_a_headline_model_is_gone_on_with(folder, tmp_path):
    more = HeadlineSettings(steps=1, batch=8, rate=0.0, schedule="linear", warmup=0, start=str(folder / "base"))
    train_base(PAIRS, PAIRS[:8], more, tmp_path / "more", lambda _: None)
    before, after = (load(str(each)).model.state_dict() for each in (folder / "base", tmp_path / "more"))
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert "| Before that | 4 steps of 8, 0.5 times all" in (tmp_path / "more" / "README.md").read_text()


def test_pairs_with_long_texts_are_left_out_and_long_sources_cut():
    both, config = tokenizers(), headlines.config(40, 64, 1)
    found = pairs.Examples.of([Pair("a tool " * 50, "abc"), Pair("a", "x" * 30)], both, config, 8, 10)
    [row] = found.rows
    assert len(row["input_ids"]) == 8 and row["labels"][-1] == config.eos_token_id
    batch = found.batch([row])
    assert batch["targets"].tolist() == [3] and batch["decoder_input_ids"][0, 0] == config.decoder_start_token_id


def test_sources_and_targets_come_back_as_they_were():
    both = tokenizers()
    assert isinstance(both.source, PreTrainedTokenizerFast) and both.by_character
    assert both.target.decode(both.written("a small  tool")) == "a small  tool"
    assert len(both.written("fast tests")) == 10


@pytest.mark.parametrize("make", [bart, t5], ids=["bart", "t5"])
@pytest.mark.parametrize("kind", ["pre", "rpe"])
def test_bart_and_t5_are_trained_and_run_by_the_same_commands(make, kind, tmp_path, capsys):
    model = make()
    model.resize_token_embeddings(300)
    model.save_pretrained(tmp_path / "model")
    # Ends and paddings are where these families' configs have them.
    special = ["<pad>", "</s>", "<unk>"]
    tokenizer = headlines.subwords([" ".join(WORDS)] * 3, 290)
    assert [tokenizer.convert_tokens_to_ids(token) for token in special] == [0, 1, 2]
    tokenizer.save_pretrained(tmp_path / "model")
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps({"source": pair.source, "headline": pair.text}) + "\n" for pair in PAIRS))
    name, out = str(tmp_path / "model"), tmp_path / kind
    command = ["train", "--model", name, "--method", kind, "--beside", "--data", str(file), "--out", str(out)]
    assert main([*command, "--samples", "32", "--budget", "100", "--rank", "2", "--gain", "1"]) == 0
    assert f"adapter in {out}" in capsys.readouterr().out
    lab = Lab(Models([name]), Adapter.load(out))
    *_, finish = lab.stream(ask(model=name, method=kind))
    assert finish.reason in ("eos", "cap") and finish.error == finish.tokens - 12
    with pytest.raises(Refused, match="choose tokens as the unit"):
        list(lab.stream(ask(model=name, method=kind, unit="characters")))


def test_training_says_what_it_lacks_and_which_models_a_method_is_for(folder, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out")]
    assert main(["train", "--model", str(folder / "base"), "--method", "ldpe", *out]) == WRONG
    assert "JSON lines with a source and a headline" in capsys.readouterr().err
    assert main(["train", "--method", "lc", "--data", "x.jsonl", *out]) == WRONG
    assert "that have an encoder" in capsys.readouterr().err
    assert main(["train", "--model", str(folder / "base"), "--method", "mnt_ldpe", *out]) == WRONG
    assert "without an encoder" in capsys.readouterr().err
    file = tmp_path / "pairs.jsonl"
    file.write_text(json.dumps({"source": "a tool", "headline": "a tool"}))
    assert main(["train", "--method", "ldpe", "--beside", "--data", str(file), *out]) == WRONG
    assert "for models that have an encoder" in capsys.readouterr().err
    assert main(["train", "--model", str(folder / "base"), "--method", "ldpe", "--hub", "some/set", *out]) == WRONG
    assert "give --data FILE alone" in capsys.readouterr().err
    short = ["train", "--model", str(folder / "base"), "--method", "ldpe", "--longest", "1", "--data", str(file)]
    assert main([*short, *out]) == WRONG
    assert "no pair fits" in capsys.readouterr().err
    with pytest.raises(Refused, match="there is no folder"):
        load(str(tmp_path / "none"))
    with pytest.raises(Refused, match="no encoder that the lab knows"):
        load("embedded")


def test_the_headline_model_is_asked_for_before_it_is_trained(monkeypatch, tmp_path):
    monkeypatch.setattr(headlines, "FOLDER", tmp_path / "none")
    with pytest.raises(Refused, match="make headlines"):
        load(headlines.NAME)


# Measures


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("fast tool for reading files", True),
        ("fast tool for", False),
        ("fast tool for reading fil", False),
        ("tool for files (fast", False),
        ("tool for files (fast)", True),
        ('"fast tool for files', False),
        ("tool -", False),
        ("", False),
        ("the", False),
    ],
)
def test_a_headline_ends_with_a_whole_word_that_lets_it_end(text, ends):
    assert measure.complete(text, {"fast", "tool", "for", "reading", "files", "the"}) == ends


def test_the_joint_rate_asks_for_all_of_it():
    known, text, source = {"fast", "tool"}, "fast tool", "Tools that are faster"
    assert measure.joint(text, True, 9, 0.05, known, source) and measure.joint(text, True, 10, 0.9, known, source)
    assert not measure.joint(text, False, 9, 0.9, known, source)
    assert not measure.joint(text, True, 11, 0.9, known, source)
    assert not measure.joint(text, True, 9, 0.04, known, source)
    assert not measure.joint("fast xyzzy", True, 10, 0.9, known, source)
    assert not measure.joint(text, True, 9, 0.9, known, "Something else")


@pytest.mark.parametrize(
    ("text", "makes_sense"),
    [
        ("tool for reading files", True),
        ("tool for reading a file (the tool)", True),
        ("file tool for files, a tool", False),
        ("plugin plugin to plugin for plugin files", False),
        ("the of and", False),
        ("library of colours and shapes", False),
    ],
)
def test_a_sensible_headline_is_of_its_source_and_does_not_go_round(text, makes_sense):
    assert measure.sensible(text, "A plugin tool that reads one file after another") == makes_sense


def test_reranking_takes_the_text_with_most_of_the_sources_words():
    assert measure.reranked(["a dull line", "tests read files", "tested files"], "It reads a file and tests it") == 1


def test_the_experiment_measures_every_row_beside_the_free_one(folder, tmp_path):
    data, parts = tmp_path / "data", tmp_path / "parts"
    data.mkdir()
    for split in ("train", "valid"):
        lines = [json.dumps({"source": pair.source, "headline": pair.text}) for pair in PAIRS[:12]]
        (data / f"{split}.jsonl").write_text("\n".join(lines))
    parts.mkdir()
    shutil.copytree(folder / "ldpe", parts / "ldpe")
    writer = load(str(folder / "base"))
    free = TrainSettings(method="none", model=str(folder / "base"), samples=8, budget=100, rank=2)
    train(writer.model, writer.tokenizers, PAIRS, free, parts / "none", lambda _: None)
    experiment = experiments["headline_lengths"]
    options = experiment.Options(
        data=data, parts=parts, model=folder / "base", split="valid", sources=7, beams=2, out=tmp_path / "out.json"
    )
    runner.measure(experiment, options)
    result = json.loads((tmp_path / "out.json").read_text())
    assert [row["row"] for row in result["rows"]] == ["none", "ldpe"] and result["sources"] == 7
    for row in result["rows"]:
        for target, found in row["at"].items():
            lengths = [len(one["text"]) for one in found["written"]]
            wanted = sum((length - int(target)) ** 2 for length in lengths) / 7
            assert found["variance"]["mean"] == pytest.approx(wanted)
        references = [pair.text for pair in pairs.read(data / "valid.jsonl", 7, 0)]
        assert len(row["reference_length"]["errors"]) == len(references)
    assert result["rows"][0]["own_length"]["difference"] == 0 and 0 <= result["references"]["kept"] <= 1
    text = experiment.card({"headline_lengths.json": result}).text
    assert "0.015 / 0.012 / 0.013" in text and "`none`" in text and "| `ldpe` | 30 |" in text
    assert "width 64" in text and "`ldpe` less `none`" in text and "| 1 to 30 (" in text
    with pytest.raises(Refused, match="no row 'none'"):
        shutil.rmtree(parts / "none")
        runner.measure(experiment, options.model_copy(update={"out": tmp_path / "other.json"}))


def test_the_page_shows_where_a_model_looks_in_its_source(folder, browser):
    name, chart = str(folder / "base"), "#chart-cross_attention .ll-chart"
    demo, wrongs = app.make(["embedded", name]), []
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(300_000)
    page.on("console", lambda message: message.type == "error" and wrongs.append(message.text))
    page.on("pageerror", lambda error: wrongs.append(str(error)))
    try:
        asked = urlencode({"prompt": "a small tool", "model": name, "method": "none", "max_new_tokens": 20})
        page.goto(f"{app.serve(demo)}?tab=lab&{asked}")
        page.wait_for_selector("#chart-length .ll-plot .xtick")
        # A model without an encoder has no source to look at.
        assert page.locator(chart).count() == 1 and not page.locator(chart).is_visible()
        page.wait_for_selector("#go:not([disabled])")
        page.click("#go")
        page.wait_for_selector(f"{chart} .hm")
        words = page.locator(f"{chart} .ytick").all_text_contents()
        assert page.locator(f"{chart} .ll-words").inner_text().startswith("It looks most at “")
        assert set(words) <= {"a", "small", "tool", "</s>"} and words
        assert wrongs == []
    finally:
        page.close()
        demo.close()
