"""The joint rate: its conditions one by one, and the same figures from the raw answers by other code."""

import json
import math
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from backend.engine import Lab
from backend.evaluation.experiments import blind, experiments, joint_rate
from backend.evaluation.experiments.joint_rate import asked
from backend.evaluation.joint import Answer, Compared, Move, answer, rate, settings_of
from backend.evaluation.joint_ranges import ranges
from backend.models import embedded
from backend.models.pool import Models
from backend.record.results import RESULTS
from backend.settings import RunSettings, Watch
from backend.splits import Prompt, fingerprint, prompts
from backend.text.lists import whole_list
from backend.text.units import tolerance

GOOD = Answer(
    kind="questions", prompt="0", target=60, produced=61, text="It rains.", ids=[1, 2, 3], reason="eos", landed=False,
    own_end=True, p_mark=0.5, p_eos=0.4, p_line=0.5, nats=3.0, similarity=0.5,
)  # fmt: skip
FOLDER = RESULTS / "joint_rate"
RECORDED = sorted(file for file in FOLDER.glob("*/*.json") if file.parent.name != "blind")


def test_a_good_answer_is_counted():
    assert GOOD.joint()


@pytest.mark.parametrize(
    "change",
    [
        {"produced": 64},
        {"produced": 56},
        {"own_end": False},
        {"p_mark": 0.049},
        {"p_mark": None, "p_line": 0.049},
        {"text": "Here are three ways to rest:\n1. Sleep.\n2. Sit."},
    ],
)
def test_each_condition_alone_undoes_it(change):
    assert not replace(GOOD, **change).joint()


@pytest.mark.parametrize("change", [{"produced": 63}, {"produced": 57}, {"p_mark": None}, {"landed": True}])
def test_what_is_within_each_condition_does_not(change):
    assert replace(GOOD, **change).joint()


def test_a_limit_may_be_undercut_and_not_passed():
    assert replace(GOOD, limit=True, produced=3).in_length and not replace(GOOD, limit=True, produced=61).in_length


@pytest.mark.parametrize(
    ("target", "unit", "most"),
    [(10, "tokens", 3), (60, "tokens", 3), (200, "tokens", 10), (10, "words", 1), (60, "words", 3),
     (50, "characters", 10), (600, "characters", 30)],
)  # fmt: skip
def test_tolerances(target, unit, most):
    assert tolerance(target, unit) == most


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("It rains.", True),
        ("Here are three ways:\n1. Walk.\n2. Swim.\n3. Run.", True),
        ("Here are 3 ways to move:\n\n- Walk.\n- Swim.", False),
        ("There are two reasons why:\n* One.", False),
        ("I have two dogs: Rex and Bo.", True),
        ("Here are five ways:", False),
    ],
)
def test_a_list_is_whole_if_it_has_what_it_announces(text, whole):
    assert whole_list(text) is whole


def test_every_prompt_is_asked_once_kinds_and_targets_by_turns():
    cases = asked("validation", None, "tokens")
    assert sorted(case.prompt.text for case in cases) == sorted(prompt.text for prompt in prompts("validation"))
    assert {case.prompt.kind for case in cases[:2]} == {"questions", "stories"}
    assert {case.goal for case in cases} == set(joint_rate.TARGETS)
    for kind in ("questions", "stories"):
        assert {case.target for case in cases if case.prompt.kind == kind} == set(joint_rate.TARGETS)


def test_targets_move_before_the_first_is_reached():
    cases = asked("validation", None, "tokens", moved=True)
    assert [case.prompt for case in cases] == [case.prompt for case in asked("validation", None, "tokens")]
    assert {(case.target, case.goal) for case in cases} == set(joint_rate.MOVES)
    assert all(20 <= case.move.at <= min(60, case.target - 10) for case in cases)
    assert len({case.move.at for case in cases}) > 10


def test_an_answer_whose_target_moves_is_held_to_the_last(lab):
    settings = settings_of("ldpe", "Name one colour.", 60, "tokens", 0, "embedded", room=120)
    found = answer(lab, Prompt("questions", "Name one colour."), settings, Move(20, 120))
    assert found.target == 120 and abs(found.produced - 120) <= 3 and found.own_end


def test_ranges_count_every_answer_and_the_share_of_a_limit_where_the_base_model_goes_beyond_it():
    def of(*answers: Answer, about: bool = True) -> dict[str, Any]:
        return {"answers": [asdict(one) for one in answers], "summary": {"test": {"about_the_prompt": about}}}

    def at(target: int, produced: int, prompt: str = "a", **more: Any) -> Answer:
        return replace(GOOD, target=target, produced=produced, prompt=prompt, **more)

    limited = [at(100, 90, "a", limit=True), at(100, 70, "b", limit=True), at(40, 40, "c", limit=True)]
    results = {
        "none": of(at(100, 130, "a"), at(100, 101, "b"), at(40, 12, "c"), about=False),
        "ldpe": of(at(10, 10), at(30, 30), at(30, 90), at(200, 200, own_end=False)),
        "mnt_ldpe": of(*limited),
    }
    lines = [line.split(" | ") for line in ranges(results, "test").splitlines() if line.startswith("| ")]
    rows = {name.removeprefix("| "): cells for name, *cells in lines}
    assert rows["ldpe"][0].startswith("2 of 3, 67 %") and rows["ldpe"][1].startswith("1 of 3, 33 %")
    assert rows["ldpe"][2:] == ["1 of 4", "– |"]
    assert rows["none"][1].startswith("– (1 of 3,") and rows["none"][2] == "2 of 3"
    assert rows["mnt ldpe"][2:] == ["–", "80 % (2 answers) |"]


def test_a_rate_has_wilsons_interval():
    z, n, k = 1.959963984540054, 40, 7
    middle, half = (k + z**2 / 2) / (n + z**2), z * math.sqrt(k * (n - k) / n + z**2 / 4) / (n + z**2)
    assert rate([True] * k + [False] * (n - k)) == pytest.approx([k / n, middle - half, middle + half])


@pytest.fixture(scope="module")
def written(lab):
    """Two answers of the base model, as a user gets them, and their prompts."""
    asked = [Prompt("questions", "Name one colour."), Prompt("questions", "What is ice?")]
    settings = [
        RunSettings(prompt=one.text, target=20, max_new_tokens=40, watch=Watch(enabled=False)) for one in asked
    ]
    return asked, [answer(lab, one, how) for one, how in zip(asked, settings, strict=True)]


def test_an_answer_holds_what_the_base_model_says_of_its_end(lab, written):
    """By transformers alone."""
    model = AutoModelForCausalLM.from_pretrained(embedded.source(), dtype=torch.bfloat16)
    tokenizer = AutoTokenizer.from_pretrained(embedded.source())
    for prompt, one in zip(*written, strict=True):
        chat = tokenizer.apply_chat_template([{"role": "user", "content": prompt.text}], add_generation_prompt=True)
        before = chat["input_ids"] if hasattr(chat, "keys") else chat
        with torch.inference_mode():
            p = torch.softmax(model(torch.tensor([[*before, *one.ids]])).logits[0].float(), -1)[len(before) - 1 :]
        assert one.text == tokenizer.decode(one.ids)
        assert one.p_eos == pytest.approx(float(p[-1, tokenizer.eos_token_id]), rel=0.1, abs=1e-4)
        stops = [i for i, token in enumerate(one.ids) if re.search(r"[.!?]", tokenizer.decode([token]))]
        if one.p_mark is not None:
            assert one.p_mark == pytest.approx(float(p[stops[-1], one.ids[stops[-1]]]), rel=0.1, abs=1e-4)
        nats = -sum(math.log(float(p[i, token])) for i, token in enumerate(one.ids))
        assert one.nats == pytest.approx(nats, rel=0.05)


def test_a_result_is_summed_up_beside_the_base_model(lab, written):
    asked, answers = written
    rows = [vars(one) for one in answers]
    compared = Compared(lab.models.load("embedded"), {"answers": rows}, [one.text for one in asked])
    found = compared.summary({"asked": 2, "answers": rows})
    assert found["asked"] == found["counted"] == 2 and found["about_the_prompt"]
    assert found["joint"] == found["all_three"][0]
    assert found["perplexity"] == found["perplexity_base"] and found["repetition"] == found["repetition_base"]
    repeated = [row | {"ids": [5] * 40, "similarity": 0.0} for row in rows]
    assert compared.summary({"asked": 2, "answers": repeated})["joint"] is None
    with pytest.raises(ValueError, match="lack 1 of the prompts"):
        Compared(lab.models.load("embedded"), {"answers": rows[:1]}, [one.text for one in asked])


def test_a_stopped_measurement_goes_on_and_leaves_none_out(in_lab, monkeypatch):
    cases = [joint_rate.Case(Prompt("questions", text), 10) for text in ("Name one colour.", "Name one number.")]
    monkeypatch.setattr(joint_rate, "asked", lambda *_: cases)
    experiment = experiments["joint_rate"]
    ask = lambda method, before: experiment.measure(experiment.Options(method=method), before, str)  # noqa: E731
    first = next(ask("none", None))
    *_, last = ask("none", first)
    assert [row["prompt"] for row in last["answers"]] == [fingerprint(case.prompt.text) for case in cases]
    assert last["answers"][0] == first["answers"][0] and last["summary"]["validation"]["counted"] == 2
    with pytest.raises(ValueError, match="another method"):
        next(ask("prompted", first))


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_recorded_figures_follow_from_the_recorded_answers(file: Path):
    """The conditions anew from text, ids and probabilities, by other code."""
    found = json.loads(file.read_text("utf-8"))
    rows, summary = found["answers"], found["summary"][found["options"]["set"]]
    assert len(rows) == found["asked"] == summary["asked"] == summary["counted"]
    assert len({(row["prompt"], row["target"]) for row in rows}) == len(rows)
    lengths = ends = joint = 0
    for row in rows:
        wide = max({"tokens": 3, "words": 1, "characters": 10}[row["unit"]], row["target"] / 20)
        error = row["produced"] - row["target"]
        length = error <= 0 if row["limit"] else -wide <= error <= wide
        p = row["p_line"] if row["p_mark"] is None else row["p_mark"]
        end = p >= 0.05 and whole_list(row["text"])
        lengths, ends, joint = lengths + length, ends + end, joint + (length and end and row["own_end"])
        assert row["unit"] != "tokens" or row["produced"] == len(row["ids"])
        assert row["reason"] == "eos" or not row["own_end"]
    for name, count in (("length", lengths), ("real_end", ends), ("all_three", joint)):
        assert summary[name][0] == pytest.approx(count / len(rows), abs=1e-5)
    kept = (
        summary["repetition"] <= 1.1 * summary["repetition_base"]
        and summary["similarity"] >= 0.97 * summary["similarity_base"]
    )
    assert summary["about_the_prompt"] is kept and (summary["joint"] == summary["all_three"][0]) is kept


def test_a_run_that_fails_is_an_error_and_no_answer(tmp_path):
    with pytest.raises(ValueError):
        lab = Lab(Models(["embedded"]))
        answer(lab, Prompt("questions", "Hm"), RunSettings(prompt="Hm", model=str(tmp_path)))


def test_verdicts_are_joined_to_what_each_text_is():
    texts = [{"prompt": f"{n}", "text": "It is so.", "is": kind} for n, kind in enumerate(blind.KINDS * 2)]
    verdicts = [{"n": n, "ended": "yes" if n in (0, 1, 4) else "no"} for n in range(6)]
    rows = blind.joined(texts, verdicts[::-1])
    assert [row["is"] for row in rows if row["ended"]] == ["method", "complete", "complete"]
    assert {kind: found[0] for kind, found in blind.summary(rows).items()} == {"method": 0.5, "complete": 1, "cut": 0}
    for wrong in (verdicts[1:], [*verdicts, verdicts[0]], [*verdicts[1:], {"n": 0, "ended": "maybe"}]):
        with pytest.raises(ValueError, match=r"verdict|yes or no"):
            blind.joined(texts, wrong)


@pytest.mark.parametrize("file", sorted((FOLDER / "blind").glob("*.json")), ids=lambda file: file.stem)
def test_recorded_verdicts_give_the_recorded_shares(file: Path):
    found = json.loads(file.read_text("utf-8"))
    for kind, (share, low, high) in found["summary"].items():
        ended = [row["ended"] for row in found["rows"] if row["is"] == kind]
        assert share == pytest.approx(sum(ended) / len(ended), abs=1e-5) and low <= share <= high
