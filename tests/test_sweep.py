"""A sweep: which runs it makes, its table that is gone on with, and its chart."""

import csv
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from backend import sweep
from backend.__main__ import main
from backend.inference import side_by_side
from backend.inference.control import Control
from backend.refused import Refused
from backend.terminal import WRONG

QUESTIONS = ["Why is the sky blue?", "=What is tea, and \"what\" is not?\nTwo lines."]


def table(path):
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def written(path, texts=QUESTIONS):
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([["id", "prompt"], *([number, text] for number, text in enumerate(texts))])
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "\ufeffprompt,more\nOne,1\n\"Two, three\",2\n"),
        ("a.jsonl", '{"prompt": "One"}\n{"prompt": "Two, three"}\n'),
        ("a.txt", "One\r\n\r\nTwo, three\n"),
    ],
)
def test_prompts_are_read_of_three_kinds_of_file(tmp_path, name, text):
    (tmp_path / name).write_bytes(text.encode())
    assert sweep.prompts(tmp_path / name) == ["One", "Two, three"]


def test_every_prompt_meets_every_method_target_and_seed():
    found = sweep.cases(QUESTIONS, ["ldpe", "mnt_ldpe"], [20, 60], [0, 1], temperature=0.5)
    assert len(found) == 16 and {settings.temperature for settings in found} == {0.5}
    assert {(s.method, s.goal, s.seed) for s in found} == {
        (method, target, seed) for method in ("ldpe", "mnt_ldpe") for target in (20, 60) for seed in (0, 1)
    }
    # What aims at nothing has one run for all targets.
    assert len(sweep.cases(QUESTIONS, ["none"], [20, 60], [0])) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"question\nOne\n", "no column named prompt"),
        (b"prompt\n", "holds no prompt"),
        (None, "cannot be read"),
        (b"prompt\n" + b"x" * 200_000, "is no CSV"),
        (b"prompt\n\xff\n", "not UTF-8"),
    ],
)
def test_a_file_without_prompts_says_what_to_do(tmp_path, text, says, capsys):
    file = tmp_path / "a.csv"
    if text is not None:
        file.write_bytes(text)
    given = ["--prompts", str(file), "--methods", "none", "--out", str(tmp_path / "t.csv")]
    assert main(["sweep", *given]) == WRONG and says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--targets", "0"], "target 0"),
        (["--methods", "nothing"], "nothing"),
        (["--out", "/no/such/folder/t.csv"], "a folder that exists"),
        (["--model", "/no/such/model", "--methods", "none"], "allow"),
    ],
)
def test_wrong_settings_are_one_sentence_and_leave_no_table(tmp_path, more, says, capsys):
    out = tmp_path / "t.csv"
    given = ["--prompts", str(written(tmp_path / "q.csv")), "--methods", "ldpe", "--out", str(out)]
    assert main(["sweep", *given, *more]) == WRONG
    message = capsys.readouterr().err
    assert says in message and message.count("\n") == 1 and not (out.exists() and table(out))


def test_the_table_is_gone_on_with_and_drawn(tmp_path, lab, capsys):
    out, page, questions = tmp_path / "t.csv", tmp_path / "t.html", written(tmp_path / "q.csv")
    given = ["--prompts", str(questions), "--methods", "ldpe", "none", "--out", str(out), "--max-new-tokens", "24"]
    assert main(["sweep", *given, "--targets", "8"]) == 0
    assert "4 runs of 4" in capsys.readouterr().out
    first = out.read_bytes()
    assert main(["sweep", *given, "--targets", "8", "16", "--chart", str(page)]) == 0
    said = capsys.readouterr().out
    assert "2 runs of 6" in said and out.read_bytes().startswith(first)
    assert '"showSendToCloud": false' in page.read_text("utf-8")
    rows = table(out)
    assert [(row["method"], row["target"]) for row in rows] == [
        ("ldpe", "8"), ("none", ""), ("ldpe", "8"), ("none", ""), ("ldpe", "16"), ("ldpe", "16")
    ]  # fmt: skip
    for row in rows:
        assert int(row["length"]) == int(row["tokens"]) and row["text"]
        assert row["error"] == ("" if row["method"] == "none" else str(int(row["length"]) - int(row["target"])))
        assert json.loads(row["settings"])["prompt"] in QUESTIONS
    # A spreadsheet would run it.
    assert {row["prompt"][0] for row in rows} == {"W", "'"}
    assert "ldpe · target 16: " in said and "none · no target: " in said
    html = page.read_text("utf-8")
    assert "no target" in html and "Plotly.newPlot" in html and "http" not in html.partition("<body>")[0]


def test_another_file_is_not_written_over(tmp_path):
    out = tmp_path / "t.csv"
    out.write_text("a,b\n1,2\n")
    with pytest.raises(Refused, match="no table of a sweep"):
        sweep.sweep(None, [], out, print)
    assert out.read_text() == "a,b\n1,2\n"


def test_a_table_of_limits_that_counted_tokens_is_not_gone_on_with(lab, tmp_path):
    out = tmp_path / "t.csv"
    asked = sweep.cases(["Why?"], ["mnt_ldpe"], [6], [0], unit="words", max_new_tokens=12)
    [row] = sweep.sweep(lab, asked, out, print)
    # A limit has no distance from it.
    assert row["unit"] == "words" and "average" not in next(sweep.summary([row]))
    said: list[str] = []
    assert sweep.sweep(lab, asked, out, said.append) == [row] and said == ["0 runs of 1"]
    out.write_text(out.read_text("utf-8").replace(",0,words,", ",0,tokens,"), "utf-8")
    with pytest.raises(Refused, match="counted tokens"):
        sweep.sweep(lab, asked, out, print)


def test_what_ends_first_comes_first_and_what_has_not_begun_never_does(monkeypatch):
    begun, received, closing = [], threading.Event(), threading.Event()
    waits = {0: closing, 2: received, 3: closing, 4: closing}

    class Pool(ThreadPoolExecutor):
        """Its rows are free once it closes."""

        def shutdown(self, *args, **kwargs):
            closing.set()
            super().shutdown(*args, **kwargs)

    monkeypatch.setattr(side_by_side, "ThreadPoolExecutor", Pool)

    def runs(number: int) -> int:
        begun.append(number)
        if number in waits:
            waits[number].wait()
        return number

    found = side_by_side.as_they_end(runs, range(5), rows=2)
    assert next(found) == (1, 1)
    received.set()
    assert next(found) == (2, 2)
    found.close()
    assert set(begun) <= {0, 1, 2, 3}


def test_answers_are_those_of_a_table_and_count_is_theirs(lab):
    methods, targets = ["ldpe", "none"], [6, 12]
    asked = sweep.cases(QUESTIONS, methods, targets, [0], max_new_tokens=16)
    assert sweep.count(QUESTIONS, methods, targets, [0]) == len(asked) == 6
    found = {i: sweep.as_row(asked[i], one) for i, one in sweep.finishes(lab, asked, Control(), 4)}
    assert [(found[i]["prompt"], found[i]["method"]) for i in range(6)] == [(s.prompt, s.method) for s in asked]
    [cells] = csv.reader(sweep.line(found[3].values()).splitlines(keepends=True))
    assert cells[:3] == [f"'{QUESTIONS[1]}", "ldpe", "6"]


def test_a_stop_leaves_out_what_had_not_ended(lab):
    asked, control = sweep.cases(["Tell a long story."], ["none"], [1], range(6), max_new_tokens=200), Control()
    control.stop()
    assert [*sweep.finishes(lab, asked, control, 2)] == []


def test_a_run_that_cannot_be_made_stops_the_others(lab):
    asked, control = sweep.cases(["Why?"], ["none"], [1], [0], model="/no/such/model"), Control()
    with pytest.raises(Refused, match="allow"):
        [*sweep.finishes(lab, asked, control, 2)]
    assert control.stopped
