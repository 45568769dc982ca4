"""What a result tells of where it was measured."""
from __future__ import annotations

import re

from backend.record import provenance as machine


def test_a_commit_is_named_and_left_empty_where_there_is_none(tmp_path, monkeypatch):
    monkeypatch.delenv("COMMIT", raising=False)
    assert re.fullmatch(r"[0-9a-f]{40}(\+changes)?", machine.provenance(0)["commit"])
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "machine.py"))
    assert machine.provenance(0)["commit"] == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.provenance(0)["commit"] == ""
    monkeypatch.setenv("COMMIT", "abc")
    assert machine.provenance(0)["commit"] == "abc"


def test_a_result_that_goes_on_keeps_the_calls_it_came_of():
    first = {"command": "python one", "commit": "a", "date": "b"}
    second = machine.provenance(0, first)
    assert second["resumed_from"] == [first]
    assert machine.provenance(0, second)["resumed_from"] == [first, {k: second[k] for k in machine.CALL}]
