"""The rules by which long responses are judged."""

from backend.evaluation.longform import Answer, policies, repetition, summary
from backend.settings import RunSettings


def test_repetition_counts_four_grams_that_came_before():
    assert repetition(list(range(50))) == 0
    assert repetition([1, 2, 3]) == 0
    assert repetition([7] * 13) == 0.9
    assert repetition([1, 2, 3, 4, 5, 6, 7, 8] * 2) == 1 - 8 / 13


def test_corrupted_means_no_end_or_more_than_half_repeated():
    assert not Answer(10, 8, 0.5, True).corrupted
    assert Answer(10, 8, 0.51, True).corrupted
    assert Answer(10, 8, 0.0, False).corrupted


def test_summary_is_over_all_responses():
    found = summary([Answer(10, 8, 0.0, True), Answer(30, 20, 0.6, True)])
    assert (
        found["tokens_mean"] == 20 and found["words_mean"] == 14 and found["corrupted"] == 0.5 and found["ended"] == 1
    )


def test_every_compared_policy_is_valid_and_distinct():
    settings = [RunSettings(prompt="x", **policy) for policy in policies().values()]
    assert len(set(settings)) == 7
