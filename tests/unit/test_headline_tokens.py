"""A headline model that writes subwords: they come back as they were, and lengths are counted in their characters."""

import json
import threading

import pytest
import torch

from backend.__main__ import main
from backend.encoder_decoder import many, pairs
from backend.encoder_decoder.beam_search import beam_search
from backend.encoder_decoder.model import SharedWriter, load
from backend.encoder_decoder.pairs import Pair
from backend.encoder_decoder.run import BEAMS, written
from backend.encoder_decoder.signal import DecoderSignal
from backend.evaluation import runner
from backend.evaluation.experiments import experiments
from backend.inference.control import Control
from backend.methods import methods
from backend.methods.signal import SignalSettings
from backend.models import headlines
from backend.models.adapters import Adapter
from backend.refused import Refused
from backend.settings import RunSettings
from backend.steps import Finish, Step
from backend.training.encoder_decoder import train, train_base
from backend.training.settings import HeadlineSettings, TrainSettings

WORDS = "a small tool for reading and writing files of many kinds with fast tests".split()
PAIRS = [Pair(" ".join(WORDS[i % 9 :]), " ".join(WORDS[i % 9 : i % 9 + 3])) for i in range(64)]
TEXTS = [
    "a small  tool", " for files ", "", " ", "\n\ttests", "don't (read) it's", "naïve 漢字と한글", "👩‍🔬🤷🏽 é",
    "</s> and <pad>", "�", "x" * 200,
]  # fmt: skip
OTHER = "files of tests"
KINDS = ["ldpe", "lrpe", "pre", "rpe", "len_init", "lc", "laam"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of subwords of a few steps, and an LDPE adapter on it, both by their commands."""
    top = tmp_path_factory.mktemp("subwords")
    lines = "".join(json.dumps({"source": pair.source, "headline": pair.text}) + "\n" for pair in PAIRS)
    for split in ("train", "valid"):
        (top / f"{split}.jsonl").write_text(lines)
    small = ["--steps", "2", "--batch", "8", "--width", "64", "--layers", "1", "--warmup", "1"]
    base, data = ["headlines", "--target-tokens", "bpe", "--data", str(top)], str(top / "train.jsonl")
    assert main([*base, *small, "--out", str(top / "base")]) == 0
    row = ["train", "--model", str(top / "base"), "--method", "ldpe", "--data", data, "--samples", "16"]
    small = ["--budget", "50", "--rank", "2", "--gain", "1", "--longest", "96"]
    assert main([*row, *small, "--out", str(top / "ldpe")]) == 0
    return top


@pytest.fixture
def writer(folder):
    return load(str(folder / "base"), Adapter.load(folder / "ldpe"))


def characters_before(both, tokens):
    """How many characters stand before each token and before the end, by decoding what was written."""
    return [len(both.target.decode(tokens[:place])) for place in range(len(tokens) + 1)]


def seen(writer):
    """The positions and targets that a signal shows from now on."""
    found, show = [], writer.signal.show

    def kept(embeddings, response):
        found.append((response.clone(), writer.signal.targets.clone()))
        return show(embeddings, response)

    writer.signal.show = kept
    return found


def test_every_text_comes_back_and_its_characters_are_counted(writer):
    both = writer.tokenizers
    for text in TEXTS:
        tokens = both.written(text)
        assert writer.text(tokens) == text and both.length(tokens) == len(text)
        assert not set(tokens) & set(both.target.all_special_ids)
    assert both.written("tool")[0] in both.source("a tool")["input_ids"]


def test_both_sides_have_one_table_and_the_same_tokens(writer):
    model, both = writer.model, writer.tokenizers
    tables = {each.weight.data_ptr() for each in (model.model.shared, model.lm_head)}
    tables |= {side.embed_tokens.weight.data_ptr() for side in (model.get_encoder(), model.get_decoder())}
    assert len(tables) == 1 and both.source.get_vocab() == both.target.get_vocab()
    assert both.in_characters and both.characters is not None and not both.by_character


@pytest.mark.parametrize("text", ["a small tool", "naïve 漢字", "x", " ", "don't  👩‍🔬 it"])
def test_training_counts_down_the_characters_to_come(writer, text):
    both = writer.tokenizers
    shown = seen(writer)
    examples = pairs.Examples.of([Pair("a tool", text), Pair("a", OTHER)], both, writer.model.config, 32, 96)
    batch = examples.batch(examples.rows)
    writer.signal.targets = batch.pop("targets")
    writer.model(**batch)
    [(response, targets)] = shown
    assert targets.tolist() == [len(text), len(OTHER)]
    for row, pair in enumerate((text, OTHER)):
        tokens = both.written(pair)
        before = response[row, : len(tokens) + 1].tolist()
        assert before[0] == 0 and before[-1] == len(pair)
        if "�" not in "".join(both.target.decode(tokens[:place]) for place in range(len(tokens))):
            assert before == characters_before(both, tokens)


@pytest.mark.parametrize("beams", [1, 4])
def test_search_counts_as_training_does(writer, beams):
    shown, both = seen(writer), writer.tokenizers
    sources = pairs.padded([both.read(text, 32) for text in ("a small tool", "fast tests of files")], 0)
    steps = list(beam_search(writer.model, sources, beams, 12, writer.signal, torch.tensor([9, 14])))
    assert len(shown) == len(steps)
    inputs = torch.zeros(2 * beams, 1, dtype=torch.long)
    for (response, targets), step in zip(shown, steps, strict=True):
        assert targets.tolist() == [9] * beams + [14] * beams and response.shape == (2 * beams, 1)
        before = [characters_before(both, row)[-1] for row in inputs[:, 1:].tolist()]
        assert response[:, 0].tolist() == [both.length(row) for row in inputs[:, 1:].tolist()]
        if not any("�" in both.target.decode(row) for row in inputs[:, 1:].tolist()):
            assert response[:, 0].tolist() == before
        rows = step.tokens.flatten(0, 1)
        inputs = torch.cat((torch.zeros(len(rows), 1, dtype=torch.long), rows), 1)


@pytest.mark.parametrize("kind", KINDS)
def test_step_by_step_equals_the_whole(folder, kind):
    torch.manual_seed(0)
    writer = load(str(folder / "base"))
    signal = DecoderSignal(writer.model, SignalSettings(kind, 1.0, 1.0, (1, 50)), writer.tokenizers.characters).eval()
    signal.targets = torch.tensor([9, 14, 20])
    ids, texts = torch.randint(3, 200, (3, 12)), torch.randint(3, 200, (3, 9))
    texts[:, 0] = 0
    whole, past, steps = writer.model(input_ids=ids, decoder_input_ids=texts).logits, None, []
    for place in range(texts.shape[1]):
        signal.follow(texts[:, : place + 1])
        last = texts[:, place : place + 1]
        out = writer.model(input_ids=ids, decoder_input_ids=last, past_key_values=past, use_cache=True)
        past = out.past_key_values
        steps.append(out.logits)
    assert torch.cat(steps, 1).allclose(whole, atol=1e-5)


def test_the_last_character_is_shown_the_count_one(writer):
    both = writer.tokenizers
    tokens = torch.tensor([both.written("a small tool")])
    response = both.characters.written(tokens)
    counts = methods["ldpe"].rows(response[0, -1:], 12, 16)
    assert torch.equal(counts, methods["orpe"].rows(torch.tensor([12]), 12, 16))


def ask(**more):
    asked = {"prompt": "a small tool", "method": "ldpe", "target": 12, "unit": "characters", "max_new_tokens": 8}
    return RunSettings(**asked | more)


def test_a_run_tells_characters_to_come_with_each_subword(writer):
    shared = SharedWriter(writer, threading.Lock())
    events = list(written(shared, ask(), Control(), False))
    steps, finish = [event for event in events if isinstance(event, Step)], events[-1]
    assert isinstance(finish, Finish) and "".join(step.text for step in steps) == finish.text
    tokens = [step.token for step in steps]
    assert [step.remaining for step in steps] == [
        12 - writer.tokenizers.length(tokens[:place]) for place in range(1, len(tokens) + 1)
    ]
    assert finish.error == writer.tokenizers.length(tokens) - 12 and finish.tokens == len(tokens)
    assert all(step.wanted == 12 and step.goal >= 1 for step in steps)
    assert finish.notes[0].startswith("hypothesis 2 of ") and "characters" in finish.notes[0]
    [found] = many.search(writer, ["a small tool"], [12], BEAMS, 9, 512)
    assert tokens == found[0].tokens
    with pytest.raises(Refused, match="choose characters as the unit"):
        list(written(shared, ask(unit="tokens"), Control(), False))


def test_the_way_on_keeps_the_target_tokens_and_cards_tell_them(folder, tmp_path):
    more = HeadlineSettings(steps=1, batch=8, rate=0.0, schedule="linear", warmup=0, start=str(folder / "base"))
    train_base(PAIRS, PAIRS[:8], more, tmp_path / "more", lambda _: None)
    before, after = (load(str(each)).model.state_dict() for each in (folder / "base", tmp_path / "more"))
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert headlines.target_tokens(tmp_path / "more") == "bpe"
    assert "and writes subwords" in (tmp_path / "more" / "README.md").read_text()
    assert "| Longest text | 96 characters |" in (folder / "ldpe" / "README.md").read_text()


def test_a_first_lesson_copies_stretches_of_sources(tmp_path):
    found = pairs.copies(PAIRS)
    assert all(copy.source == pair.source and copy.text in pair.source for copy, pair in zip(found, PAIRS, strict=True))
    assert all(1 <= len(copy.text.split()) <= 12 for copy in found) and pairs.copies(PAIRS) == found
    assert pairs.copies([Pair("", "a tool")]) == [Pair("", "")]
    first = HeadlineSettings(
        steps=1, batch=8, width=64, layers=1, warmup=1, target_tokens="bpe", copies=True, averaged=1, longest=200
    )
    train_base(PAIRS, PAIRS[:8], first, tmp_path / "first", lambda _: None)
    train_base(PAIRS, PAIRS[:8], HeadlineSettings(steps=1, start=str(tmp_path / "first")), tmp_path / "next", str)
    [before] = [line for line in (tmp_path / "next" / "README.md").read_text().split("\n") if "Before that" in line]
    assert before.endswith("1 steps of 8, 0.1 times all, rate 0.001, inverse_sqrt, copying stretches of sources |")


def test_lengths_left_out_and_longest_texts_are_of_characters(writer):
    config, both = writer.model.config, writer.tokenizers
    texts = [Pair("a", "a tool"), Pair("a", "files"), Pair("a", "x" * 30)]
    found = pairs.Examples.of(texts, both, config, 8, 10, left_out=[5])
    assert [row["target"] for row in found.rows] == [6]


def test_the_experiment_measures_characters(folder, tmp_path):
    parts, data = tmp_path / "parts", folder
    parts.mkdir()
    for method in ("none", "pre"):
        asked = TrainSettings(method=method, model=str(folder / "base"), samples=8, budget=50, rank=2)
        base = load(str(folder / "base"))
        train(base.model, base.tokenizers, PAIRS, asked, parts / method, lambda _: None)
    experiment = experiments["headline_lengths"]
    options = experiment.Options(
        data=data, parts=parts, model=folder / "base", split="valid", sources=5, beams=2, out=tmp_path / "out.json"
    )
    runner.measure(experiment, options)
    result = json.loads((tmp_path / "out.json").read_text())
    for row in result["rows"]:
        for target, found in row["at"].items():
            lengths = [len(one["text"]) for one in found["written"]]
            wanted = sum((length - int(target)) ** 2 for length in lengths) / 5
            # Bytes that are no whole character are counted otherwise than they are shown.
            if not any("�" in one["text"] for one in found["written"]):
                assert found["variance"]["mean"] == pytest.approx(wanted)
