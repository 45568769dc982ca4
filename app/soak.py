"""`make soak`: visitors who come, write, cancel and send what is wrong, for minutes. The last line is one JSON.

    python -m app.soak --minutes 10 --visitors 30 --seed 0

The lab runs in a process of its own. Each text is held against what the same settings gave while nobody else was there.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from app.free_port import free_port
from backend.terminal import say

CALL = "/gradio_api/call/generate"
PROMPTS = ("Why is the sky blue?", "Tell me a story about a fox.", "Name three rivers and say where they flow.")
# One setting after another, each with every prompt.
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"method": "ldpe", "target": 24},
    {"method": "prompted", "target": 16, "landing": 2},
    {"window": 24, "sinks": 4},
    {"pic": "dynamic", "ratio": 4, "initial": 4, "recent": 16},
    {"temperature": 0.9, "seed": 3, "top_k": 40},
    {"repetition_penalty": 1.3, "probes": True},
)
ASKED = tuple({"prompt": prompt, "max_new_tokens": 32, **kind} for prompt in PROMPTS for kind in KINDS)
# What is refused, by address and body.
WRONG: tuple[tuple[str, bytes], ...] = (
    ("/gradio_api/call/v2/generate", b"{"),
    ("/gradio_api/call/v2/generate", b'{"prompt": "\\ud800", "max_new_tokens": 2}'),
    ("/gradio_api/call/v2/generate", b'{"prompt": "Why?", "max_new_tokens": -1}'),
    ("/gradio_api/queue/join", b'{"fn_index": 99999, "data": [], "session_hash": "abc"}'),
    ("/gradio_api/queue/join", b"[]"),
    ("/v1/chat/completions", b'{"messages": []}'),
    ("/v1/chat/completions", b"\xff"),
    ("/no/such/place", b"{}"),
)
# Seconds for the lab to be there, for an answer, and between two looks at its memory.
START, PATIENCE, LOOK = 600.0, 300.0, 5.0
# What a visitor does next, and how often.
DOES = {"writes": 6, "cancels": 2, "opens": 1, "errs": 2, "rests": 1}
MB = 1_000_000


@dataclass
class Findings:
    """What the visitors found. did: how often they did what; problems: what went wrong, by its kind, and the first few
    of them in words."""

    did: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    words: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str) -> None:
        """Counts what a visitor did."""
        with self.lock:
            self.did[what] += 1

    def wrong(self, kind: str, words: str) -> None:
        """Counts what went wrong."""
        with self.lock:
            self.problems[kind] += 1
            if len(self.words) < 10:
                self.words.append(f"{kind}: {words[:300]}")


class Visitor:
    """One who comes again and again. alone: the texts of `ASKED` while nobody else was there."""

    def __init__(self, address: str, seed: int, found: Findings, alone: Sequence[str] = ()) -> None:
        self.http = httpx.Client(base_url=address, timeout=PATIENCE)
        self.random, self.found, self.alone = random.Random(seed), found, alone
        # Its cookie tells it from the others at this address.
        self.http.get("/")

    def visits(self, until: float) -> None:
        """Does one thing after another until that time of `time.monotonic`."""
        while time.monotonic() < until:
            does = self.random.choices([*DOES], [*DOES.values()])[0]
            try:
                getattr(self, does)()
                self.found.count(does)
            except (httpx.HTTPError, ValueError, LookupError) as error:
                self.found.wrong("failed", f"{does}: {type(error).__name__}: {error}")
        self.http.close()

    def writes(self) -> None:
        """Reads a run to its end."""
        number = self.random.randrange(len(ASKED))
        text = self.text(number)
        if text != self.alone[number]:
            self.found.wrong("wrong text", f"{ASKED[number]}: {text!r} and not {self.alone[number]!r}")

    def text(self, number: int) -> str:
        """What is written for these settings of `ASKED`."""
        *_, last = self._updates(ASKED[number])
        return last["text"]

    def cancels(self) -> None:
        """Leaves a long run after a few updates."""
        asked = {**self.random.choice(ASKED), "max_new_tokens": 400}
        left = self.random.randrange(4)
        for _ in self._updates(asked):
            if not left:
                return
            left -= 1

    def opens(self) -> None:
        """Opens the page, as a browser does that has no cookie yet."""
        self._sound(httpx.get(f"{self.http.base_url}", timeout=PATIENCE))

    def errs(self) -> None:
        """Sends what is to be refused."""
        where, body = self.random.choice(WRONG)
        answer = self.http.post(where, content=body, headers={"Content-Type": "application/json"})
        self._sound(answer)
        if answer.is_success:
            # It was taken into the queue, and is refused there.
            with self.http.stream("GET", f"{CALL}/{answer.json()['event_id']}") as stream:
                events = [line for line in stream.iter_lines() if line.startswith("event: ")]
            if "event: error" not in events:
                self.found.wrong("accepted", f"{where} {body!r}")

    def rests(self) -> None:
        """Reads what was written."""
        time.sleep(self.random.uniform(0, 5))

    def _updates(self, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
        answer = self.http.post("/gradio_api/call/v2/generate", json=asked)
        self._sound(answer)
        answer.raise_for_status()
        with self.http.stream("GET", f"{CALL}/{answer.json()['event_id']}") as stream:
            for line in stream.iter_lines():
                if line == "event: error":
                    raise ValueError(f"{asked} was refused")
                if line.startswith("data: ") and (data := json.loads(line[6:])):
                    yield data[0]

    def _sound(self, answer: httpx.Response) -> None:
        if answer.status_code >= 500:
            self.found.wrong("5xx", f"{answer.status_code} {answer.request.url}: {answer.text}")


@contextmanager
def served(log: Path) -> Iterator[str]:
    """The address of a lab in a process of its own, which writes to `log`. RuntimeError where it does not come."""
    port = free_port()
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "app", "--port", str(port)], stdout=out, stderr=out)
    try:
        address, until = f"http://127.0.0.1:{port}", time.monotonic() + START
        while memory(address) is None:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the lab did not come: {log.read_text('utf-8', 'replace')[-2000:]}")
            time.sleep(1)
        yield address
    finally:
        process.terminate()
        process.wait()


def memory(address: str) -> int | None:
    """Bytes that the lab's process holds; None while it does not answer."""
    try:
        lines = httpx.get(f"{address}/lab/metrics", timeout=PATIENCE).text.splitlines()
    except httpx.HTTPError:
        return None
    return next((int(line.split()[-1]) for line in lines if line.startswith("length_lab_memory_bytes{")), None)


def soaked(address: str, log: Path, visitors: int, seconds: float, seed: int) -> dict[str, Any]:
    """What so many visitors found in that time.

    memory_mb: after a fifth of the time, when all is warm, at the end, and at most. log_kb: written meanwhile.
    """
    found = Findings()
    first = Visitor(address, seed, found)
    alone = [first.text(number) for number in range(len(ASKED))]
    begun, written = time.monotonic(), log.stat().st_size
    threads = [
        threading.Thread(target=Visitor(address, seed + number, found, alone).visits, args=(begun + seconds,))
        for number in range(1, visitors + 1)
    ]
    for thread in threads:
        thread.start()
    seen: list[tuple[float, int]] = []
    while any(thread.is_alive() for thread in threads):
        if (held := memory(address)) is not None:
            seen.append(((time.monotonic() - begun) / seconds, held))
        time.sleep(LOOK)
    after = [held for at, held in seen if 0.2 <= at < 0.4] or [held for _, held in seen]
    last = [held for at, held in seen if at >= 0.8] or [held for _, held in seen]
    return {
        "visitors": visitors, "seconds": round(time.monotonic() - begun), "seed": seed,
        "did": dict(found.did), "problems": dict(found.problems), "words": found.words,
        "memory_mb": {
            "after_warm_up": round(statistics.median(after) / MB), "end": round(statistics.median(last) / MB),
            "most": round(max(held for _, held in seen) / MB),
        },
        "log_kb": round((log.stat().st_size - written) / 1000, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m app.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long visitors come (default 10)")
    parser.add_argument("--visitors", type=int, default=30, help="how many at a time (default 30)")
    parser.add_argument("--seed", type=int, default=0, help="of what they do (default 0)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:
        log = Path(scratch) / "lab.log"
        with served(log) as address:
            say(f"{given.visitors} visitors at {address} for {given.minutes:g} minutes")
            report = soaked(address, log, given.visitors, 60 * given.minutes, given.seed)
    print(json.dumps(report))
    sys.exit(bool(report["problems"]))


if __name__ == "__main__":
    main()
