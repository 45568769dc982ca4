"""Length evaluation: what is asked, what is counted, and that it measures the embedded model."""

import json
from functools import partial

import pytest

from backend.__main__ import main
from backend.engine import Lab
from backend.evaluation import length as evaluation
from backend.evaluation import longform
from backend.evaluation.answers import Answer
from backend.evaluation.length import (
    BEYOND,
    CHANGE_AT,
    CHANGES,
    COUNTS,
    EDGES,
    IN_RANGE,
    Case,
    answers,
    cases,
    evaluate,
    prompts,
    ranges_of,
    streamed,
    summary,
)
from backend.settings import RunSettings
from backend.steps import Finish


def answer(target: int, count: int, **changes) -> Answer:
    given = {"kind": "questions", "prompt": 0, "unit": "tokens", "tokens": count, "ended": True, "natural": True}
    return Answer(target=target, count=count, **given | changes)


def test_summaries_are_by_hand():
    found = summary([answer(10, 12), answer(50, 20, ended=False), answer(100, 100, natural=False)])
    assert found["answers"] == 3
    assert found["mae"] == pytest.approx(32 / 3) and found["bias"] == pytest.approx(-28 / 3)
    assert found["variance"] == pytest.approx((4 + 900) / 3) and found["outliers"] == pytest.approx(1 / 3)
    assert found["over"] == pytest.approx(1 / 3)
    assert found["ended"] == found["natural"] == pytest.approx(2 / 3)


def test_answers_are_grouped_by_range_and_kind():
    found = ranges_of(
        [
            answer(5, 5),
            answer(10, 9),
            answer(200, 180, kind="abstracts"),
            answer(300, 290),
            answer(1000, 900),
            answer(60, 61, changed_from=120),
            answer(25, 27, unit="words"),
            answer(150, 149, unit="characters"),
        ]
    )
    assert {name: [a.target for a in group] for name, group in found.items()} == {
        "10-200": [10, 200],
        "5-300": [5, 10, 200, 300],
        "300-1000": [300, 1000],
        "words": [25],
        "characters": [150],
        "changed": [60],
        "10-200 questions": [10],
        "300-1000 questions": [300, 1000],
        "10-200 abstracts": [200],
    }


def test_every_prompt_meets_every_target_once():
    asked = cases({"questions": ["a", "b"]}, ("range", "beyond", "words", "characters", "changed"))
    targets = {*IN_RANGE, *EDGES, *BEYOND}
    assert len(asked) == len(set(asked)) == 2 * (len(targets) + sum(map(len, COUNTS.values())) + len(CHANGES))
    assert all(min(pair) > CHANGE_AT for pair in CHANGES)


def test_prompts_are_the_labs_own_or_from_files(tmp_path):
    assert list(prompts(3)) == ["questions"] and len(prompts(3)["questions"]) == 3
    (tmp_path / "scitldr_test.jsonl").write_text(json.dumps({"abstract": "We do.", "tldr": "x"}) + "\n")
    (tmp_path / "hellobench_ht.jsonl").write_text(json.dumps({"prompt": "Write."}) + "\n")
    found = prompts(2, tmp_path)
    assert found["abstracts"][0].endswith("We do.") and found["articles"] == ["Write."]


def test_the_prompted_model_is_measured(models, monkeypatch):
    monkeypatch.setattr(evaluation, "MOST", 240)
    said: list[str] = []
    found = evaluate(models, "embedded", "prompted", 1, ("range", "changed"), report=said.append)
    assert len(found["answers"]) == len(IN_RANGE) + len(EDGES) and found["seconds"] > 0
    assert found["summary"]["10-200"]["answers"] == len(IN_RANGE)
    assert found["quality"]["perplexity_plain"] > 1 and 0 <= found["quality"]["rouge1"] <= 1
    assert found["commit"] and json.dumps(found)


def test_answers_of_single_runs_are_those_of_a_batch(models, monkeypatch):
    monkeypatch.setattr(evaluation, "_settings", partial(evaluation._settings, precision="fp32"))
    loaded, asked = models.load("embedded", "fp32"), cases(prompts(1), ("changed",))[:2]
    batch = sorted((w for w in answers(loaded, "prompted", asked, None, print)), key=lambda w: w.answer.target)
    single = sorted(streamed(Lab(models), "embedded", "prompted", asked, 0, print), key=lambda w: w.answer.target)
    assert [w.answer for w in single] == [w.answer for w in batch]


def test_a_method_without_adapter_is_refused(models, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("backend.adapters.ROOT", tmp_path)
    assert main(["evaluate", "length", "--method", "lrpe", "--out", str(tmp_path / "out")]) == 2
    assert "no adapter for lrpe" in capsys.readouterr().err
    landing = ["--method", "none", "--landing", "2", "--adapter", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(["evaluate", "length", *landing]) == 2
    assert "none has no target to land on: leave out --landing" in capsys.readouterr().err
    landing[1] = "ldpe"
    assert main(["evaluate", "length", *landing]) == 2
    assert "--landing is measured with the lab's own adapters: leave out --adapter" in capsys.readouterr().err
    assert main(["evaluate", "length", "--method", "none", "--data", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "scitldr_test.jsonl cannot be read" in capsys.readouterr().err


def test_a_run_that_failed_is_no_answer(models, monkeypatch):
    lab, case = Lab(models), Case("questions", 0, "Why?", 9)
    failed = Finish("error", "", 0, 0, 0, None, 3, 0.0, 0.0, 0.0, 0, message="no memory: give a smaller cap")
    monkeypatch.setattr(lab, "stream", lambda *_: iter([failed]))
    with pytest.raises(ValueError, match="give a smaller cap"):
        list(streamed(lab, "embedded", "prompted", [case], 0, str))
    with pytest.raises(ValueError, match="give a smaller cap"):
        longform._alone(lab, RunSettings(prompt="Why?"))
