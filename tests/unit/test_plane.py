"""The plane of first-layer states: where it lies, what it says of position, and the one that ships."""

import numpy as np
import pytest

from backend.evaluation import planes
from backend.measures import plane as kept
from backend.measures.plane import fixed, plane_of
from backend.settings import RunSettings

RNG = np.random.default_rng(0)
AWAY, ASIDE = np.eye(2, 12) * [[9], [5]]


def states(n: int, along: np.ndarray) -> np.ndarray:
    """States [n, 12] that differ most along two of their dimensions."""
    return (RNG.normal(size=(n, 2)) @ [AWAY, ASIDE] + RNG.normal(size=(n, 12)) * 0.1 + along).astype(np.float32)


def test_a_plane_holds_its_text_and_tells_the_share_of_other_states():
    text = states(200, np.zeros(12))
    plane = fixed(text)
    assert np.allclose(plane.transform(text).std(0), [9, 5], rtol=0.2) and sum(plane.explained) > 0.99
    assert np.allclose(plane.cloud, plane.transform(text)[plane.position]) and plane.position[-1] == 199
    assert plane.share(states(50, np.ones(12))) > 0.99
    other = RNG.normal(size=(400, 12))
    assert plane.share(other) == pytest.approx(2 / 12, abs=0.04)


def test_position_explains_a_plane_along_which_states_drift_and_no_other():
    assert fixed(states(400, np.zeros(12))).by_position < 0.03
    drifts = np.log1p(np.arange(400))[:, None] * np.eye(1, 12, 3) * 20
    assert fixed(states(400, drifts)).by_position > 0.95


def test_a_plane_that_was_saved_is_read_as_it_was(tmp_path, monkeypatch):
    made = fixed(states(300, np.zeros(12)))
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    kept.save(made, "tiny", {"text": "none"})
    kept._planes.cache_clear()
    try:
        read = plane_of("tiny")
        assert read is not None and plane_of("../tiny") is None and plane_of("a\0b") is None
        for name in kept.COLUMNS:
            assert np.allclose(getattr(read, name), getattr(made, name), atol=1e-4), name
        assert read.explained == pytest.approx(made.explained, abs=1e-4) and read.tokens == 300
    finally:
        kept._planes.cache_clear()


def test_the_plane_that_ships_is_that_of_its_text():
    plane = plane_of(RunSettings(prompt="-").model)
    assert plane is not None and np.allclose(plane.axes @ plane.axes.T, np.eye(2), atol=1e-3)
    assert planes.TEXT.is_file() and plane.position[-1] == plane.tokens - 1
