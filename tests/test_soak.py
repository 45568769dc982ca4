"""The soak sees what it is for: a text that is not the one alone, what is refused wrongly or not at all, memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from held import Held
from visiting import Served, serving

from app import soak
from app.soak import Findings, Visitor

SHORT = ({"prompt": "Why?", "max_new_tokens": 3},)


@pytest.fixture(scope="module")
def served(held_lab: Held) -> Iterator[Served]:
    with serving(held_lab) as served:
        yield served


@pytest.fixture
def found(monkeypatch) -> Findings:
    monkeypatch.setattr(soak, "ASKED", SHORT)
    return Findings()


def test_a_text_that_is_another_alone_is_found(served: Served, found: Findings):
    visitor = Visitor(served.address, 1, found)
    visitor.alone = [visitor.text(0)]
    visitor.writes()
    visitor.cancels()
    visitor.opens()
    assert visitor.alone[0] and not found.problems
    visitor.alone = ["Another."]
    visitor.writes()
    assert found.problems == {"wrong text": 1} and "Another." in found.words[0]


@pytest.mark.parametrize("wrong", soak.WRONG)
def test_what_is_wrong_is_refused_and_is_no_fault(served: Served, found: Findings, monkeypatch, wrong):
    monkeypatch.setattr(soak, "WRONG", (wrong,))
    Visitor(served.address, 1, found).errs()
    assert not found.problems


def test_what_is_right_but_expected_to_be_refused_is_found(served: Served, found: Findings, monkeypatch):
    monkeypatch.setattr(soak, "WRONG", (("/gradio_api/call/v2/generate", b'{"prompt": "Why?", "max_new_tokens": 2}'),))
    Visitor(served.address, 1, found).errs()
    assert found.problems == {"accepted": 1}


def test_memory_is_that_of_the_labs_process(served: Served):
    assert (soak.memory(served.address) or 0) > 10**8
    assert soak.memory("http://127.0.0.1:1") is None
