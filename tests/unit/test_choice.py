"""The choice of a token from its logits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backend.settings import RunSettings
from backend.text.sampling import Chooser

VOCABULARY = 40


@given(goals=st.lists(st.none() | st.integers(1, 30), min_size=1, max_size=8), seed=st.integers(0, 99))
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_the_decay_follows_a_goal_that_moves(temperature: float, goals: list[int | None], seed: int):
    """One chooser through a run says what one made for each goal does; no goal leaves the end alone."""
    asked = RunSettings(prompt="x", method="exp_decay", target=1, temperature=temperature)
    logits = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed))
    chooser = Chooser(asked, 3, [2])
    for goal in goals:
        read = list(range(20))
        found = chooser.choose(logits, read, goal, planned=7)
        assert found == Chooser(asked, 3, [2]).choose(logits, read, goal, planned=7)
        late = goal is not None and len(read) - 3 > goal
        plain = Chooser(asked.model_copy(update={"method": "none"}), 3, [2]).choose(logits, read, goal, planned=7)
        assert (found == plain) == (not late)


def test_a_model_without_an_end_is_never_urged_to_it():
    asked = RunSettings(prompt="x", method="exp_decay", target=1)
    found = Chooser(asked, 3, []).choose(torch.arange(5.0), list(range(20)), 1)
    assert (found.token, found.p_end, found.p_end_model) == (4, 0, 0)
