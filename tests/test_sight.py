"""What a way of reading has lost of a text, as the page greys it out; and the chapter that the page opens with."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from conftest import tiny_tokenizer

from app import plans
from app.sight import EDGE, LEFT_OUT, Sight, sight
from app.tabs.long_context import NOVEL, chapter
from backend.models.pool import Loaded
from backend.positions import policy_of
from backend.record.results import RESULTS

TOKENIZER = tiny_tokenizer()
TEXT = "the quick brown fox jumps over the lazy dog and runs on "


def seen_of(way: str, text: str = TEXT, window: int = 12, sinks: int = 3) -> Sight:
    (plan,) = plans.plans(window, sinks, 0.25, [way], {"model": "embedded"})
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert len(ids) == len(text)
    return sight(TOKENIZER, torch.tensor(ids), plan)


@pytest.mark.parametrize(
    ("way", "pieces"),
    [
        ("Plain", [(TEXT, True)]),
        ("Dynamic PIC", [(TEXT, True)]),
        ("Λ", [(TEXT[:3], True), (TEXT[3:-12], False), (TEXT[-12:], True)]),
        ("Λ without sinks", [(TEXT[:-12], False), (TEXT[-12:], True)]),
        ("Truncation", [(TEXT[:-12], False), (TEXT[-12:], True)]),
    ],
)
def test_what_a_way_of_reading_has_lost_stands_apart_from_what_it_sees(way, pieces):
    found = seen_of(way)
    assert found.pieces == pieces
    assert (found.lost, found.read) == (sum(len(text) for text, seen in pieces if not seen), len(TEXT))


@pytest.mark.parametrize("way", plans.POLICIES)
def test_of_every_policy_those_tokens_are_lost_that_its_last_query_does_not_see(way):
    if way == plans.TRUNCATION:
        return
    (plan,) = plans.plans(12, 3, 4, [way], {"model": "embedded"})
    distance = policy_of(plan.settings).distance(np.array([len(TEXT) - 1]), np.arange(len(TEXT)))[0]
    seen = "".join(letter for letter, away in zip(TEXT, distance, strict=True) if not np.isnan(away))
    assert "".join(text for text, is_seen in seen_of(way).pieces if is_seen) == seen


def test_of_a_long_stretch_its_two_ends_are_shown():
    text = TEXT * 40
    ((lost, _), (_, is_seen)) = seen_of("Truncation", text).pieces
    assert is_seen and lost == text[:EDGE] + LEFT_OUT + text[: len(text) - 12][-EDGE:]


def test_a_stretch_that_ends_amid_a_character_shows_no_sign_of_it(embedded: Loaded):
    ids = embedded.tokenizer("𓀀 and 𓁐", add_special_tokens=False)["input_ids"]
    assert len(ids) > 3
    (plan,) = plans.plans(16, 0, 1, ["Truncation"], {"model": "embedded"})
    for kept in range(1, len(ids)):
        pieces = sight(embedded.tokenizer, torch.tensor(ids), plan._replace(kept=kept)).pieces
        assert not any("\ufffd" in text for text, _ in pieces), pieces


def test_the_chapter_is_short_enough_to_ship_and_no_measured_text_is_of_its_novel(embedded: Loaded):
    assert NOVEL.stat().st_size <= 64_000
    assert len(embedded.tokenizer(chapter(), verbose=False)["input_ids"]) > 8192
    measured = [_documents(json.loads(file.read_text("utf-8"))) for file in sorted(RESULTS.glob("*.json"))]
    assert any("Thackeray" in name for names in measured for name in names)
    assert not any("Dickens" in name for names in measured for name in names)


def _documents(result: dict[str, Any]) -> set[str]:
    rows = [row for rows in result.values() if isinstance(rows, list) for row in rows if isinstance(row, dict)]
    return {str(row["document"]) for row in rows if "document" in row}
