"""The quick start runs from top to bottom and draws its charts."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"


@pytest.fixture(scope="module")
def outputs() -> list[Any]:
    """What all cells gave, in order; the first cell that fails raises."""
    notebook = nbformat.read(FOLDER / "01_quickstart.ipynb", as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(FOLDER)}}).execute()
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def test_the_model_writes(outputs: list[Any]):
    text = "".join(output.text for output in outputs if output.get("name") == "stdout")
    assert "embedded: 30 layers of 9 heads" in text
    assert "sky" in text and "error " in text


def test_the_mask_and_the_four_charts_are_drawn(outputs: list[Any]):
    figures = [
        output.data["application/vnd.plotly.v1+json"]
        for output in outputs if "application/vnd.plotly.v1+json" in output.get("data", {})
    ]
    assert len(figures) == 5
    assert all(figure["data"] for figure in figures)
    assert len({figure["layout"]["xaxis"]["title"]["text"] for figure in figures}) >= 4


def test_it_is_stored_without_outputs():
    notebook = nbformat.read(FOLDER / "01_quickstart.ipynb", as_version=4)
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
