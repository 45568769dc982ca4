"""The notebooks run from top to bottom, draw their charts, and what they claim is so."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def outputs_of(name: str) -> list[Any]:
    """What all cells gave, in order; the first cell that fails raises."""
    notebook = nbformat.read(FOLDER / name, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(FOLDER)}}).execute()
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def printed(outputs: list[Any]) -> str:
    return "".join(output.text for output in outputs if output.get("name") == "stdout")


def figures(outputs: list[Any]) -> list[Any]:
    kind = "application/vnd.plotly.v1+json"
    return [output.data[kind] for output in outputs if kind in output.get("data", {})]


@pytest.fixture(scope="module")
def outputs() -> list[Any]:
    return outputs_of("01_quickstart.ipynb")


def test_the_model_writes(outputs: list[Any]):
    text = printed(outputs)
    assert "embedded: 30 layers of 9 heads" in text
    assert "travel" in text and "error " in text


def test_the_mask_and_the_four_charts_are_drawn(outputs: list[Any]):
    drawn = figures(outputs)
    assert len(drawn) == 5
    assert all(figure["data"] for figure in drawn)
    assert len({figure["layout"]["xaxis"]["title"]["text"] for figure in drawn}) >= 4


def test_lengths_are_asked_for_steered_moved_and_branched():
    outputs = outputs_of("02_length_control.ipynb")
    text = printed(outputs)
    rows = re.findall(r"^(.+), (\d+) asked: (\d+) tokens, (ends|is cut)", text, re.M)
    assert len(rows) == 9 and len(figures(outputs)) == 1
    off = {(name, end): abs(int(tokens) - int(target)) for name, target, tokens, end in rows}
    assert max(miss for (name, _), miss in off.items() if name.startswith("countdown")) <= 4
    assert max(miss for (name, _), miss in off.items() if name == "asked") > 20
    assert {end for name, *_, end in rows if name == "countdown, landing"} == {"ends"}
    assert re.search(r"40 at token 20: \d+ tokens, error [+-][0-3]\n", text)
    first, other = re.findall(r"^with '.+?': (.+)$", text, re.M)
    assert first != other and first[:15] == other[:15]


@pytest.mark.scale
def test_a_text_is_read_far():
    outputs = outputs_of("03_reading_far.ipynb")
    text = printed(outputs)
    found = {name: float(number) for name, number in re.findall(r"^(.+): perplexity ([\d.]+), attention", text, re.M)}
    assert found["plain"] < found["Λ"] < found["window without sinks"] and len(figures(outputs)) == 1
    ends = re.findall(r"perplexity ([\d.]+) of tokens 512 to 1,024, ([\d.]+) of the last 512", text)
    (before, broken), (under, whole) = ([float(number) for number in row] for row in ends)
    assert broken > 3 * before and whole < 2 * under


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_stored_without_outputs(name: str):
    notebook = nbformat.read(FOLDER / name, as_version=4)
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
