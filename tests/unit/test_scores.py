"""Measures of length against targets: values worked by hand, and what holds for any lengths."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.measures import length_error as scores

PAIRS = [(12, 10), (95, 100), (100, 100), (171, 150)]
anything = st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 2000)), min_size=1, max_size=30)


def test_errors_by_hand():
    found = scores.summary(PAIRS)
    assert found["mae"] == 7
    assert found["sd"] == pytest.approx(math.sqrt((25 + 4 + 49 + 196) / 4))
    assert found["bias"] == 4.5
    assert found["variance"] == (4 + 25 + 0 + 441) / 4
    assert found["outliers"] == 0.25 and scores.outliers(PAIRS, beyond=21) == 0
    assert found["over"] == 0.5
    assert found["length_deviation"] == pytest.approx((0.2 + 0.05 + 0 + 0.14) / 4)


@pytest.mark.parametrize("target, precise, flexible", [
    (10, (0, 20), (0, 20)),
    (30, (20, 40), (20, 40)),
    (50, (40, 60), (40, 60)),
    (80, (70, 90), (60, 100)),
    (150, (130, 170), (100, 200)),
    (300, (280, 320), (200, 400)),
    (500, (450, 550), (400, 600)),
    (700, (630, 770), (600, 800)),
    (801, (800, 100_000), (800, 100_000)),
])  # fmt: skip
def test_matches_are_rulers_ranges_at_its_own_targets(target, precise, flexible):
    for match, (low, high) in ((scores.precise_match, precise), (scores.flexible_match, flexible)):
        found = [match([(produced, target)]) for produced in (low, low + 1, high, high + 1)]
        assert found == [0, 1, 1, float(target > 800)]


@pytest.mark.parametrize(
    "target, precise, flexible", [(20, 10, 10), (21, 10, 10), (100, 10, 20), (101, 20, 50), (800, 70, 100)]
)
def test_other_targets_take_the_tolerance_of_the_range_they_lie_in(target, precise, flexible):
    for match, tolerance in ((scores.precise_match, precise), (scores.flexible_match, flexible)):
        edges = (target - tolerance, target - tolerance + 1, target + tolerance, target + tolerance + 1)
        assert [match([(produced, target)]) for produced in edges] == [0, 1, 1, 0]


def test_length_score_falls_faster_for_what_is_too_short():
    assert scores.length_score([(100, 100)]) == 100
    assert scores.length_score([(80, 100)]) == pytest.approx(100 / math.e)
    assert scores.length_score([(150, 100)]) == pytest.approx(100 / math.e)
    assert scores.length_score([(80, 100), (100, 100)], "at most") == 100
    assert scores.length_score([(150, 100)], "at most") == pytest.approx(100 / math.e)
    assert scores.length_score([(150, 100), (100, 100)], "at least") == 100
    assert scores.length_score([(80, 100)], "at least") == pytest.approx(100 / math.e)


@pytest.mark.parametrize(
    "produced, score", [(0, 0), (333, 0), (500, 50), (1000, 100), (1300, 90), (2500, 50), (4000, 0), (9000, 0)]
)
def test_s_l_is_piecewise_linear_in_the_ratio(produced, score):
    assert scores.s_l([(produced, 1000)]) == pytest.approx(score, abs=1e-9)


@given(anything)
def test_what_holds_for_any_lengths(pairs):
    found = scores.summary(pairs)
    assert set(found) == set(scores.MEASURES)
    assert found["variance"] == pytest.approx(found["mae"] ** 2 + found["sd"] ** 2)
    assert abs(found["bias"]) <= found["mae"] + 1e-9
    assert 0 <= found["precise_match"] <= found["flexible_match"] <= 1
    assert all(0 <= found[name] <= 1 for name in ("outliers", "over"))
    assert all(0 <= found[name] <= 100 for name in ("length_score", "s_l"))
    assert found["length_score"] <= min(scores.length_score(pairs, c) for c in ("at most", "at least"))


@given(anything)
def test_a_measure_of_all_is_the_mean_of_each(pairs):
    for name in set(scores.MEASURES) - {"sd"}:
        measure = scores.MEASURES[name]
        assert measure(pairs) == pytest.approx(statistics.fmean(measure([pair]) for pair in pairs))


@given(st.integers(1, 2000))
def test_on_target_is_perfect(target):
    found = scores.summary([(target, target)])
    best = {"precise_match": 1, "flexible_match": 1, "length_score": 100, "s_l": 100}
    assert found == {name: best.get(name, 0) for name in scores.MEASURES}


@pytest.mark.parametrize("measure", scores.MEASURES.values(), ids=scores.MEASURES)
def test_no_pairs_are_an_error(measure):
    with pytest.raises(ValueError):
        measure([])
