"""Long answers side by side: nothing is left out, 004's rule is a column of its own, bounds are those of draws."""

from math import exp

import pytest

from backend.evaluation.lengthening import Answer, beside
from backend.measures import censored


def test_corrupted_is_severe_repetition_and_has_no_part_in_length():
    assert not Answer(10, 8, 0.5, True).corrupted and Answer(10, 8, 0.51, True).corrupted
    assert not Answer(10, 8, 0.0, False).corrupted


def test_by_004_what_did_not_end_or_goes_in_a_circle_is_corrupted():
    assert Answer(10, 8, 0.0, False).corrupted_004 and Answer(10, 8, 0.51, True).corrupted_004
    assert not Answer(10, 8, 0.0, True, text="It rains. It pours. It snows.").corrupted_004
    assert Answer(10, 8, 0.0, True, text="It rains again. " * 6).corrupted_004


def test_a_ratio_counts_what_the_cap_cut():
    ours, theirs = [Answer(20, 20, 0, True)] * 3 + [Answer(9, 100, 0, False)], [Answer(10, 10, 0, True)] * 4
    found = beside(ours, theirs)
    assert found["compared"] == 4 and found["lengthening"] == 4 and found["lengthening_low"] is None


@pytest.mark.parametrize("count", [6, 12])
def test_bounds_of_what_is_alike_are_what_it_is(count):
    usual = Answer(10, 9, 0, True, 0.5, 0.2, 20.0)
    found = beside([Answer(20, 18, 0, True, 0.25, 0.4, 60.0)] * count, [usual] * count)
    ratios = {"lengthening": 2, "distinct2_ratio": 0.5, "similarity_ratio": 2, "perplexity_ratio": exp(1)}
    for key, value in ratios.items():
        assert found[key] == pytest.approx(value) == found[f"{key}_low"] == pytest.approx(found[f"{key}_high"])


def test_above_a_fifth_004_takes_each_sides_own_answers():
    whole, cut = Answer(30, 30, 0, True), Answer(99, 99, 0, False)
    found = beside([whole, cut] * 4, [cut, Answer(10, 10, 0, True)] * 4)
    assert found["lengthening_004"] == 3 and found["compared_004"] == 4


def test_a_median_on_a_tie_is_the_length_that_reaches_a_half():
    lengths = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert censored.median(lengths, [True] * 10).value == 5
    assert censored.median(lengths, [True] * 4 + [False] * 6).value is None
