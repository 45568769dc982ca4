"""Length evaluation: what is asked, what is counted, and that it measures the embedded model."""

import json

import pytest

from backend.__main__ import main
from backend.engine import Lab
from backend.evaluation import long_answers
from backend.evaluation.answers import Answer
from backend.evaluation.experiments import experiments
from backend.evaluation.experiments import length_control as evaluation
from backend.evaluation.experiments.length_control import (
    BEYOND,
    CHANGE_AT,
    CHANGES,
    COUNTS,
    EDGES,
    IN_RANGE,
    Case,
    Written,
    answers,
    cases,
    prompts,
    range_of,
    ranges_of,
    summaries,
    summary,
    summary_cases,
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
            answer(24, 23, kind="summaries"),
        ]
    )
    assert {name: [a.target for a in group] for name, group in found.items()} == {
        "10-200": [10, 200],
        "5-300": [5, 10, 200, 300],
        "300-1000": [300, 1000],
        "words": [25],
        "characters": [150],
        "changed": [60],
        "summaries": [24],
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


def test_summaries_are_asked_for_as_long_as_their_authors_wrote_them(embedded, tmp_path):
    rows = [{"abstract": "We do.", "tldr": "We do it well."}, {"abstract": "We prove.", "tldr": "A proof."}]
    (tmp_path / "scitldr_test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = summary_cases(tmp_path, embedded.tokenizer)
    wanted = [len(embedded.tokenizer.encode(row["tldr"])) for row in rows]
    assert [case.target for case in found] == wanted and wanted[0] > wanted[1]
    written = [
        Written(answer(case.target, 4, prompt=case.prompt), case.text, embedded.tokenizer.encode(text))
        for case, text in zip(found, ("We do it well.", "No."), strict=True)
    ]
    (row,) = summaries(embedded, written, [row["tldr"] for row in rows])
    assert row["target"] == "0 to 9" and row["answers"] == 2 and row["rouge1"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    "changes, name",
    [
        ({}, "range"), ({"target": 700}, "beyond"), ({"unit": "words"}, "words"), ({"changed_from": 9}, "changed"),
        ({"kind": "summaries"}, "summaries"),
    ],
)  # fmt: skip
def test_every_answer_is_of_one_range(changes: dict, name: str):
    assert range_of(answer(**{"target": 20, "count": 9} | changes)) == name


def test_other_ranges_are_kept_where_they_are_of_the_same_prompts():
    rows = [evaluation._record(a) for a in (answer(20, 21), answer(700, 640), answer(24, 30, kind="summaries"))]
    assert all(set(row) <= {"kind", "prompt", "target", "count", "tokens", "ended", "natural"} for row in rows)
    assert evaluation._others(rows, [answer(20, 20)]) == [answer(700, 640), answer(24, 30, kind="summaries")]
    assert evaluation._others(rows, [answer(9, 9, kind="summaries")]) == [answer(20, 21), answer(700, 640)]
    assert evaluation._others(rows, [answer(20, 20), answer(20, 20, prompt=1)]) == []
    assert evaluation._others([], [answer(20, 20)]) == []


@pytest.mark.scale
def test_the_prompted_model_is_measured(in_lab, monkeypatch):
    monkeypatch.setattr(evaluation, "MOST", 40)
    experiment = experiments["length_control"]

    def measured(ranges, before=None):
        options = experiment.Options(method="prompted", prompts=1, ranges=ranges)
        (found,) = experiment.measure(options, before, str)
        return found

    found = measured(("range", "changed"))
    assert len(found["answers"]) == len(IN_RANGE) + len(EDGES)
    assert found["summary"]["10-200"]["answers"] == len(IN_RANGE)
    assert found["quality"]["answers"] == len(found["answers"]) and found["quality"]["perplexity_plain"] > 1
    assert 0 <= found["quality"]["rouge1"] <= 1
    assert 0 < found["quality"]["stop_p"] <= 1 and 0 <= found["quality"]["stop_likeliest"] <= 1
    more = measured(("words",), found)
    assert more["quality"] == found["quality"] and more["summary"]["10-200"] == found["summary"]["10-200"]
    assert more["summary"]["words"]["answers"] == 4
    other = measured(("words",), found | {"landing": 8})
    assert set(other["summary"]) == {"words"} and other["quality"]["answers"] == 4


def test_answers_come_in_the_order_in_which_they_were_asked_for(models):
    asked = cases(prompts(1), ("changed",))[:2] + cases(prompts(1), ("range",))[:3]
    found = list(answers(Lab(models), "embedded", "prompted", asked, 0, print))
    assert [(w.answer.target, w.answer.changed_from) for w in found] == [(c.target, c.changed_from) for c in asked]


def test_a_method_without_adapter_is_refused(models, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("backend.models.adapters.ROOT", tmp_path)
    assert main(["evaluate", "length_control", "--method", "lrpe", "--out", str(tmp_path / "out.json")]) == 2
    assert "no adapter for lrpe" in capsys.readouterr().err
    landing = ["--method", "none", "--landing", "2", "--adapter", str(tmp_path), "--out", str(tmp_path / "out.json")]
    assert main(["evaluate", "length_control", *landing]) == 2
    assert "none has no target to land on: leave out --landing" in capsys.readouterr().err
    missing = ["--method", "none", "--data", str(tmp_path), "--out", str(tmp_path / "out.json")]
    assert main(["evaluate", "length_control", *missing]) == 2
    assert "scitldr_test.jsonl cannot be read" in capsys.readouterr().err


def test_a_run_that_failed_is_no_answer(models, monkeypatch):
    lab, case = Lab(models), Case("questions", 0, "Why?", 9)
    failed = Finish("error", "", 0, 0, 0, None, 3, 0.0, 0.0, 0.0, 0, message="no memory: give a smaller cap")
    monkeypatch.setattr(lab, "stream", lambda *_: iter([failed]))
    with pytest.raises(ValueError, match="give a smaller cap"):
        list(answers(lab, "embedded", "prompted", [case], 0, str))
    with pytest.raises(ValueError, match="give a smaller cap"):
        long_answers.response(lab, RunSettings(prompt="Why?"))
