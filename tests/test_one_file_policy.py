"""A position policy is one file: it is then in the settings, in a terminal, over HTTP, on the page, and tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from one_file import tree

POLICY = '''
from dataclasses import dataclass

import numpy as np

from backend.positions.base import FloatArray, IntArray, PositionPolicy, Span


@dataclass(frozen=True)
class EvenPlaces(PositionPolicy):
    """Beyond the recent tokens, every key stands at an even place."""

    recent: int = 200

    name = "even_places"
    label = "Even places"
    summary = "Beyond the recent tokens, two share a place."
    groups = ("near", "even")

    def spans(self, t: IntArray) -> list[Span]:
        near = np.maximum(0, t + 1 - self.recent)
        return [Span(np.zeros_like(t), near, "even"), Span(near, t + 1, "near")]

    def key_frame(self, j: IntArray, group: str) -> FloatArray:
        return np.asarray(j // 2 * 2 if group == "even" else j, dtype=np.float64)

    def describe(self, tokens: int) -> str:
        return f"Of {tokens} tokens all but {self.recent} stand at even places"
'''
LOOK = """
import contextlib, io, json, typing
from app import charts, controls, plans
from app.api import endpoint
from app.series import RunSeries
from app.share import from_query, to_query
from backend.__main__ import parser
from backend.settings import RunSettings

asked = RunSettings(prompt="p", pic="even_places", recent=7)
with contextlib.redirect_stdout(io.StringIO()) as written, contextlib.suppress(SystemExit):
    parser().parse_args(["generate", "--help"])
print(json.dumps({
    "link": from_query({"prompt": "p", "pic": "even_places"})[0]["pic"],
    "query": to_query(asked),
    "terminal": written.getvalue(),
    "http": typing.get_args(typing.get_type_hints(endpoint(None, None))["pic"]),
    "page": [option["label"] for option in controls.pic_options(None)],
    "reading": plans.POLICIES["Even places"],
    "sentence": charts.live_charts["positions"].draw([RunSeries(asked, context=[20])]).summary,
}))
"""


def test_one_file_is_seen_everywhere(tmp_path: Path):
    environment = tree(tmp_path, "positions", "even_places.py", POLICY)
    done = subprocess.run(
        [sys.executable, "-c", LOOK], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["link"] == "even_places" and "pic=even_places" in found["query"]
    assert "|even_places" in found["terminal"] and "even_places" in found["http"]
    assert found["page"][0] == "Plain" and "Even places" in found["page"]
    assert found["reading"] == {"pic": "even_places"}
    assert found["sentence"].startswith("Of 20 tokens all but 7 stand at even places; the last of 20")


def test_the_shared_tests_hold_it(tmp_path: Path):
    environment = tree(tmp_path, "positions", "even_places.py", POLICY)
    tests = ["tests/unit/test_positions.py::test_named_policies_have_the_papers_distances"]
    tests += [f"tests/unit/test_cache.py::{name}" for name in ("test_keys_are_never_rotated_twice",)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "even_places", *tests],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "8 passed" in done.stdout
