"""What a measurement keeps in its file: floats to six significant digits, everything else as it is."""

import json

import pytest

from backend.record.results import keep


def test_a_result_is_kept_compactly_and_only_its_floats_are_rounded(tmp_path):
    result = {
        "command": "a 0.123456789", "seed": 123456789, "nats": [1.0800000429153442, -3151.856564578906, 2.5e-7],
        "rows": [{"s_l": 99.27632206433375, "ended": True, "judged": None}, (1 / 3, 2.0)],
    }  # fmt: skip
    keep(tmp_path / "kept.json", result)
    text = (tmp_path / "kept.json").read_text()
    assert json.loads(text) == {
        "command": "a 0.123456789", "seed": 123456789, "nats": [1.08, -3151.86, 2.5e-7],
        "rows": [{"s_l": 99.2763, "ended": True, "judged": None}, [0.333333, 2.0]],
    }  # fmt: skip
    assert ", " not in text.replace("a 0.123456789", "") and [file.name for file in tmp_path.iterdir()] == ["kept.json"]


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="cannot be written"):
        keep(tmp_path / "missing" / "kept.json", {})
