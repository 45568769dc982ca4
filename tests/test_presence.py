"""Nothing is computed for who is gone, nothing kept of who left, and who reads slowly gets the newest."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from held import Held
from visiting import API, Served, Visitor, eventually, serving

from app import presets
from app.sessions import Session
from app.shares import Shares
from backend.record.trace import Trace

SHARES = Shares(kept_seconds=1, lost_seconds=1, closed_seconds=1)
MANY = {"prompt": "Write a very long story.", "max_new_tokens": 200, "repetition_penalty": 1.3}


@pytest.fixture(scope="module")
def everybody(held_lab: Held) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.admission.TIDYING", 0.1)
        with serving(held_lab, SHARES) as served:
            yield served


@pytest.fixture
def served(everybody: Served) -> Iterator[Served]:
    """The page with nobody there; its runs write as far as a test lets them."""
    eventually(lambda: not everybody.queue._seen, "the end of all sessions before")
    yield everybody
    everybody.lab.free()


def by_event(visitor: Visitor) -> AbstractContextManager[Any]:
    return visitor.reading(visitor.calls(**MANY).json()["event_id"])


def by_session(visitor: Visitor) -> AbstractContextManager[Any]:
    assert visitor.asks(**MANY).status_code == 200
    return visitor.reading()


def by_page(name: str) -> Callable[[Visitor], AbstractContextManager[Any]]:
    """The page's own event of that name, as it is set when the page opens, in a browser whose heartbeat is lost."""

    def ask(visitor: Visitor) -> AbstractContextManager[Any]:
        function = next(each for each in visitor.served.page.fns.values() if each.name == name)
        values = [getattr(block, "value", None) for block in function.inputs]
        assert visitor.presses(name, values).status_code == 200
        return visitor.reading()

    return ask


ASKED = {"event": by_event, "session": by_session} | {name: by_page(name) for name in ("write", "compare")}


@pytest.mark.parametrize("written", [0, 3])
@pytest.mark.parametrize("way", ASKED)
def test_a_run_ends_within_a_step_when_its_reader_is_gone(served: Served, way, written):
    """written: tokens before that; with 0 the prompt is being read."""
    served.lab.upto(written)
    with ASKED[way](Visitor(served)):
        eventually(lambda: len(served.runs), "the run")
        [run] = served.runs._runs
        eventually(lambda: not written or (run.view and len(run.view.series) == written), "its tokens")
    eventually(lambda: run.control.stopped and not len(served.runs), "its end")
    # A page has time to come back, in which a prompt may be read to its first token.
    most = max(written, 1) if way in ("write", "compare") else written
    assert (len(run.view.series) if run.view else 0) <= most
    served.lab.free()
    event = Visitor(served).calls(max_new_tokens=2).json()["event_id"]
    with Visitor(served).reading(event) as messages:
        assert [*messages][-1][0]["finish"]["tokens"] == 2


def test_a_long_reading_ends_when_its_reader_is_gone(served: Served):
    with by_page("start")(Visitor(served)):
        eventually(lambda: len(served.runs), "the reading")
        [run] = served.runs._runs
    eventually(lambda: run.control.stopped and not len(served.runs), "its end")


def test_a_page_that_comes_back_in_time_takes_up_its_run(held_lab):
    with serving(held_lab, Shares(lost_seconds=600)) as served:
        held_lab.upto(1)
        before, now, stranger = Visitor(served), Visitor(served), Visitor(served)
        with by_page("write")(before):
            eventually(lambda: len(served.runs), "the run")
        [run] = served.runs._runs
        eventually(lambda: before.session in served.queue._ending, "the loss of its page")
        assert not run.control.stopped
        assert stranger.answered("take_up", ["guessed"]) and run.session == before.session
        assert now.presses("take_up", [run.stream.name]).status_code == 200
        with now.reading() as messages:
            eventually(lambda: run.session == now.session, "the page that has it now")
            served.queue._ending[before.session] = 0
            served.queue._tidy()
            assert not run.control.stopped
            held_lab.free()
            assert next(each["success"] for each in messages if each["msg"] == "process_completed")
        assert run.view.trace.finish.reason != "stopped"


def test_a_page_that_was_closed_has_less_time(held_lab):
    with serving(held_lab, Shares(lost_seconds=600, closed_seconds=1)) as served:
        held_lab.upto(1)
        page = Visitor(served)
        with by_page("write")(page):
            eventually(lambda: len(served.runs), "the run")
            [run] = served.runs._runs
            assert page.http.post(f"/lab/here/{page.session}").json() is True
            assert page.http.post("/lab/here/nobody").json() is False
        assert page.http.post(f"/lab/left/{page.session}").status_code == 204
        eventually(lambda: run.control.stopped and not len(served.runs), "its end")


def test_a_run_that_nobody_reads_computes_nothing_and_is_let_go(held_lab):
    with serving(held_lab, Shares(kept_seconds=1, unread_seconds=1)) as served:
        event = Visitor(served).calls(**MANY).json()["event_id"]
        program, page = served.queue.session_of(event), Visitor(served)
        with page.open():
            assert page.asks(**MANY).status_code == 200
            assert Visitor(served).answered("show")
            assert len(served.runs) == 0
            eventually(lambda: not served.queue.event_ids_to_events, "the end of what nobody reads")
            eventually(lambda: program not in served.queue.pending_event_ids_session, "that nothing is known of it")
            assert not served.queue.pending_event_ids_session[page.session]
        with Visitor(served).reading(event) as messages:
            assert "404" in next(messages)


def test_a_run_begins_when_it_is_read_and_those_behind_it_need_not_wait(served: Served):
    first = Visitor(served)
    event = first.calls(max_new_tokens=3).json()["event_id"]
    second = Visitor(served)
    with second.reading(second.calls(max_new_tokens=2).json()["event_id"]) as messages:
        assert [*messages][-1][0]["finish"]["tokens"] == 2
    with first.reading(event) as messages:
        assert [*messages][-1][0]["finish"]["tokens"] == 3


def test_who_reads_while_the_lab_ends_is_told_so(held_lab):
    with serving(held_lab) as served:
        held_lab.upto(0)
        with by_event(Visitor(served)) as messages:
            eventually(lambda: len(served.runs), "the run")
            served.page.close()
            assert next(each for each in messages if isinstance(each, str)) == "Server stopped unexpectedly."


def test_who_reads_slowly_gets_the_newest_and_loses_nothing(served: Served):
    visitor = Visitor(served)
    served.queue.present.readers[visitor.session] += 1
    assert visitor.asks(max_new_tokens=60, repetition_penalty=1.3, probes=True).status_code == 200
    messages = served.queue.pending_messages_per_session[visitor.session]
    eventually(lambda: len(served.runs), "the run")
    eventually(lambda: not len(served.runs), "the end of the run, which waits for no reader")
    assert sum(message.msg == "process_generating" for message in [*messages._queue]) == 2
    with visitor.reading() as messages:
        last = next(each for each in messages if each["msg"] == "process_completed")
    [final] = last["output"]["data"]
    assert [step["index"] for step in final["steps"]] == [*range(1, 61)] and final["finish"]["tokens"] == 60
    eventually(lambda: served.queue.present.readers[visitor.session] == 1, "the end of its reading")
    served.queue.present.readers.clear()


def shown(visitor: Visitor) -> None:
    with visitor.open():
        visitor.http.get("/")
        assert visitor.answered("show")


def loaded(visitor: Visitor) -> None:
    data = presets.PRESETS[0].file.read_bytes()
    with visitor.open():
        [path] = visitor.http.post(f"{API}/upload", files={"files": ("t.json.gz", data)}).json()
        file = {"path": path, "meta": {"_type": "gradio.FileData"}, "orig_name": "t.json.gz"}
        assert visitor.answered("loaded", [file])


def called(visitor: Visitor) -> None:
    with visitor.reading(visitor.calls(max_new_tokens=2, probes=True).json()["event_id"]) as messages:
        assert [*messages][-1][0]["finish"]["tokens"] == 2


def cut(visitor: Visitor) -> None:
    with by_event(visitor) as messages:
        next(messages)


def deaf(visitor: Visitor) -> None:
    with visitor.reading(visitor.calls(max_new_tokens=3, probes=True).json()["event_id"]):
        eventually(lambda: not visitor.served.queue.event_ids_to_events, "the end of the run")


def unheard(visitor: Visitor) -> None:
    assert visitor.presses("show").status_code == 200
    for route in ("run/preview", "run/generate"):
        named = {"session_hash": visitor.session + route[-3:]}
        assert visitor.http.post(f"{API}/{route}", json={"data": []} | named).status_code >= 400
    component = next(iter(visitor.served.page.blocks))
    served = {"data": None, "component_id": component, "session_hash": visitor.session + "c", "fn_name": "none"}
    assert visitor.http.post(f"{API}/component_server", json=served).status_code == 404


def alive() -> int:
    """How many sessions and runs are held in memory by whatever may hold them."""
    gc.collect()
    return sum(type(each) in (Session, Trace) for each in gc.get_objects())


@pytest.mark.attacks
@pytest.mark.parametrize("visit", [shown, loaded, called, cut, deaf, unheard])
def test_nothing_is_kept_of_who_left(served: Served, visit):
    before = alive()
    for _ in range(4):
        visit(Visitor(served))
    queue, page = served.queue, served.page
    kept = (
        page.state_holder.session_data,
        page.state_holder.time_last_used,
        page.pending_streams,
        page.pending_diff_streams,
        page.app.iterators,
        queue.pending_messages_per_session,
        queue.pending_event_ids_session,
        queue.event_ids_to_events,
        queue.event_analytics,
        queue._seen,
        queue._nameless,
        served.runs._runs,
    )
    eventually(lambda: not any(map(len, kept)) and not queue.present.sessions, "the end of all sessions")
    eventually(lambda: alive() <= before, "the end of all that they had")


def test_a_page_that_comes_back_finds_what_it_had(held_lab):
    with serving(held_lab) as served:
        visitor = Visitor(served)
        loaded(visitor)
        served.queue._tidy()
        with visitor.open():
            state = next(value for value in served.page.state_holder[visitor.session].state_data.values() if value)
            assert isinstance(state, Trace)


def test_a_session_that_is_there_is_never_forgotten_for_others(served: Served, monkeypatch):
    monkeypatch.setattr("app.admission.PLACES", 2)
    here = Visitor(served)
    with here.open():
        assert here.answered("show")
        for _ in range(5):
            assert Visitor(served).presses("show").status_code == 200
        eventually(lambda: len(served.queue._seen) == 1, "the end of the others")
        assert here.session in served.page.state_holder.session_data
