"""The report of results: what is committed is what the files give, and long answers by other code."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from app import results
from backend.evaluation.files import RESULTS
from backend.evaluation.report import sections, text

LONG = ("longform.json", "longform_many.json", "pic_sft.json", "pic_sft_many.json", "longbench_write_long.json")


def test_the_committed_report_is_what_the_files_give():
    assert (RESULTS / "README.md").read_text("utf-8") == text()


def test_every_file_has_its_section_or_is_withdrawn():
    whole = "".join(section.text for section in sections())
    assert all(name in whole for name in results.names())


def test_a_damaged_file_is_named_and_the_rest_is_shown(tmp_path):
    (tmp_path / "perplexity.json").write_text("{")
    found = {section.name: section.text for section in sections(tmp_path)}
    assert "cannot be read" in found["perplexity"] and "Not measured yet" in found["joint"]


def half(words: list[int], ended: list[bool]) -> float | None:
    """Kaplan and Meier's median, by hand: the shortest length that at most half survive."""
    alive = Fraction(1)
    for length in sorted({w for w, end in zip(words, ended, strict=True) if end}):
        at_risk = sum(w >= length for w in words)
        ends = sum(w == length and end for w, end in zip(words, ended, strict=True))
        alive *= 1 - Fraction(ends, at_risk)
        if alive <= Fraction(1, 2):
            return length
    return None


@pytest.mark.parametrize("name", LONG)
def test_long_answers_by_other_code(name):
    """Every answer counts: means, ends, repetition and medians anew from the rows."""
    found = json.loads((RESULTS / name).read_text("utf-8"))
    reference = next(iter(found["answers"].values()))
    for policy, rows in found["answers"].items():
        summary = found["summary"][policy]
        words, ended = [row["words"] for row in rows], [row["ended"] for row in rows]
        assert summary["words_mean"] == pytest.approx(np.mean(words), rel=1e-4)
        assert summary["ended"] == pytest.approx(np.mean(ended), rel=1e-4)
        assert summary["corrupted"] == pytest.approx(np.mean([row["repetition"] > 0.5 for row in rows]), abs=1e-5)
        assert summary["words_half"] == half(words, ended)
        ratio = np.mean(words) / np.mean([row["words"] for row in reference][: len(rows)])
        assert summary.get("lengthening") in (None, pytest.approx(ratio, rel=1e-3))


def test_what_was_claimed_before_is_not_claimed_now():
    many = json.loads((RESULTS / "longform_many.json").read_text("utf-8"))["summary"]["dynamic contiguous s=4"]
    assert many["lengthening"] == pytest.approx(0.75, abs=0.01)
    trained = json.loads((RESULTS / "pic_sft_many.json").read_text("utf-8"))["summary"]["dynamic PIC-SFT, dynamic s=4"]
    assert trained["lengthening"] == pytest.approx(2.14, abs=0.01)
