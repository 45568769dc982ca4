"""Nobody can take the queue from the others: what is refused, what begins, what goes on."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import fields
from itertools import product

import pytest
from visiting import API, Served, Visitor, eventually, serving

from app import options
from app.admission import Mailboxes
from app.shares import Shares

# What is kept of a visitor is kept for as long as the slowest machine takes.
SHARES = Shares(visitor_runs=3, visitor_presses=40, address_visitors=2, kept_seconds=10**6)
# The buttons and events of the page, with what they are given.
PRESSES = {
    "halt": [0], "export": [None, ""], "show": [], "describe": ["embedded", "bf16", 0, 0, *["none"] * 4], "wrap_up": []
}  # fmt: skip


@pytest.fixture
def served(held_lab) -> Iterator[Served]:
    with serving(held_lab, SHARES) as served:
        yield served


def completes(visitor: Visitor) -> bool:
    """Whether a short run of a program goes to its end."""
    event = visitor.calls(max_new_tokens=2).json()["event_id"]
    with visitor.reading(event) as messages:
        return [*messages][-1][0]["finish"]["tokens"] == 2


@pytest.mark.attacks
def test_a_session_that_is_none_is_refused_and_the_queue_goes_on(served):
    visitor = Visitor(served)
    for session in ("", "/tmp/evil", "../evil", "/", ".", "..", "a/b", "a\\b", "a b", "x" * 65, "Λ", "a\n"):
        for name in ("generate", *PRESSES):
            for _ in range(2):
                refused = visitor.presses(name, PRESSES.get(name, ["Hi"]), session)
                assert refused.status_code == 400 and "session_hash" in refused.json()["detail"], (session, name)
        refused = visitor.http.post(f"{API}/call/generate", json={"data": ["Hi"], "session_hash": session})
        assert refused.status_code == 400
    assert completes(visitor) and visitor.answered("show")


def test_a_function_that_is_none_is_refused(served):
    visitor = Visitor(served)
    assert visitor.answered("show")
    for number in (-1, 10**6, None):
        for session in (visitor.session, "new"):
            body = {"fn_index": number, "data": [], "session_hash": session}
            assert visitor.http.post(f"{API}/queue/join", json=body).status_code == 404


def test_a_message_to_nobody_is_dropped_and_those_who_wait_lose_none(served):
    """Messages of waiting visitors are kept however many others pass."""
    waiting = Visitor(served)
    served.lab.upto(0)
    assert waiting.asks(max_new_tokens=2).status_code == 200
    gone = Visitor(served)
    assert gone.asks(max_new_tokens=2).status_code == 200
    served.queue.pending_messages_per_session.pop(gone.session)
    for number in range(SHARES.visitor_presses):
        assert waiting.presses("show", session=f"passing{number}").status_code == 200
    served.lab.free()
    with waiting.reading() as messages:
        assert next(each for each in messages if each["msg"] == "process_completed")["success"]
    assert completes(Visitor(served))


def test_half_a_sign_ends_no_stream(served):
    visitor = Visitor(served)
    number = next(function._id for function in served.page.fns.values() if function.name == "describe")
    body = {"fn_index": number, "data": ["\ud800", "bf16", 0, 0], "session_hash": visitor.session}
    kind = {"Content-Type": "application/json"}
    assert visitor.http.post(f"{API}/queue/join", content=json.dumps(body), headers=kind).status_code == 200
    with visitor.reading() as told:
        last = next(each for each in told if each["msg"] == "process_completed")
    assert not last["success"] and "Unicode" in last["output"]["error"]


@pytest.mark.parametrize("task", ["start_processing", "start_progress_updates"])
def test_a_task_of_the_queue_that_fails_is_begun_again_and_ends_nobody_s_run(held_lab, task, monkeypatch):
    from app.admission import Admission

    own, failed = getattr(Admission, task), []

    async def failing(self) -> None:
        if not failed:
            failed.append(task)
            raise RuntimeError("no")
        await own(self)

    monkeypatch.setattr(Admission, task, failing)
    with serving(held_lab) as served:
        eventually(lambda: failed)
        assert completes(Visitor(served)) and Visitor(served).answered("show")


def test_an_error_in_the_midst_of_serving_ends_no_run(served, monkeypatch):
    visitor, other = Visitor(served), Visitor(served)
    served.lab.upto(1)
    assert visitor.asks(max_new_tokens=3).status_code == 200
    with visitor.reading() as messages:
        eventually(lambda: len(served.runs))
        own, failed = served.queue.get_events, []

        def failing():
            if not failed:
                failed.append(1)
                raise KeyError("no")
            return own()

        monkeypatch.setattr(served.queue, "get_events", failing)
        assert other.answered("show") and failed
        served.lab.free()
        last = next(each for each in messages if each["msg"] == "process_completed")
    assert last["success"] and last["output"]["data"][0]["finish"]["tokens"] == 3


@pytest.mark.parametrize("kind", ["a page", "a program", "sessions without end"])
def test_one_visitor_s_runs_are_bounded_and_no_others_wait_for_it(served, kind):
    greedy = Visitor(served, cookie=kind == "a page")
    served.lab.upto(0)
    codes = []
    for number in range(12):
        if kind == "a program":
            answer = greedy.calls(max_new_tokens=5)
        else:
            greedy.session = f"{kind[0]}{number}"
            answer = greedy.asks(max_new_tokens=5)
        codes.append(answer.status_code)
    let_in = SHARES.visitor_runs * (SHARES.address_visitors if kind == "sessions without end" else 1)
    assert codes == [200] * let_in + [429] * (12 - let_in)
    assert "waiting" in answer.json()["detail"]
    served.lab.free()
    other = Visitor(served, cookie=True)
    for name, data in PRESSES.items():
        assert other.answered(name, data), name
    if kind != "sessions without end":
        assert completes(other)


def test_presses_are_answered_while_runs_take_all_places(served):
    visitors = [Visitor(served) for _ in range(SHARES.visitor_runs * SHARES.address_visitors)]
    served.lab.upto(0)
    with ExitStack() as stack:
        for visitor in visitors:
            assert visitor.asks(max_new_tokens=5).status_code == 200
            stack.enter_context(visitor.reading())
        eventually(lambda: len(served.runs))
        for name, data in PRESSES.items():
            assert Visitor(served).answered(name, data), name
        served.lab.free()


def test_what_is_never_read_is_bounded(served):
    visitor, answers = Visitor(served), []

    def too_much() -> bool:
        answers.append(visitor.presses("show"))
        return "waits to be read" in answers[-1].text

    eventually(too_much)
    let_in = [answer.status_code for answer in answers].count(200)
    assert let_in == SHARES.visitor_runs + SHARES.visitor_presses and answers[-1].status_code == 429


@pytest.mark.attacks
def test_a_class_of_sixty_behind_one_address_is_let_in(held_lab):
    held_lab.upto(0)
    with serving(held_lab) as served:
        visitors = [Visitor(served, cookie=True) for _ in range(60)]
        assert {visitor.asks(max_new_tokens=1).status_code for visitor in visitors} == {200}


def test_each_share_is_an_option():
    parser = argparse.ArgumentParser()
    options.add_to(parser, "shares", Shares)
    assert options.of(Shares, parser.parse_args([])) == Shares()
    for share in fields(Shares):
        option = f"--{share.name.replace('_', '-')}"
        assert getattr(options.of(Shares, parser.parse_args([option, "7"])), share.name) == 7
        for wrong in ("0", "-1", "1.5", "many", ""):
            with pytest.raises(SystemExit):
                parser.parse_args([option, wrong])


def test_no_run_begins_past_the_queue(served):
    runs = [function._id for function in served.page.fns.values() if function.types_generator]
    assert len(runs) == 10
    for number, route in product(runs, ("run/generate", "api/generate", "run/predict")):
        for session in ({}, {"session_hash": None}, {"session_hash": ""}, {"session_hash": "mine"}):
            answer = Visitor(served).http.post(f"{API}/{route}", json={"data": ["Hi"], "fn_index": number, **session})
            assert answer.status_code == 404 and "queue" in answer.json()["detail"]
    assert len(served.runs) == 0


def test_two_runs_of_one_program_do_not_end_each_other(held_lab):
    held_lab.upto(1)
    with serving(held_lab, concurrency=2) as served:
        program = Visitor(served)
        for seed in (0, 1):
            assert program.asks(max_new_tokens=6, seed=seed, temperature=1.0).status_code == 200
        with program.reading() as messages:
            eventually(lambda: len(served.runs) == 2)
            held_lab.free()
            ended = [each["output"]["data"][0]["finish"] for each in messages if each["msg"] == "process_completed"]
        assert [(finish["reason"], finish["tokens"]) for finish in ended] == [("cap", 6)] * 2


def test_a_reader_that_is_cut_off_takes_nothing_from_the_next():
    """Gradio deletes the messages of a session with any of its readers, while another may wait for them already."""
    messages = Mailboxes(session="what was asked for since")
    del messages["session"]
    assert messages["session"] == "what was asked for since"
