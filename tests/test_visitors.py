"""Two measures of many runs at once: what a class pays, and what int4 changes in an adapter's lengths."""

from __future__ import annotations

import json
from statistics import median

from backend.evaluation import report
from backend.evaluation.experiments import experiments, rounding, visitors


def test_as_many_write_at_once_as_alone_and_all_are_counted(lab, monkeypatch):
    """Every visitor writes all its tokens, whatever it chose, in both ways and every round."""
    counts, own = [], visitors._written

    def counted(*asked):
        counts.append((found := own(*asked))[0])
        return found

    monkeypatch.setattr(visitors, "_written", counted)
    asked = visitors.runs(7, 4)
    assert len({each.prompt for each in asked}) == 7 and asked[3].window and asked[5].pic == "dynamic"
    assert {each.method for each in asked} == {"ldpe", "none", "pre", "orpe"}
    monkeypatch.setattr(visitors, "Lab", lambda: lab)
    experiment = experiments["visitors"]
    *_, result = experiment.measure(experiment.Options(visitors=7, written=4, rounds=2), None, str)
    assert counts == [1] * 7 + [4] * 7 * 2 * 2
    assert (result["visitors"], result["written"], len(result["rounds"])) == (7, 4, 2)
    assert all(value > 0 for each in result["rounds"] for value in each.values())


def test_int4_is_asked_what_bf16_is_and_a_run_goes_on(lab, monkeypatch):
    monkeypatch.setattr(rounding, "TARGETS", (5, 9))
    seen, stream = [], type(lab).stream

    def looked(self, settings, control=None):
        seen.append((settings.method, settings.precision, settings.target))
        return stream(self, settings, control)

    monkeypatch.setattr(type(lab), "stream", looked)
    monkeypatch.setattr(rounding, "Lab", lambda: lab)
    experiment = experiments["rounding"]
    options = experiment.Options(method=("ldpe",), prompts=1)
    [result] = experiment.measure(options, None, str)
    assert sorted(seen) == sorted(("ldpe", precision, target) for precision in ("bf16", "int4") for target in (5, 9))
    [row] = result["rows"]
    assert len(row["bf16"]) == len(row["int4"]) == 2 and row["prompts"] == 1
    assert list(experiment.measure(options, json.loads(json.dumps(result)), str)) == []


def test_the_report_tells_both_with_what_they_rest_on(tmp_path):
    rounds = [{"alone": 10.0, "together": 10.0 * n, "lone_first": 1.0, "last_first": n + 5} for n in range(2, 9)]
    class_of = {"visitors": 30, "written": 40, "rounds": rounds, "command": "python -m x --written 40"}
    row = {"method": "ldpe", "prompts": 6, "bf16": [5, 9] * 6, "int4": [6, 9, 5, 13, 5, 9] * 2}
    (tmp_path / "visitors.json").write_text(json.dumps(class_of))
    (tmp_path / "rounding.json").write_text(json.dumps({"targets": [5, 9], "rows": [row]}))
    page = report.text(report.sections(tmp_path))
    assert f"{median(range(2, 9)):.2f} (" in page and f"{median(range(7, 14)):.2f} (" in page
    assert page.count("; 7 rounds)") == 3
    assert "of 40 tokens at once" in page and "`python -m backend evaluate visitors --written 40`" in page
    [line] = [line for line in page.splitlines() if line.startswith("| `ldpe` |")]
    cells = [cell.strip() for cell in line.split("|")[2:-1]]
    # No errors, and 1 0 0 4 0 0 twice: five sixths of a token more.
    assert cells[:2] == ["0.00", "0.83"] and cells[2].startswith("0.83 (") and cells[2].endswith("; 6 prompts)")
    assert cells[3] == "0.00" and cells[4] == "4.00"
