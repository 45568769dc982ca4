"""Every registered experiment alike, and one that is added as one file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_origin

import gradio as gr
import pytest

from app import charts, results
from app.tabs import evidence as tab
from backend.__main__ import main
from backend.evaluation import experiments as package
from backend.evaluation import report
from backend.evaluation.card import Axis, Curve, Figure
from backend.evaluation.experiment import Experiment
from backend.evaluation.experiments import experiments
from backend.record.results import RESULTS

# What stands for a flag that must be given.
GIVEN = {"method": "ldpe", "data": "texts", "texts": "a.jsonl", "verdicts": "b.jsonl", "reader": "someone"}
TOY = '''
from pydantic import Field

from backend.evaluation.card import Axis, Card, Curve, Figure
from backend.evaluation.experiment import Case, Experiment, Flags, Plan


class Toy(Experiment):
    name, title, question = "toy", "A toy", "How large are squares?"
    files, key = ("toy.json",), ("n",)

    class Options(Flags):
        count: int = Field(2, ge=1, description="numbers to square")
        step: int = Field(1, description="from one to the next")

    def plan(self, options, say):
        say(f"{options.count} numbers")
        numbers = range(0, options.count * options.step, options.step)
        return Plan({"step": options.step}, [Case((n,), lambda n=n: [{"n": n, "square": n * n}]) for n in numbers])

    def summary(self, options, rows):
        return {"sum": sum(row["square"] for row in rows)}

    def card(self, results):
        (result,) = results.values()
        x, y = ([row[name] for row in result["rows"]] for name in ("n", "square"))
        figure = Figure("Squares", "by number", Axis("n"), Axis("n²"), [Curve("n²", x, y)], "", ("n",), [[1]])
        return Card(f"The sum is {result['sum']}.", [figure], [("The sum of squares", str(result["sum"]))])
'''


@pytest.fixture(params=list(experiments), ids=lambda each: each.name)
def experiment(request) -> Experiment:
    return request.param


def recorded(experiment: Experiment) -> dict[str, Any]:
    files = dict.fromkeys(file for pattern in experiment.files for file in sorted(RESULTS.glob(pattern)))
    return {file.relative_to(RESULTS).as_posix(): json.loads(file.read_text("utf-8")) for file in files}


def test_it_asks_one_question_in_plain_words(experiment):
    assert experiment.question.endswith("?") and experiment.question.count("?") == 1 and len(experiment.question) < 120
    assert experiment.title and experiment.files


def given(experiment: Experiment) -> dict[str, Any]:
    """The options that must be given."""
    fields = experiment.Options.model_fields
    wanted = {name: GIVEN[name] for name, field in fields.items() if field.is_required()}
    return {name: (value,) if get_origin(fields[name].annotation) is tuple else value for name, value in wanted.items()}


def test_its_options_are_its_flags(experiment, capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["evaluate", experiment.name, "--help"])
    shown = capsys.readouterr().out
    fields = experiment.Options.model_fields
    assert all(f"--{name.replace('_', '-')} " in shown.replace("\n", " ").replace("]", " ") for name in fields)
    options = experiment.Options(**given(experiment))
    assert experiment.Options.model_validate_json(options.model_dump_json()) == options
    assert not Path(experiment.file(options)).is_absolute() and experiment.file(options).endswith(".json")


def test_what_is_no_number_is_refused_with_the_name_of_its_flag(experiment, capsys):
    flags = [part for name in given(experiment) for part in (f"--{name}", GIVEN[name])]
    for name, field in experiment.Options.model_fields.items():
        if field.annotation is int:
            flag = f"--{name.replace('_', '-')}"
            assert main(["evaluate", experiment.name, *flags, flag, "many"]) == 2
            assert f"{flag} many: input should be a valid integer" in capsys.readouterr().err


def test_its_card_draws_what_was_recorded(experiment):
    there = recorded(experiment)
    if not there:
        assert experiment.name == "gpu_speed", "no result of it is in assets/results"
        return
    card = experiment.card(there)
    assert "|" in card.text and not card.text.startswith("#")
    for figure in card.figures:
        chart = json.loads(charts.encode(results.drawn(figure)))
        # The scale of the layers' colours is a trace without points.
        lines = [line for line in chart["data"] if line.get("name") and line["x"] != [None]]
        assert [line["name"] for line in lines] == [curve.name for curve in figure.curves if len(curve.x)]
        assert all(len(line["x"]) == len(line["y"]) > 0 for line in lines)
        assert all(len(row) == len(figure.columns) for row in chart["rows"]) and chart["rows"]


def test_lines_beyond_the_colours_are_dotted_and_a_ceiling_has_that_of_its_curve():
    curves = [Curve(str(i), [1], [1.0], ceiling=i == 8) for i in range(9)]
    axis = Axis("x")
    chart = results.drawn(Figure("t", "h", axis, axis, curves, "w", ("a",), [["b"]]))
    looks = [(line["line"]["color"], line["line"]["dash"]) for line in chart.data]
    assert len({*looks}) == 9 and [dash for _, dash in looks] == ["solid"] * 7 + ["dot", "dash"]
    assert looks[7][0] == looks[8][0] == looks[0][0]


def test_every_result_belongs_to_an_experiment():
    known = {name for each in experiments for name in recorded(each)}
    assert known == set(results.names())


@pytest.fixture
def toy(tmp_path, monkeypatch) -> Iterator[Path]:
    """One more file beside the experiments; the folder that its result is written to."""
    (tmp_path / "toy.py").write_text(TOY)
    assert list(experiments)
    monkeypatch.delitem(vars(experiments), "_entries")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    kept = tmp_path / "results"
    kept.mkdir()
    yield kept
    sys.modules.pop(f"{package.__name__}.toy", None)


def test_one_file_adds_an_experiment_with_its_card(toy, capsys, monkeypatch):
    with pytest.raises(SystemExit, match="0"):
        main(["evaluate", "--help"])
    assert "A toy" in capsys.readouterr().out
    out = str(toy / "toy.json")
    assert main(["evaluate", "toy", "--count", "3", "--out", out]) == 0
    result = json.loads(Path(out).read_text("utf-8"))
    assert result["rows"] == [{"n": n, "square": n * n} for n in range(3)] and result["sum"] == 5
    assert result["step"] == 1 and result["machine"]["cores"] and result["date"]
    found = {section.name: section for section in report.sections(toy)}
    assert "*How large are squares?*\n\nThe sum is 5." in found["toy"].text and found["toy"].title == "A toy"
    assert "| The sum of squares | 5 | `python -m backend evaluate toy` |" in found["headlines"].text
    monkeypatch.setattr(results, "FOLDER", toy)
    with gr.Blocks() as page:
        tab._content()
    shown = {block.elem_id: getattr(block, "value", "") for block in page.blocks.values() if block.elem_id}
    assert "The sum is 5." in shown["results-toy"]
    assert any("r-toy" in name for name in shown)


def test_a_stopped_experiment_goes_on_and_another_request_is_refused(toy, capsys):
    asked = ["evaluate", "toy", "--out", str(toy / "toy.json")]
    assert main([*asked, "--count", "1"]) == 0
    first = json.loads((toy / "toy.json").read_text("utf-8"))
    assert main([*asked, "--count", "2"]) == 0
    second = json.loads((toy / "toy.json").read_text("utf-8"))
    assert second["rows"] == [{"n": 0, "square": 0}, {"n": 1, "square": 1}]
    assert [call["date"] for call in second["resumed_from"]] == [first["date"]]
    assert main([*asked, "--step", "2"]) == 2
    assert "measured with step 1, not 2: give another --out" in capsys.readouterr().err
    assert json.loads((toy / "toy.json").read_text("utf-8")) == second
    assert main(["evaluate", "toy", "--count", "0"]) == 2
    assert "--count 0: input should be greater than or equal to 1" in capsys.readouterr().err
