"""The rules by which long responses are judged, and their evaluation on the model itself."""

import json
from math import exp

import pytest

from backend.__main__ import main
from backend.engine import Lab
from backend.evaluation import longform
from backend.evaluation.longform import Answer, Asked, asked, evaluate, policies, repetition, summary, trained
from backend.settings import LONG_METHODS, RunSettings, Watch


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
    found = summary([Answer(10, 8, 0.0, True, nats=10.0, wanted=8), Answer(30, 20, 0.6, True, nats=30.0, judged=4.0)])
    assert found["tokens_mean"] == 20 and found["words_mean"] == 14 and found["corrupted"] == 0.5
    assert found["ended"] == 1 and found["perplexity"] == pytest.approx(2.71828, abs=1e-4)
    assert found["s_l"] == 100 and found["judged"] == 4
    assert not {"s_l", "judged"} & set(summary([Answer(10, 8, 0.0, True)]))


def test_every_compared_policy_is_valid_and_distinct():
    settings = [RunSettings(prompt="x", **policy) for policy in policies().values()]
    assert len(set(settings)) == len(settings)


def test_trained_models_are_compared_in_the_ways_of_the_paper():
    settings = {name: RunSettings(prompt="x", **policy) for name, policy in trained().items()}
    assert len(set(settings.values())) == len(settings) == 8
    assert {one.method for one in settings.values()} == {"none", *LONG_METHODS}
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


def test_a_run_goes_on_and_a_judge_is_heard(models):
    lab, said = Lab(models), []
    prompts = [Asked("Name a colour.", 5), Asked("Name an animal.")]
    compared = {name: policies()[name] for name in ("plain", "naive s=4")}
    given = (lab, prompts, compared, {"max_new_tokens": 16})
    half, *_, first, _, _, whole = list(evaluate(*given, score=long, report=said.append))
    assert len(half["answers"]["plain"]) == 1 and len(first["answers"]["plain"]) == 2
    assert set(first["summary"]) == {"plain"} and set(whole["summary"]) == {"plain", "naive s=4"}
    plain = whole["summary"]["plain"]
    assert plain["perplexity"] < whole["summary"]["naive s=4"]["perplexity"]
    assert plain["judged"] > 0 and -1 <= plain["similarity"] <= 1
    *_, again = evaluate(*given, before=json.loads(json.dumps(first)), score=long, report=said.append)
    assert again["answers"]["plain"] == whole["answers"]["plain"]
    assert len(again["went_on_from"]) == 1
    *_, more = evaluate(*given, before=json.loads(json.dumps(half)), score=long, report=said.append)
    assert more["answers"] == whole["answers"] and more["summary"] == whole["summary"]
    with pytest.raises(ValueError, match="other settings or prompts: give another --out"):
        next(evaluate(*given[:3], {"max_new_tokens": 8}, before=whole))
    shorter = {"plain": {}, "naive s=4": {"pic": "naive", "ratio": 2.0}}
    *_, anew = evaluate(*given[:2], shorter, given[3], before=whole, score=long, report=said.append)
    assert anew["answers"]["plain"] == whole["answers"]["plain"]
    assert anew["answers"]["naive s=4"] != whole["answers"]["naive s=4"]


def test_runs_of_one_prompt_draw_alike_under_every_policy_and_those_of_two_do_not(models):
    given = {"max_new_tokens": 24, "temperature": 1.0}
    compared = {"plain": {}, "plain again": {}}
    *_, found = evaluate(Lab(models), [Asked("Tell a story.")] * 2, compared, given, report=lambda line: None)
    first, second = found["answers"]["plain"]
    assert first["nats"] != second["nats"] and found["answers"]["plain again"] == [first, second]
    assert found["summary"]["plain again"]["lengthening"] in (1, None)


def test_a_batch_writes_what_single_runs_write(models, monkeypatch):
    lab = Lab(models)
    compressed = {"pic": "dynamic", "ratio": 4.0, "initial": 2, "recent": 40, "precision": "fp32", "max_new_tokens": 60}
    asked = [RunSettings(prompt=text, watch=Watch(enabled=False), **compressed) for text in ("Why?", "Tell a story.")]
    monkeypatch.setattr(longform, "ENOUGH", 2)
    batch = dict(longform.responses(lab, asked))
    assert max(len(found.tokens) for found in batch.values()) == 60
    monkeypatch.delattr(longform, "write")
    for name, value in (("ENOUGH", 3), ("TOGETHER", 59)):
        with monkeypatch.context() as other:
            other.setattr(longform, name, value)
            assert dict(longform.responses(lab, asked)) == batch


def test_answers_that_were_drawn_otherwise_are_drawn_anew(models):
    given = (Lab(models), [Asked("Tell a story.")], {"plain": {}}, {"max_new_tokens": 4})
    *_, found = evaluate(*given, report=lambda line: None)
    lines: list[str] = []
    *_, again = evaluate(*given, before=found, report=lines.append)
    assert again["answers"] == found["answers"] and not any("of 1 answers" in line for line in lines)
    other = found | {"measured": {"plain": found["measured"]["plain"] | {"seeds": "one for all"}}}
    *_, anew = evaluate(*given, before=other, report=lines.append)
    assert anew["measured"] == found["measured"] and any("1 of 1 answers" in line for line in lines)


def test_lengths_are_compared_over_what_neither_corrupted():
    plain = [Answer(10, 8, 0, True), Answer(90, 80, 0, False), Answer(10, 8, 0, True)]
    found = summary([Answer(20, 16, 0, True), Answer(20, 16, 0, True), Answer(20, 40, 0.9, True)], plain)
    assert found["shared"] == 1 and found["lengthening"] == 2
    assert summary(plain)["shared"] == 0 and summary(plain)["lengthening"] is None


def test_quality_is_compared_over_what_neither_corrupted():
    plain = [Answer(10, 8, 0, True, 0.5, 0.5, 10.0), Answer(90, 80, 0, False, 0.0, 0.0, 900.0)]
    found = summary([Answer(20, 16, 0, True, 0.25, 1.0, 30.0), Answer(20, 16, 0, True)], plain)
    assert (found["shared_distinct2"], found["shared_similarity"]) == (0.5, 2)
    assert found["shared_perplexity"] == pytest.approx(exp(30 / 20 - 10 / 10))
    assert summary(plain)["shared_perplexity"] is None


def test_the_bounds_of_a_lengthening_are_those_of_other_draws():
    def found(*words):
        sides = zip(*words, strict=True) if words else ((), ())
        ours, theirs = ([Answer(10, count, 0, True) for count in side] for side in sides)
        told = longform.beside(ours, theirs)
        return told["lengthening_low"], told["lengthening_high"]

    assert found(*[(2, 1)] * 6) == (2, 2)
    assert found(*[(2, 1)] * 5) == found() == found(*[(2, 0), (1, 1)] * 3) == (None, None)
    few, many = ([(30, 10), (10, 10), (5, 10)] * times for times in (2, 40))
    (low, high), (closer, narrower) = found(*few), found(*many)
    assert found(*few) == (low, high) and 0 < narrower - closer < (high - low) / 3
    assert closer < 1.5 < narrower


def test_lengths_apart_are_those_of_each_sides_own_uncorrupted_answers():
    ours = [Answer(10, 40, 0, True), Answer(10, 900, 0.9, True), Answer(10, 20, 0, True)] * 2
    theirs = [Answer(10, 800, 0, False), Answer(10, 10, 0, True), Answer(10, 800, 0, False)] * 2
    found = longform.beside(ours, theirs)
    assert (found["shared"], found["lengthening"], found["lengthening_apart"]) == (0, None, 3)
    assert found["lengthening_apart_low"] is None, "some draws have none of theirs"
    mended = longform.beside(ours * 4, [Answer(10, 10, 0, True)] * 24)
    assert (mended["shared"], mended["lengthening"], mended["lengthening_apart"]) == (16, 3, 3)
    assert 2 <= mended["lengthening_apart_low"] < 3 < mended["lengthening_apart_high"] <= 4


def test_the_bounds_of_quality_hold_what_was_found():
    usual = Answer(10, 9, 0, True, 0.5, 0.2, 20.0)
    sides = [(Answer(20, 9, 0, True, 0.5 + i / 20, 0.4, 30.0 + i), usual) for i in range(8)]
    found = longform.beside(*zip(*sides, strict=True))
    for key in ("shared_distinct2", "shared_perplexity"):
        assert found[f"{key}_low"] < found[key] < found[f"{key}_high"]
    assert found["shared_similarity"] == pytest.approx(2) == found["shared_similarity_low"]
    assert longform.beside(*zip(*sides[:5], strict=True))["shared_perplexity_low"] is None


def test_what_cannot_be_measured_is_said(tmp_path, capsys):
    (tmp_path / "o.json").write_text('{"settings": {}}')
    for arguments, words in (
        (["--policy", "spiral"], "there is no policy 'spiral'"),
        (["--prompts", "0"], "give at least 1"),
        (["--cap", "0"], "--cap 0: give at least 1"),
        (["--temperature", "-1"], "--temperature -1.0: input should be greater than or equal to 0\n"),
        (["--judge", "json:nothing"], "give MODULE:FUNCTION"),
        (["--data", str(tmp_path / "none.jsonl")], "cannot be read"),
        ([], "no result of this command"),
    ):
        out = tmp_path / ("o.json" if not arguments else "new.json")
        assert main(["evaluate", "longform", "--out", str(out), *arguments]) == 2
        assert words in capsys.readouterr().err
