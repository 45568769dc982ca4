"""Nothing is read that can hold code: no pickle, by whatever call reads one, in app and backend.

torch's own files, which trainings and readings go on from, may be read under weights_only: tensors and plain values.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
READERS = {"torch.hub.load", "pandas.read_pickle", "pd.read_pickle"}


def dotted(node: ast.expr) -> str:
    """A name with its attributes, torch.hub.load; "" for anything else."""
    if isinstance(node, ast.Attribute):
        return f"{before}.{node.attr}" if (before := dotted(node.value)) else ""
    return node.id if isinstance(node, ast.Name) else ""


def says(call: ast.Call, keyword: str, value: bool) -> bool:
    """Whether a call gives a keyword, written out, that value."""
    given = [each.value for each in call.keywords if each.arg == keyword]
    return bool(given) and all(isinstance(each, ast.Constant) and each.value is value for each in given)


def unsafe(call: ast.Call) -> bool:
    """Whether a call reads pickles, or may."""
    name = dotted(call.func)
    if name == "torch.load":
        return not says(call, "weights_only", True)
    mentions = any(each.arg == "allow_pickle" for each in call.keywords)
    return name in READERS or (mentions and not says(call, "allow_pickle", False))


def pickles(tree: ast.AST) -> Iterator[int]:
    """Lines that import what reads pickles, call it, or let numpy do so."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(alias.name.split(".")[0] in MODULES for alias in node.names):
            yield node.lineno
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names} - {"pickle.UnpicklingError"}
            if any(name.split(".")[0] in MODULES or name in READERS | {"torch.load"} for name in names):
                yield node.lineno
        elif isinstance(node, ast.Call) and unsafe(node):
            yield node.lineno


def test_no_pickle_is_read():
    files = [file for folder in ("app", "backend") for file in (ROOT / folder).rglob("*.py")]
    found = [f"{file}:{line}" for file in files for line in pickles(ast.parse(file.read_text("utf-8")))]
    assert len(files) > 150 and found == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from joblib import load", "import numpy as np\nnp.load(f, allow_pickle=True)",
        "torch.load(f)", "torch.load(f, weights_only=given)", "torch.load(f, weights_only=False)",
        "from torch import load", "np.load(f, allow_pickle=given)", "import torch.hub, dill",
    ],
)  # fmt: skip
def test_each_way_to_read_one_is_seen(source):
    assert [*pickles(ast.parse(source))]


def test_what_reads_none_passes():
    assert not [*pickles(ast.parse("import json\njson.load(f)\nnp.load(f, allow_pickle=False)\nload_file(f)"))]
