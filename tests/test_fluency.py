"""Perplexity against position: what is read, that it goes on where it stopped, and what its summaries say."""

import json
import math

import pytest

from backend.__main__ import main
from backend.engine import Lab
from backend.evaluation import fluency
from backend.evaluation.fluency import Reading, Task, documents, evaluate, same_tokens, summary, tasks
from backend.settings import RunSettings


def reading(policy: str, start: int, stop: int, nats: float, document="a") -> Reading:
    places = list(range(512, stop - start + 1, 512))
    n = len(places)
    return Reading(document, policy, start, places, [nats] * n, [1.0] * n, [9.0] * n, [1] * n)


def test_tasks_stop_where_time_is_quadratic_and_begin_anew_for_comparison():
    found = tasks(["a"], list(fluency.POLICIES), (2048, 32768), 8192)
    assert Task("a", "plain", 0, 2048) in found and Task("a", "Λ", 0, 32768) in found
    assert Task("a", "Λ", 32768 - fluency.FRESH, 32768) in found
    assert Task("a", "truncation", 32768 - 3072, 32768) in found and Task("a", "truncation", 0, 2048) in found
    assert [t.stop - t.start for t in found] == sorted(t.stop - t.start for t in found)
    assert len(found) == len(set(found)) == 9


def test_parts_of_lambda_are_compared_each_with_settings_of_its_own():
    settings = [RunSettings(prompt="x", **policy) for policy in fluency.ABLATION.values()]
    assert len(set(settings)) == len(settings)
    assert fluency.KNOWN["window, sinks, limit"] == fluency.KNOWN["Λ"]
    stops = {task.policy: task.stop for task in tasks(["a"], list(fluency.ABLATION), (8192, 32768), 8192)}
    assert stops == dict.fromkeys(fluency.ABLATION, 32768) | {"plain": 8192, "limit alone": 8192}


def test_summaries_are_by_hand():
    readings = [
        reading("Λ", 0, 32768, 2.0),
        reading("Λ", 0, 32768, 3.0, "b"),
        reading("Λ", 32768 - 8192, 32768, 2.25),
        reading("truncation", 32768 - 3072, 32768, 1.0),
    ]
    assert summary(readings, (2048, 32768)) == [
        {"policy": "Λ", "2,048": round(math.exp(2.5), 2), "32,768": round(math.exp(2.5), 2)},
        {"policy": "truncation", "2,048": None, "32,768": round(math.e, 2)},
    ]
    (row,) = same_tokens(readings, (2048, 32768))
    assert row["documents"] == 1 and row["ratio"] == pytest.approx(math.exp(-0.25), abs=1e-4)


def test_the_tail_is_what_stands_before_a_length():
    found = Reading("a", "plain", 0, [512, 1024, 1536, 2048], [4.0, 3.0, 2.0, 1.0], [0] * 4, [0] * 4, [0] * 4)
    assert found.tail(2048) == 1.5 and found.tail(1024) == 3.5 and found.tail(4096) is None


def test_a_run_goes_on_where_it_stopped_and_ends_the_same(models):
    lab, texts, said = Lab(models), documents(None, 1), []
    given = (lab, "embedded", texts, ["Λ", "truncation"], (1024, 2048), 2048)
    first = next(evaluate(*given, report=said.append))
    *_, whole = evaluate(*given, before=json.loads(json.dumps(first)), report=said.append)
    assert len(said) == 3 and len(whole["readings"]) == 2
    *_, again = evaluate(*given, before=whole, report=said.append)
    assert len(said) == 3 and again["perplexity"] == whole["perplexity"]
    assert first["went_on_from"] == [] and len(again["went_on_from"]) == 2
    assert again["went_on_from"][0]["date"] == first["date"]
    rows = {row["policy"]: row for row in whole["perplexity"]}
    assert 1 < rows["Λ"]["2,048"] < 60 and rows["truncation"]["1,024"] == rows["Λ"]["1,024"]


def test_what_cannot_be_read_is_said(tmp_path, capsys):
    for arguments, words in (
        (["--data", str(tmp_path)], "no .txt file"),
        (["--policy", "spiral"], "there is no policy 'spiral'"),
        (["--lengths", "10"], "give lengths from 1,024"),
    ):
        assert main(["evaluate", "perplexity", "--out", str(tmp_path / "o.json"), *arguments]) == 2
        assert words in capsys.readouterr().err
    for content, words in (
        ("{", "it is no JSON"),
        ("[]", "no result of this command"),
        ('{"model": "x", "readings": []}', "measured on x"),
    ):
        (tmp_path / "o.json").write_text(content)
        assert main(["evaluate", "perplexity", "--out", str(tmp_path / "o.json")]) == 2
        assert words in capsys.readouterr().err and (tmp_path / "o.json").read_text() == content
