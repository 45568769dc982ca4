"""Connections over real sockets: who sends half a request, or holds many, keeps nobody else out."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import pytest
import uvicorn

from app import connections
from app.connections import bound
from app.limits import Limits

SMALL = Limits(connections=12, address_connections=8, head_seconds=1)
HEAD = b"POST /queue HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
needs_addresses = pytest.mark.skipif(sys.platform != "linux", reason="only Linux answers on all of 127.0.0.0/8")


async def lab(scope, receive, send) -> None:
    """/stream goes on until the visitor leaves; anything else is answered at once, whatever is still to come of it."""
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] != "/stream":
        return await send({"type": "http.response.body", "body": b"here"})
    await send({"type": "http.response.body", "body": b"on", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass


@contextmanager
def served(limits: Limits) -> Iterator[int]:
    """The port of a server with these limits."""
    server = uvicorn.Server(uvicorn.Config(lab, host="0.0.0.0", port=0, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    until(lambda: server.started)
    bound(server, limits)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def port() -> Iterator[int]:
    with served(SMALL) as port:
        yield port


def test_a_server_is_bounded_where_another_loop_is_installed_too(monkeypatch):
    def fails() -> None:
        raise AssertionError("uvloop was taken")

    monkeypatch.setitem(sys.modules, "uvloop", SimpleNamespace(new_event_loop=fails, Loop=fails))
    monkeypatch.setattr(uvicorn.config, "LOOP_FACTORIES", {**uvicorn.config.LOOP_FACTORIES})
    monkeypatch.setattr(connections, "LOOP_FACTORIES", uvicorn.config.LOOP_FACTORIES)
    connections.on_asyncio()
    factory = uvicorn.Config(lab, loop="auto").get_loop_factory()
    loop = factory()
    loop.close()
    assert isinstance(loop, asyncio.SelectorEventLoop)


def test_a_connection_rests_for_longer_than_clients_and_proxies_keep_theirs(port):
    # httpx gives up a connection that rested for 5 s, as uvicorn does by itself: what it sent meanwhile is lost.
    with connected(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as connection:
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        time.sleep(6)
        assert not closed(connection) and connections.REST > 60


def until(holds: Callable[[], bool], patience: float = 60) -> None:
    end = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def connected(port: int, sent: bytes = b"", address: str = "127.0.0.1") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 60, source_address=(address, 0))
    connection.sendall(sent)
    return connection


def streaming(port: int, address: str = "127.0.0.1") -> socket.socket:
    """A connection whose stream has begun."""
    connection = connected(port, b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n", address)
    assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
    return connection


def visit(port: int, address: str = "127.0.0.1") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, 60, source_address=(address, 0))
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.attacks
@pytest.mark.parametrize("sent", [b"", HEAD, b"GET / HT", b"\r\n" * 20], ids=["nothing", "half", "a line", "blank"])
def test_half_a_request_keeps_nobody_out_and_is_closed(port, sent):
    with ExitStack() as stack:
        held = [stack.enter_context(connected(port, sent)) for _ in range(60)]
        assert visit(port) == (200, b"here")
        until(lambda: sum(map(closed, held)) == len(held))
        assert visit(port) == (200, b"here")


@pytest.mark.attacks
def test_a_head_that_comes_drop_by_drop_has_no_more_time(port):
    with connected(port, HEAD) as connection:
        for number in range(1000):
            try:
                connection.sendall(f"X-{number}: 1\r\n".encode())
            except OSError:
                break
            time.sleep(0.02)
        assert closed(connection)


@pytest.mark.attacks
def test_a_head_of_any_length_is_not_waited_for(port):
    with connected(port, HEAD + b"X: ") as connection, pytest.raises(OSError):
        for _ in range(1000):
            connection.sendall(b"a" * 65_536)
        pytest.fail("64 MB of a head were taken")


@pytest.mark.attacks
def test_what_still_comes_of_an_answered_request_has_its_time_too(port):
    with connected(port, HEAD + b"\r\n" + b"x") as connection:
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        until(lambda: closed(connection))


@pytest.mark.attacks
def test_a_connection_is_used_again_and_again(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for body in (None, b"x" * 10, None, b"y" * 100_000):
        connection.request("POST" if body else "GET", "/", body)
        assert connection.getresponse().read() == b"here"
    connection.close()


@pytest.mark.attacks
def test_too_many_streams_of_one_address_are_refused_with_a_sentence(port):
    with ExitStack() as stack:
        streams = [stack.enter_context(streaming(port)) for _ in range(int(SMALL.address_connections))]
        with connected(port) as refused:
            head, _, words = refused.recv(65_536).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503") and "Too many connections" in json.loads(words)["detail"]
        streams.pop().close()
        until(lambda: not refuses(port))


def refuses(port: int) -> bool:
    try:
        return visit(port) != (200, b"here")
    except (OSError, http.client.HTTPException):
        return True


@pytest.mark.attacks
@needs_addresses
def test_one_address_keeps_no_other_out(port):
    with ExitStack() as stack:
        for _ in range(int(SMALL.address_connections)):
            stack.enter_context(streaming(port))
        assert refuses(port) and visit(port, "127.0.0.2") == (200, b"here")


@pytest.mark.attacks
@needs_addresses
def test_half_requests_of_many_addresses_keep_nobody_out(port):
    with ExitStack() as stack:
        for number in range(60):
            stack.enter_context(connected(port, HEAD, f"127.0.1.{number % 20 + 1}"))
        assert visit(port, "127.0.0.3") == (200, b"here")


@pytest.mark.attacks
def test_a_class_behind_one_address_fits():
    """Each browser holds a heartbeat, a queue's stream and a run's, and opens more for the page's scripts."""
    with served(Limits()) as port, ExitStack() as stack:
        for _ in range(60 * 3):
            stack.enter_context(streaming(port))
        for _ in range(60):
            stack.enter_context(connected(port))
        assert visit(port) == (200, b"here")
