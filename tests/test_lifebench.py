"""LIFEBench's tasks: who is asked, in what words, and what its card makes of the answers."""

from __future__ import annotations

import json
import re

import pytest
from reading import loaded

from backend.evaluation.experiments import experiments
from backend.evaluation.experiments.lifebench import AT_MOST, BASE, CAP, FILE, WORDS, Task, settings_of, tasks, ways
from backend.methods import methods
from backend.refused import Refused

ASK = "[Requirement] Your response must be {word_count_type} {word_count} words long."


def row(name: str, task: int, words: int, produced: int, well: bool = True, reason: str = "eos", control="equal to"):
    return {
        "row": name, "words": words, "task": task, "category": "qa", "control": control, "produced": produced,
        "tokens": 2 * produced, "reason": reason, "own_end": reason == "eos", "real_end": well, "p_eos": 0.1,
        "text": "",
    }  # fmt: skip


def lines_of(text: str) -> dict[str, list[str]]:
    """The cells of every table's rows by their first one; of a name that comes again, the first."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("| "):
            name, *cells = line.strip("| ").split(" | ")
            found.setdefault(name, cells)
    return found


def test_every_method_that_aims_at_a_length_is_asked_and_a_limit_as_one():
    aims = {method.name: method.bound for method in methods if method.causal and method.bound}
    asked = ways()
    assert aims.keys() | {BASE, AT_MOST} <= asked.keys()
    assert all((asked[name].control == "at most") == (bound == "limit") for name, bound in aims.items())
    assert {way.method for way in asked.values()} == {*aims, "none"}


def test_the_prompt_says_the_number_and_the_run_aims_at_it():
    task = Task(7, "qa", f"Why? {ASK}")
    assert task.asked("at most", 64) == "Why? [Requirement] Your response must be at most 64 words long."
    steered, limited = (settings_of(ways()[name], "Why?", 64, "embedded") for name in ("ldpe", "mnt_orpe"))
    assert (steered.goal, steered.unit, steered.max_new_tokens) == (64, "words", CAP)
    assert (limited.goal, limited.unit, limited.max_new_tokens) == (64, "words", CAP)


def test_tasks_that_the_model_cannot_read_are_left_out_and_counted(tmp_path, embedded):
    rows = [
        {"id": number, "category": "qa", "task": f"{'word ' * length}{ASK}"}
        for number, length in enumerate((1, 9_000, 100))
    ]
    (tmp_path / FILE).write_text("\n".join(map(json.dumps, rows)))
    said: list[str] = []
    assert [task.id for task in tasks(tmp_path, embedded, said.append)] == [0, 2]
    assert said == ["lifebench: 3 tasks asked for, 2 counted; 1 not: whose input has more than 7,168 tokens"]


def test_the_card_counts_every_answer_and_compares_those_that_were_asked_alike():
    answers = [row(BASE, task, words, 2 * words) for words in WORDS for task in range(8)]
    answers += [row("ldpe", task, words, words, well=task < 2) for words in WORDS for task in range(8)]
    for one in answers:
        one["text"] = "so it is and " * 4 if one["row"] == "ldpe" else ""
    limited = {"control": "at most"}
    answers += [row(AT_MOST, task, words, words, reason="cap", **limited) for words in WORDS for task in range(8)]
    answers += [row("mnt_ldpe", task, words, words + 1, **limited) for words in WORDS[:1] for task in range(8)]
    result = {"tasks": [*range(8)], "cap": CAP, "answers": answers}
    card = experiments["lifebench"].card({"lifebench.json": result})
    found = lines_of(card.text)
    count, score, more, apart, deviation, well, both, cut, repeated = found["ldpe"]
    assert (count, score, apart, deviation, cut, repeated) == ("48", "100", "higher", "0 %", "0 %", "69 %")
    assert more == "86.5 (86.5 to 86.5; 8 tasks)" and both == well and well.startswith("25 % (0 % to ")
    assert found["none"][1:4] == ["13.5", "–", "–"] and found["none"][6].startswith("0 %")
    assert found["none at most"][1] == "100" and found["none at most"][7] == "100 %"
    # A row that is not whole has no score over all numbers of words, and is compared with nothing.
    assert found["mnt ldpe"][:5] == ["8", "–", "–", "–", "–"] and found["mnt ldpe"][6].startswith("0 %")
    assert re.search(r"\| ldpe \| 100( \| 100){5} \|", card.text) and "| mnt ldpe | 88.2 | – |" in card.text


def test_a_model_that_can_read_none_of_the_tasks_is_refused(tmp_path, tiny):
    (tmp_path / FILE).write_text(json.dumps({"id": 1, "category": "qa", "task": ASK}))
    with pytest.raises(Refused, match="can read none of the tasks"):
        tasks(tmp_path, loaded(tiny("llama")), str)


@pytest.mark.scale
def test_answers_are_measured_and_gone_on_with(tmp_path, in_lab):
    rows = [{"id": number, "category": "qa", "task": f"Name {number} rivers. {ASK}"} for number in (2, 3)]
    (tmp_path / FILE).write_text("\n".join(map(json.dumps, rows)))
    experiment = experiments["lifebench"]
    options = experiment.Options(data=tmp_path, row=("exp_decay",))
    first = json.loads(json.dumps(next(experiment.measure(options, None, str))))
    assert [(one["task"], one["words"], one["row"]) for one in first["answers"]] == [
        (2, 16, "exp_decay"), (3, 16, "exp_decay"),
    ]  # fmt: skip
    whole = json.loads(json.dumps([*experiment.measure(options, first, str)][-1]))
    assert whole["answers"][:2] == first["answers"] and len(whole["answers"]) == 2 * len(WORDS)
