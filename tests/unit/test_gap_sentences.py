"""The first lesson of the headline model: sentences of texts that may be trained on."""

import json
import random

import pytest

from backend.__main__ import main
from backend.encoder_decoder import pairs
from backend.refused import Refused
from backend.terminal import WRONG
from backend.training.data import held_out
from backend.training.gap_sentences import TESTS, gaps, headline, refuse_tests, write

DOCUMENT = (
    "The small editor opens text files of many kinds. Birds sing in the morning. "
    "It was written so that large text files open in the editor without a wait."
)
WORDS = "red green blue black white grey brown pink".split()
QUESTIONS = [f"What is so special about {one} {other} birds?" for one in WORDS for other in WORDS]


def lines(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "headlines"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        rows = [{"source": f"{DOCUMENT} Of the {split} set.", "headline": f"Editor of the {split} set"}]
        lines(folder / f"{split}.jsonl", rows)
    return folder


def test_the_sentence_with_most_words_of_the_others_is_to_be_written():
    found = list(gaps(DOCUMENT, random.Random(0)))
    assert found[0].text == "The small editor opens text files of many kinds"
    assert all("Birds" not in pair.text for pair in found)


def test_a_sentence_is_taken_out_of_its_source_but_for_one_in_three():
    drawn = random.Random(0)
    found = [pair for _ in range(200) for pair in gaps(DOCUMENT, drawn)]
    assert 1 / 4 < sum(pair.text in pair.source for pair in found) / len(found) < 2 / 5


@pytest.mark.parametrize(
    ("sentence", "written"),
    [
        ("It reads files and writes them.", "It reads files and writes them"),
        ("It’s a “fast” way of reading files.", "It's a \"fast\" way of reading files"),
        (f"It reads all of your files, {'and more ' * 12}of them.", "It reads all of your files"),
        ("Reads files.", ""),
        ("word " * 40, ""),
        ("Ein Werkzeug für große Dateien aller Art.", ""),
    ],
)
def test_a_sentence_becomes_a_headline(sentence, written):
    assert headline(sentence) == written


@pytest.mark.parametrize("name", sorted(TESTS))
def test_what_is_measured_on_is_refused(name, data, tmp_path, capsys):
    file = lines(tmp_path / f"{name}.jsonl", [{"prompt": "Why?", "response": DOCUMENT}])
    command = ["gaps", "--data", str(data), "--texts", str(file), "--out", str(tmp_path / "out")]
    assert main(command) == WRONG and "train on others" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_of_novels_is_refused(tmp_path):
    with pytest.raises(Refused):
        refuse_tests([tmp_path / "novels" / "one.jsonl"])


def test_headlines_and_texts_are_trained_on_and_the_validation_pairs_validated_on(data, tmp_path, capsys):
    kept, left = ([q for q in QUESTIONS if held_out(q) == out] for out in (False, True))
    assert kept and left
    response = "The {0} was seen by many people of the town. The {0} was seen in the town by the people."
    rows = [{"prompt": question, "response": response.format(question[11:-1])} for question in (*kept, *left)]
    file, out = lines(tmp_path / "responses.jsonl", rows), tmp_path / "out"
    assert main(["gaps", "--data", str(data), "--texts", str(file), "--out", str(out)]) == 0
    train, valid = (pairs.read(out / f"{split}.jsonl") for split in ("train", "valid"))
    assert f"{len(train):,} pairs" in capsys.readouterr().out
    assert valid == pairs.read(data / "valid.jsonl") and pairs.read(data / "train.jsonl")[0] in train
    said = " ".join(pair.source + pair.text for pair in train)
    assert all(question[11:-1] in said for question in kept)
    assert not any(question[11:-1] in said for question in left)
    assert "valid set" not in said and "test set" not in said


def test_what_many_texts_say_is_written_once(data, tmp_path):
    rows = [{"source": f"{DOCUMENT} Of part {number}.", "headline": "Editor"} for number in range(9)]
    lines(data / "train.jsonl", rows)
    write(data, [], tmp_path / "out")
    texts = [pair.text for pair in pairs.read(tmp_path / "out" / "train.jsonl") if pair.text != "Editor"]
    assert texts and len(texts) == len(set(texts))
