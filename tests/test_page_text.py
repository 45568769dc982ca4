"""Text on the page, in a real browser: a scripted model writes what is known beforehand, in every script."""

from __future__ import annotations

import pytest
import test_app_browser as on_page
from playwright.sync_api import expect
from scripted import scripted
from test_app_browser import Visitor, link

from app import page as lab_page
from app.runs import Runs
from backend.engine import Lab
from backend.models.adapters import available
from backend.models.pool import Models

address, visit = on_page.address, on_page.visit
BEYOND = "🌊𠮷𝑥👩‍👩‍👧‍👦🇫🇷"
PIECES = [f" {BEYOND[i % len(BEYOND)]} word{i}" for i in range(120)]
ANSWER = "".join(PIECES)


@pytest.fixture(scope="module")
def names(tmp_path_factory) -> list[str]:
    """A model that writes ANSWER."""
    return [str(scripted(tmp_path_factory.mktemp("beyond"), PIECES))]


@pytest.fixture(scope="module")
def runs() -> Runs:
    return Runs()


@pytest.fixture(scope="module")
def demo(names, runs) -> lab_page.Page:
    lab = Lab(Models([*names, "embedded"]))
    lab.capabilities(names[0])
    return lab_page.build(lab, available, runs)


def shown(visitor: Visitor, name: str) -> str:
    """The whole text of a response."""
    return visitor.page.evaluate("(n) => document.querySelector(`#text-${n} .ll-text`).textContent", name)


def test_text_beyond_16_bits_arrives_whole_in_a_run_its_replay_and_a_comparison(visit, names):
    visitor = visit(query=link(prompt="Write about the sea.", model=names[0], max_new_tokens=200))
    page = visitor.page
    visitor.generate()
    assert f"after {len(PIECES)} tokens" in visitor.ends()
    assert shown(visitor, "run") == ANSWER and visitor.tokens == len(PIECES)
    visitor.settles("length")
    assert f"{len(PIECES)} tokens produced" in page.inner_text("#chart-length .ll-words")
    page.click("#replay")
    page.wait_for_selector("#stop:enabled")
    assert f"after {len(PIECES)} tokens" in visitor.ends() and shown(visitor, "run") == ANSWER
    page.get_by_role("tab", name="Compare").click()
    page.fill("#c-cap input", "200")
    page.click("#c-go")
    expect(page.locator("#figures-compare .ll-message")).to_contain_text("C, plain")
    page.wait_for_selector("#c-go:not([disabled])")
    assert [shown(visitor, f"c-{name}") for name in "abc"] == [ANSWER] * 3
