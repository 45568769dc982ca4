"""The report of results: what is committed is what the files give, and long answers by other code."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from app import results
from backend.evaluation.experiments import experiments
from backend.evaluation.experiments.joint_rate import beside
from backend.evaluation.papers import PAPERS
from backend.evaluation.report import sections, text
from backend.record.results import RESULTS
from backend.text.lists import whole_list

LONG = ("longform.json", "longform_many.json", "pic_sft.json", "pic_sft_many.json", "longbench_write_long.json")

VALIDATION = "joint_rate/validation"
# A row without a limit and one with; the others take as long each.
QUICK = ("ldpe_landing_in_prompt", "mnt_orpe")
REST = {
    "kind": "questions", "text": "Yes.", "ids": [1], "reason": "eos", "landed": False, "p_eos": 0.5, "p_line": 0.5,
    "nats": 1.0, "similarity": 0.5,
}  # fmt: skip


def test_the_committed_report_is_what_the_files_give():
    assert (RESULTS / "README.md").read_text("utf-8") == text(sections())


def test_every_file_has_its_section_or_is_withdrawn():
    whole = "".join(section.text for section in sections())
    assert all(name in whole for name in results.names())


def test_a_damaged_file_is_named_and_the_rest_is_shown(tmp_path):
    (tmp_path / "perplexity.json").write_text("{")
    found = {section.name: section.text for section in sections(tmp_path)}
    assert "cannot be read" in found["perplexity"] and "Not measured yet" in found["joint_rate"]


def test_five_pieces_of_evidence_have_each_a_place_and_a_paper_of_their_own():
    found = sorted(each for section in sections() if section.card for each in section.card.evidence)
    assert [each.order for each in found] == [1, 2, 3, 4, 5]
    assert all(each.paper in PAPERS and each.short and each.figure.curves for each in found)
    assert not {section.name for section in sections()} & {each.name for each in experiments if each.withdrawn}


@pytest.mark.parametrize(
    ("theme", "figures"),
    [
        ("Length met and ended", ("< 3", "2.8", "2.4")), ("Far reading", ("1,672", "5.98", "NaN", "4.18")),
        ("Speed", ("3.16", "2.72")),
    ],
)  # fmt: skip
def test_the_papers_figures_are_those_that_are_kept_of_them(theme, figures):
    shown = [each for section in sections() if section.card for each in section.card.evidence]
    found = next(each for each in shown if each.theme == theme)
    kept = (RESULTS.parent / "published" / f"{found.paper}.json").read_text("utf-8")
    said = {"< 3": "below 3", "NaN": "no number"}
    assert all(figure in kept and said.get(figure, figure) in found.published for figure in figures)


def test_a_result_that_is_not_there_gives_no_evidence(tmp_path):
    assert not [section for section in sections(tmp_path) if section.card and section.card.evidence]


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


@pytest.mark.parametrize(
    "name",
    [
        path.stem if path.stem in QUICK else pytest.param(path.stem, marks=pytest.mark.scale)
        for path in sorted((RESULTS / VALIDATION).glob("*.json"))
    ],
)
def test_pairs_with_the_base_model_by_other_code(name):
    """McNemar's exact test as a sum of coin throws; a row with a limit stands beside a base model with that limit."""
    base, row = (json.loads((RESULTS / VALIDATION / f"{each}.json").read_text("utf-8")) for each in ("none", name))
    others = {(answer["prompt"], answer["target"]): answer for answer in base["answers"]}
    only = base_only = 0
    for answer in row["answers"]:
        other = others[answer["prompt"], answer["target"]]
        ours, theirs = meets(answer, answer["limit"]), meets(other, answer["limit"])
        only, base_only = only + (ours and not theirs), base_only + (theirs and not ours)
    thrown = only + base_only
    tail = sum(math.comb(thrown, heads) for heads in range(min(only, base_only) + 1)) / 2**thrown
    found = beside(row, base)
    assert (found.only, found.base_only, found.prompts) == (only, base_only, len(row["answers"]))
    assert found.p == pytest.approx(min(1, 2 * tail))
    assert found.gain.value == pytest.approx((only - base_only) / len(row["answers"]))
    line = next((line for line in text(sections()).splitlines() if line.startswith(f"| {name.replace('_', ' ')} | ")
                 and "prompts)" in line), "")  # fmt: skip
    assert (name == "none") == (not line)
    assert not line or f"| {only} | {base_only} | " in line


def meets(answer: dict, limit: bool) -> bool:
    """Conditions 1 to 3 of an answer, under a target or a limit."""
    over = answer["produced"] - answer["target"]
    length = over <= 0 if limit else abs(over) <= max(3, answer["target"] / 20)
    likely = answer["p_line"] if answer["p_mark"] is None else answer["p_mark"]
    return length and answer["own_end"] and likely >= 0.05 and whole_list(answer["text"])


def test_rows_are_told_apart_only_where_every_test_counts():
    rows = [{"prompt": f"{i}", "target": 20, "produced": 20, "own_end": True, "p_mark": 0.5, **REST} for i in range(20)]
    never = {"answers": [row | {"own_end": False} for row in rows]}
    some = {"answers": [row | {"own_end": i < 7} for i, row in enumerate(rows)]}
    pair = beside(some, never)
    assert (pair.only, pair.base_only, pair.p) == (7, 0, pytest.approx(2 / 2**7))
    assert pair.apart(1) == "more" and pair.apart(4) == "not distinguished"
    assert beside(never, some).apart(1) == "fewer"
    assert beside(never, never).apart(1) == "not distinguished"
