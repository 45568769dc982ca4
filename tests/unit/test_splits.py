"""Sets of prompts that share nothing, and hold nothing that was trained on or chosen by."""

import hashlib
from pathlib import Path

import pytest

from backend import splits
from backend.splits import fingerprint, prompts, split_of
from backend.training.data import QUESTIONS

DATA = Path(__file__).parents[3] / "shared" / "data"
data = pytest.mark.skipif(not DATA.is_dir(), reason="needs the data sets beside the checkout, in ../shared/data")


def test_no_prompt_is_in_two_sets():
    validation, test = (set().union(*splits._file()[name].values()) for name in ("validation", "test"))
    assert validation and test and not validation & test


def test_what_is_in_no_set_may_be_trained_on():
    assert split_of("a prompt that nobody wrote down") == "train"
    for name in ("validation", "test"):
        assert {split_of(f"  {prompt.text}\n") for prompt in prompts(name)} == {name}


def test_the_questions_by_which_adapters_were_chosen_are_in_no_set():
    assert {split_of(line) for line in QUESTIONS.read_text("utf-8").splitlines()} == {"train"}


def test_a_prompt_is_known_by_sha256_of_its_text():
    assert fingerprint(" Why?\n") == hashlib.sha256(b"Why?").hexdigest()[:16]


def test_without_the_data_sets_there_are_the_labs_own_prompts():
    assert {prompt.kind for prompt in prompts("validation")} == {"questions", "stories"}
    with pytest.raises(ValueError, match="folder of the data sets"):
        prompts("validation", kinds=["abstracts"])


@data
def test_the_file_is_what_its_command_makes_of_the_data():
    made = splits.made(DATA)
    assert {name: {kind: set(texts) for kind, texts in kinds.items()} for name, kinds in made.items()} == splits._file()


@data
def test_each_set_has_over_a_hundred_prompts_of_four_kinds():
    for name in ("validation", "test"):
        found = prompts(name, DATA)
        assert len(found) == len(set(found)) >= 100
        assert {prompt.kind for prompt in found} == {"instructions", "questions", "stories", "abstracts"}
