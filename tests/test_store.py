"""Files of visitors lie where the lab says, no more of them than fit, and no longer than they are there."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from visiting import API, Served, Visitor, eventually, serving

from app.exports import EXPORTS
from app.shares import Shares
from app.store import LEAST, MB, VISITORS, Store

SHARES = Shares(visitor_mb=1, kept_seconds=1)
THIRD = MB * 3 // 10


@pytest.fixture
def served(held_lab):
    with serving(held_lab, SHARES) as served:
        yield served


@pytest.fixture
def store(tmp_path, monkeypatch) -> Store:
    monkeypatch.setattr("app.store.folder", lambda: tmp_path)
    return Store(SHARES)


def upload(visitor: Visitor, data: bytes, name: str = "t.json"):
    return visitor.http.post(f"{API}/upload", files={"files": (name, data)})


def exported(visitor: Visitor, number: int) -> Path:
    """Where the file of the page's export with that number lies."""
    functions = [function._id for function in visitor.served.page.fns.values() if function.name == "export"]
    body = {"fn_index": functions[number], "data": [None], "session_hash": visitor.session}
    assert visitor.http.post(f"{API}/queue/join", json=body).status_code == 200
    with visitor.reading() as messages:
        last = next(each for each in messages if each["msg"] == "process_completed")
    return Path(last["output"]["data"][0]["path"])


def test_an_export_lies_in_the_lab_s_folder_and_can_be_fetched(served: Served):
    visitor = Visitor(served)
    for number, suffix in enumerate(EXPORTS.values()):
        path = exported(visitor, number)
        assert path.suffix == suffix
        assert path.is_relative_to(served.store.folder) and visitor.session not in str(path)
        assert visitor.http.get(f"{API}/file={path}").content == path.read_bytes() != b""


def test_files_go_when_their_owner_has_left(served: Served):
    visitor = Visitor(served, cookie=True)
    with visitor.open():
        [uploaded] = upload(visitor, secrets.token_bytes(99)).json()
        made = exported(visitor, 0)
        served.store.tidy(set(served.queue.present.owners))
        assert Path(uploaded).exists() and made.exists()
    eventually(lambda: not Path(uploaded).exists() and not made.exists(), "the end of the files")


def test_a_visitor_s_oldest_files_give_way_and_no_one_else_s(store: Store):
    other = store.write("o.json", secrets.token_hex(THIRD // 2), "other")
    mine = [store.write(f"{n}.json", secrets.token_hex(THIRD // 2), "me") for n in range(5)]
    assert [Path(path).exists() for path in mine] == [False, False, True, True, True] and Path(other).exists()


def test_all_together_have_a_bound(store: Store):
    paths = [store.write("a.json", secrets.token_hex(MB * 9 // 20), f"visitor {n}") for n in range(VISITORS + 3)]
    assert [Path(path).exists() for path in paths] == [False] * 3 + [True] * VISITORS
    assert not any(path.is_dir() and not any(path.iterdir()) for path in store.folder.iterdir())


def test_files_without_end_are_bounded_however_small(store: Store):
    for number in range(200):
        store.write("a.json", str(number), "me")
    assert 0 < sum(path.is_file() for path in store.folder.rglob("*")) <= MB // LEAST


def test_a_file_of_two_owners_goes_with_the_last(store: Store):
    paths = {store.write("a.json", "the same", owner) for owner in ("a", "b")}
    [path] = map(Path, paths)
    store.shares = Shares(kept_seconds=-1)
    store.tidy({"a"})
    assert path.exists()
    store.tidy(set())
    assert not path.exists()


def test_uploads_are_bounded(served: Served):
    visitor = Visitor(served)
    refused = upload(visitor, b"x" * (SHARES.visitor_mb * MB + 1))
    assert refused.status_code == 413 and "MB" in refused.json()["detail"]
    with visitor.open():
        paths = [upload(visitor, secrets.token_bytes(THIRD)).json()[0] for _ in range(5)]
        assert [Path(path).exists() for path in paths] == [False, False, True, True, True]


def test_no_deep_link_is_kept(served: Served):
    visitor = Visitor(served)
    assert visitor.answered("show")
    for session in (visitor.session, "../x"):
        assert visitor.http.get(f"{API}/deep_link", params={"session_hash": session}).status_code == 404
    assert not [*served.store.folder.rglob("state.json")]
