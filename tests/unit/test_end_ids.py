"""What ends a response: the ids of the generation config as transformers' generate takes them, and the tokenizer's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import VOCAB, tiny_model, tiny_tokenizer

from backend import Lab, RunSettings
from backend.models.pool import Models
from backend.steps import Finish, Step

MOST = 16
# What stands in files: `end` is an id that the model comes to write.
STORED: dict[str, Callable[[int], object]] = {
    "one": lambda end: end,
    "as a float": float,
    "with one beyond the vocabulary": lambda end: [end, 99_999],
    "the first one beyond it": lambda end: [VOCAB, end],
    "with a negative one": lambda end: [-1, end],
    "negative alone": lambda end: -1,
    "huge alone": lambda end: 2**62,
    "twice": lambda end: [end, end],
    "none": lambda end: None,
    "an empty list": lambda end: [],
}


def written(folder: Path, **changes) -> tuple[list[int], Finish]:
    """Ids that a greedy run writes, and its finish."""
    asked = {"prompt": "Why?", "model": str(folder), "precision": "fp32", "watch": {"enabled": False}}
    settings = RunSettings(**asked, max_new_tokens=MOST, **changes)
    *steps, finish = Lab(Models([str(folder)])).stream(settings)
    assert isinstance(finish, Finish)
    return [step.token for step in steps if isinstance(step, Step)], finish


def save(folder: Path, stored: object, tokenizer_end: str | None = None) -> Path:
    """A tiny model whose generation config names `stored`, and a tokenizer whose end is `tokenizer_end`."""
    tiny_model("llama").save_pretrained(folder)
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token = tokenizer_end
    tokenizer.save_pretrained(folder)
    file = folder / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": stored}))
    return folder


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """What the model writes where nothing ends it."""
    return written(save(tmp_path_factory.mktemp("endless"), None))[0]


@pytest.fixture(scope="module")
def end(endless: list[int]) -> int:
    """An id that it writes late, and not before."""
    return next(token for index, token in enumerate(endless) if index >= 3 and token not in endless[:index])


@pytest.mark.parametrize("stored", STORED.values(), ids=STORED)
def test_a_run_ends_where_generate_ends(stored: Callable[[int], object], end: int, tmp_path: Path):
    folder = save(tmp_path, stored(end))
    tokens, finish = written(folder)
    loaded = Models([str(folder)]).load(str(folder), "fp32")
    ids = torch.tensor([loaded.tokenizer("Why?")["input_ids"]])
    expected = loaded.model.generate(ids, max_new_tokens=MOST, do_sample=False)[0, ids.shape[1] :].tolist()
    ended = expected[-1] == end
    assert tokens == (expected[:-1] if ended else expected)
    assert (finish.reason == "eos") == ended
    assert finish.p_eos is None or 0 < finish.p_eos <= 1


@pytest.mark.parametrize("stored", [None, 2, [2, 99_999], -1])
def test_a_run_ends_at_the_end_of_its_tokenizer_too(stored: object, end: int, endless: list[int], tmp_path: Path):
    tokens, finish = written(save(tmp_path, stored, tiny_tokenizer().convert_ids_to_tokens(end)))
    assert tokens == endless[: endless.index(end)]
    assert finish.reason == "eos"


@pytest.mark.parametrize("changes", [{"method": "exp_decay"}, {"method": "prompted", "landing": 2}])
def test_what_writes_the_end_is_refused_where_there_is_none(changes: dict, tmp_path: Path):
    with pytest.raises(ValueError, match="no token that ends a response"):
        written(save(tmp_path, [-1, VOCAB]), **changes)


@pytest.mark.parametrize("stored", ["2", ["</s>"], {"id": 2}])
def test_an_end_that_is_no_number_is_told(tmp_path: Path, stored: object):
    with pytest.raises(ValueError, match=r"eos_token_id in the generation_config.json of .* write its token ids"):
        written(save(tmp_path, stored))
