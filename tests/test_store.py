"""Files of visitors lie where the lab says, no more of them than fit, and no longer than they are there."""

from __future__ import annotations

import secrets
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


@contextmanager
def full() -> Iterator[None]:
    """No file may grow beyond a few bytes, as where the disk is full."""
    resource = pytest.importorskip("resource", reason="Windows has no bound on a file's size")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (99, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def form(name: str, data: bytes) -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'
    return head.encode() + data + b"\r\n--b--\r\n"


def upload(visitor: Visitor, data: bytes, name: str = "t.json"):
    return visitor.http.post(f"{API}/upload", files={"files": (name, data)})


def exported(visitor: Visitor, number: int) -> Path:
    """Where the file of the page's export with that number lies."""
    functions = [function._id for function in visitor.served.page.fns.values() if function.name == "export"]
    body = {"fn_index": functions[number], "data": [None, ""], "session_hash": visitor.session}
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


def test_what_there_is_no_room_for_leaves_nothing_and_what_is_there_stays_whole(store: Store):
    text = secrets.token_hex(THIRD // 2)
    with full(), pytest.raises(OSError):
        store.write("a.json", text, "me")
    assert list(store.folder.iterdir()) == []
    path = Path(store.write("a.json", text, "me"))
    with full():
        assert store.write("a.json", text, "other") == str(path)
    assert path.read_text() == text and files(store.folder) == [path]


def test_an_upload_without_room_is_told_in_a_sentence_and_leaves_nothing(served: Served):
    visitor = Visitor(served)
    with visitor.open():
        before = files(served.store.folder)
        with full():
            refused = upload(visitor, secrets.token_bytes(THIRD))
        assert refused.status_code == 507 and "no room" in refused.json()["detail"]
        eventually(lambda: files(served.store.folder) == before, "the end of what came")
        assert upload(visitor, secrets.token_bytes(THIRD)).status_code == 200


def test_an_upload_that_is_cut_off_leaves_nothing(served: Served):
    before = files(served.store.folder)
    host, port = served.address.removeprefix("http://").split(":")
    head = f"POST {API}/upload HTTP/1.1\r\nHost: {host}\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"{head}Content-Length: {THIRD}\r\n\r\n".encode() + form("t.json", b"x" * 99_999)[:-20])
        eventually(lambda: len(files(served.store.folder)) > len(before), "the upload's beginning")
    eventually(lambda: files(served.store.folder) == before, "the end of what came")


def test_a_form_that_is_refused_leaves_nothing(served: Served, monkeypatch):
    written: list[Path] = []

    def file(**given: Any) -> Any:
        made = tempfile.NamedTemporaryFile(**given)
        written.append(Path(made.name))
        return made

    monkeypatch.setattr("gradio.route_utils.NamedTemporaryFile", file)
    visitor = Visitor(served)
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    for where in ("upload", "component_server"):
        for sent in (form("..", b"{}"), form("t.json", b"{}")[:-9]):
            visitor.http.post(f"{API}/{where}", content=sent, headers=kind)
    assert len(written) == 4
    eventually(lambda: not any(path.exists() for path in written), "their end")


def test_uploads_that_come_at_the_same_time_are_bounded(served: Served):
    host, port = served.address.removeprefix("http://").split(":")
    head = f"POST {API}/upload HTTP/1.1\r\nHost: {host}\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    visitor = Visitor(served)
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"{head}Content-Length: {MB - THIRD}\r\n\r\n".encode() + form("t.json", b"x"))
        eventually(lambda: upload(visitor, secrets.token_bytes(2 * THIRD)).status_code == 429, "a refusal")
        other = Visitor(served, cookie=True)
        assert upload(other, secrets.token_bytes(2 * THIRD)).status_code == 200
    eventually(lambda: upload(visitor, secrets.token_bytes(2 * THIRD)).status_code == 200, "a place")


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
