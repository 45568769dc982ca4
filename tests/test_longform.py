"""The rules by which long responses are judged, and their evaluation on the model itself."""

import json

import pytest

from backend.__main__ import main
from backend.engine import Lab
from backend.evaluation.experiments import experiments
from backend.evaluation.lengthening import Answer, summary
from backend.evaluation.long_answers import POLICIES, Asked, asked, evaluate
from backend.measures.overlap import repetition
from backend.methods import methods
from backend.settings import RunSettings


def test_repetition_counts_four_grams_that_came_before():
    assert repetition(list(range(50))) == 0
    assert repetition([1, 2, 3]) == 0
    assert repetition([7] * 13) == 0.9
    assert repetition([1, 2, 3, 4, 5, 6, 7, 8] * 2) == 1 - 8 / 13


def test_summary_is_over_all_responses():
    found = summary([Answer(10, 8, 0.0, True, nats=10.0, wanted=8), Answer(30, 20, 0.6, True, nats=30.0, judged=4.0)])
    assert found["tokens_mean"] == 20 and found["words_mean"] == 14 and found["corrupted"] == 0.5
    assert found["ended"] == 1 and found["perplexity"] == pytest.approx(2.71828, abs=1e-4)
    assert found["s_l"] == 100 and found["judged"] == 4
    assert not {"s_l", "judged"} & set(summary([Answer(10, 8, 0.0, True)]))


def test_every_compared_policy_is_valid_and_distinct():
    settings = [RunSettings(prompt="x", **policy) for policy in POLICIES.values()]
    assert len(set(settings)) == len(settings)


def test_trained_models_are_compared_in_the_ways_of_the_paper():
    settings = {name: RunSettings(prompt="x", **policy) for name, policy in experiments["pic_sft"].policies.items()}
    assert len(set(settings.values())) == len(settings) == 8
    long = {method.name for method in methods if method.compression}
    assert {one.method for one in settings.values()} == {"none", *long}
    assert not any(one.steered for one in settings.values())


def test_prompts_are_those_of_the_file(tmp_path):
    rows = [{"prompt": "a", "length": 30}, {"prompt": "b"}]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert asked(tmp_path / "p.jsonl", 5) == [Asked("a", 30), Asked("b")]
    assert len(asked(None, 99)) == 6
    assert asked(tmp_path / "p.jsonl", 5, least=30) == [Asked("a", 30)]
    with pytest.raises(ValueError, match="asks for 31 words or more: give another"):
        asked(tmp_path / "p.jsonl", 5, least=31)


def long(prompt, text):
    return float(len(text))


@pytest.mark.scale
def test_a_run_goes_on_and_a_judge_is_heard(models):
    lab, said = Lab(models), []
    prompts = [Asked("Name a colour.", 5), Asked("Name an animal.")]
    compared = {name: POLICIES[name] for name in ("plain", "naive s=4")}
    given = (lab, prompts, compared, {"max_new_tokens": 16})
    half, *_, first, _, _, whole = list(evaluate(*given, score=long, report=said.append))
    assert len(half["answers"]["plain"]) == 1 and len(first["answers"]["plain"]) == 2
    assert set(first["summary"]) == {"plain"} and set(whole["summary"]) == {"plain", "naive s=4"}
    plain = whole["summary"]["plain"]
    assert plain["perplexity"] < whole["summary"]["naive s=4"]["perplexity"]
    assert plain["judged"] > 0 and -1 <= plain["similarity"] <= 1
    *_, again = evaluate(*given, before=json.loads(json.dumps(first)), score=long, report=said.append)
    assert again["answers"]["plain"] == whole["answers"]["plain"]
    *_, more = evaluate(*given, before=json.loads(json.dumps(half)), score=long, report=said.append)
    assert more["answers"] == whole["answers"] and more["summary"] == whole["summary"]
    with pytest.raises(ValueError, match="other settings or prompts: give another --out"):
        next(evaluate(*given[:3], {"max_new_tokens": 8}, before=whole))
    shorter = {"plain": {}, "naive s=4": {"pic": "naive", "ratio": 2.0}}
    *_, anew = evaluate(*given[:2], shorter, given[3], before=whole, score=long, report=said.append)
    assert anew["answers"]["plain"] == whole["answers"]["plain"]
    assert anew["answers"]["naive s=4"] != whole["answers"]["naive s=4"]


@pytest.mark.scale
def test_runs_of_one_prompt_draw_alike_under_every_policy_and_those_of_two_do_not(models):
    given = {"max_new_tokens": 24, "temperature": 1.0}
    compared = {"plain": {}, "plain again": {}}
    *_, found = evaluate(Lab(models), [Asked("Tell a story.")] * 2, compared, given, report=lambda line: None)
    first, second = found["answers"]["plain"]
    assert first["nats"] != second["nats"] and found["answers"]["plain again"] == [first, second]
    assert found["summary"]["plain again"]["lengthening"] in (1, None)


def test_answers_that_were_drawn_otherwise_are_drawn_anew(models):
    given = (Lab(models), [Asked("Tell a story.")], {"plain": {}}, {"max_new_tokens": 4})
    *_, found = evaluate(*given, report=lambda line: None)
    lines: list[str] = []
    *_, again = evaluate(*given, before=found, report=lines.append)
    assert again["answers"] == found["answers"] and not any("of 1 answers" in line for line in lines)
    other = found | {"measured": {"plain": found["measured"]["plain"] | {"seeds": "one for all"}}}
    *_, anew = evaluate(*given, before=other, report=lines.append)
    assert anew["measured"] == found["measured"] and any("1 of 1 answers" in line for line in lines)


def test_what_cannot_be_measured_is_said(tmp_path, capsys):
    (tmp_path / "o.json").write_text('{"settings": {}}')
    for arguments, words in (
        (["--policy", "spiral"], "there is no 'spiral'"),
        (["--prompts", "0"], "--prompts 0: input should be greater than or equal to 1"),
        (["--cap", "0"], "--cap 0: input should be greater than or equal to 1"),
        (["--temperature", "-1"], "--temperature -1.0: input should be greater than or equal to 0\n"),
        (["--judge", "json:nothing"], "give MODULE:FUNCTION"),
        (["--data", str(tmp_path / "none.jsonl")], "cannot be read"),
        ([], "no result of this command"),
    ):
        out = tmp_path / ("o.json" if not arguments else "new.json")
        assert main(["evaluate", "long_responses", "--out", str(out), *arguments]) == 2
        assert words in capsys.readouterr().err
