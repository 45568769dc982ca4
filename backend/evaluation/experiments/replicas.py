"""What it costs to let replicas on Ray Serve write, and what a visitor sees of one that dies.

    python -m backend evaluate replicas

All times of processors are of one thread an engine: of this process, and of all that Ray began.
"""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psutil
import torch
from pydantic import Field

from backend.engine import Lab
from backend.evaluation.card import Card
from backend.evaluation.experiment import Experiment, Flags, Result, Results, Say
from backend.evaluation.experiments.visitors import runs
from backend.evaluation.markdown import table
from backend.inference.control import Control
from backend.models.pool import Models
from backend.serving.backend import EngineBackend
from backend.serving.deployment import Deployment
from backend.serving.local import LocalBackend
from backend.settings import RunSettings, Watch
from backend.steps import Finish, Step

if TYPE_CHECKING:
    from backend.serving.ray_serve import RayServeBackend

# Tokens after which a replica is killed, and the first that is asked for something.
SOON = 10


class Replicas(Experiment):
    name = "replicas"
    title = "Replicas on Ray Serve"
    question = "What does it cost to let two processes write, and what is lost when one of them is killed?"
    order = 56
    files = ("replicas.json",)
    needs = ("ray",)
    rows = "kills"

    class Options(Flags):
        rounds: int = Field(6, ge=1, description="of each comparison, by turns")
        kills: int = Field(10, ge=1, description="of a replica that writes")
        runs: int = Field(20, ge=1, description="under way when a replica is killed")
        visitors: int = Field(30, ge=1, description="that write at once")
        written: int = Field(80, ge=30, description="tokens of each run")

    def measure(self, options: Options, before: Result | None, say: Say) -> Iterator[dict[str, Any]]:
        from backend.serving import ray_serve

        torch.set_num_threads(1)
        local = LocalBackend(Lab(Models(["embedded"])))
        ray = ray_serve.begin(["embedded"], Deployment(replicas=2, most_replicas=2))
        try:
            yield from _measured(local, ray, options, say)
        finally:
            ray_serve.end()

    def card(self, results: Results) -> Card:
        (result,) = results.values()
        return Card(f"{_words(result)}\n\n{table(['what', 'how much'], _rows(result))}")


def _measured(
    local: LocalBackend, ray: RayServeBackend, options: Replicas.Options, say: Say
) -> Iterator[dict[str, Any]]:
    result: dict[str, Any] = options.model_dump(exclude={"out"})
    for backend in (local, ray):
        _writes(backend, runs(options.runs, 2))
    steps = (
        ("cost", options.rounds, lambda number: _cost(local, ray, options.written, number)),
        ("class", options.rounds, lambda number: _class(local, ray, options, number)),
        ("steered", options.rounds, lambda number: _steered(ray)),
        ("kills", options.kills, lambda number: _killed(ray, options, number)),
    )
    for name, count, measured in steps:
        result[name] = []
        for number in range(count):
            result[name].append(measured(number))
            say(f"{name} {number + 1}: {result[name][-1]}")
            yield result


def _cpu() -> float:
    """Seconds of processors that this process and all that it began have taken."""
    own = psutil.Process()
    spent = 0.0
    for process in (own, *own.children(recursive=True)):
        try:
            used = process.cpu_times()
        except psutil.Error:
            continue
        spent += used.user + used.system
    return spent


def _writes(backend: EngineBackend, asked: Sequence[RunSettings]) -> int:
    """Tokens of runs written at once."""
    with ThreadPoolExecutor(len(asked)) as pool:
        return sum(pool.map(lambda settings: sum(isinstance(each, Step) for each in backend.stream(settings)), asked))


def _spent(backend: EngineBackend, asked: Sequence[RunSettings]) -> float:
    """Milliseconds of processors a token."""
    before = _cpu()
    tokens = _writes(backend, asked)
    return 1000 * (_cpu() - before) / tokens


def _by_turns(local: EngineBackend, ray: EngineBackend, asked: Sequence[RunSettings], number: int) -> dict[str, float]:
    order = (("local", local), ("replicas", ray))
    return {name: _spent(backend, asked) for name, backend in order[:: -1 if number % 2 else 1]}


def _cost(local: EngineBackend, ray: EngineBackend, written: int, number: int) -> dict[str, float]:
    """One visitor, probes on."""
    asked = RunSettings(prompt="Why is the sky blue?", max_new_tokens=2 * written, method="ldpe", target=400)
    return _by_turns(local, ray, [asked], number)


def _class(local: EngineBackend, ray: EngineBackend, options: Replicas.Options, number: int) -> dict[str, float]:
    """Many visitors at once."""
    return _by_turns(local, ray, runs(options.visitors, options.written), number)


def _steered(ray: EngineBackend) -> dict[str, float]:
    """A run that is given another target, then stopped."""
    control, wanted = Control(), list[int | None]()
    settings = RunSettings(prompt="Why is the sky blue?", max_new_tokens=600, method="ldpe", target=500)
    tokens, stopped = 0, 0.0
    for event in ray.stream(settings, control):
        if not isinstance(event, Step):
            break
        wanted.append(event.wanted)
        if event.index == SOON:
            control.retarget(400)
        if event.index == 3 * SOON:
            tokens, stopped = event.index, time.perf_counter()
            control.stop()
    seconds = time.perf_counter() - stopped
    return {"retargeted": wanted.index(400) - SOON, "stopped": len(wanted) - tokens, "stop_seconds": seconds}


class _Followed:
    """A run that is followed while a replica is killed: its tokens, and when each came."""

    def __init__(self, backend: EngineBackend, settings: RunSettings) -> None:
        self.backend, self.settings = backend, settings
        self.tokens: list[int] = []
        self.came: list[float] = []
        self.finish: Finish | None = None
        self.thread = threading.Thread(target=self._follow)

    def _follow(self) -> None:
        for event in self.backend.stream(self.settings):
            if isinstance(event, Step):
                self.tokens.append(event.token)
                self.came.append(time.perf_counter())
            elif isinstance(event, Finish):
                self.finish = event

    def pause(self, killed: float) -> float:
        """Seconds between the last token before the replica was killed, and the first one of another."""
        before = max((when for when in self.came if when <= killed), default=killed)
        after = next((when for when in self.came if when > killed + 0.1), before)
        return after - before

    @property
    def moved(self) -> bool:
        """Whether it went on at another replica."""
        return self.finish is not None and any("another replica" in note for note in self.finish.notes)


def _followed(backend: EngineBackend, asked: Sequence[RunSettings], kill: bool) -> tuple[list[_Followed], float]:
    followed = [_Followed(backend, settings) for settings in asked]
    for each in followed:
        each.thread.start()
    killed = 0.0
    if kill:
        while any(len(each.tokens) < SOON for each in followed):
            time.sleep(0.02)
        process = max(backend.status(), key=lambda status: status.writing).process
        killed = time.perf_counter()
        os.kill(process, signal.SIGKILL)
    for each in followed:
        each.thread.join()
    return followed, killed


def _killed(ray: EngineBackend, options: Replicas.Options, number: int) -> dict[str, Any]:
    """Runs of which half lose their replica, beside the same undisturbed."""
    while len(ray.status()) < 2:
        time.sleep(1)
    asked = [
        settings.model_copy(
            update={"temperature": 0.8, "seed": 100 * number + place, "watch": Watch(enabled=False)}
        )
        for place, settings in enumerate(runs(options.runs, options.written))
    ]
    whole, _ = _followed(ray, asked, kill=False)
    followed, killed = _followed(ray, asked, kill=True)
    pauses = [each.pause(killed) for each in followed if each.moved]
    return {
        "moved": len(pauses),
        "whole": sum(one.tokens == other.tokens for one, other in zip(followed, whole, strict=True)),
        "failed": sum(each.finish is None or each.finish.reason == "error" for each in followed),
        "pauses": pauses,
    }


def _words(result: Result) -> str:
    return (
        f"Two replicas of the embedded model, bf16, one processor each, beside one engine in the page's own process on "
        f"one thread. {result['runs']} sampled runs of {result['written']} tokens were under way when a replica was "
        "killed; each is compared with the same run undisturbed, token by token."
    )


def _rows(result: Result) -> list[list[str]]:
    rows = []
    for name, what in (
        ("cost", "processor time of a token through a replica over the page's own, one visitor, probes on"),
        ("class", f"the same for {result['visitors']} visitors at once on two replicas"),
    ):
        if result.get(name):
            ratios = [each["replicas"] / each["local"] for each in result[name]]
            shown = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} rounds)"
            rows.append([what, shown])
    if steered := result.get("steered"):
        seconds = statistics.median(each["stop_seconds"] for each in steered)
        rows.append(["from Stop to the run's end, median", f"{1000 * seconds:.0f} ms"])
        for kind, what in (("stopped", "Stop"), ("retargeted", "another target")):
            most = max(each[kind] for each in steered)
            rows.append([f"tokens that came after {what} before it held, at most", f"{most}"])
    if kills := result.get("kills"):
        pauses = [pause for each in kills for pause in each["pauses"]]
        asked = len(kills) * result["runs"]
        rows += [
            ["runs that wrote what they would have written", f"{sum(each['whole'] for each in kills)} of {asked}"],
            ["runs that failed", f"{sum(each['failed'] for each in kills)} of {asked}"],
            ["runs that went on at another replica", f"{len(pauses)} in {len(kills)} kills"],
            ["pause of those, median and worst", f"{statistics.median(pauses):.1f} s, {max(pauses):.1f} s"],
        ]
    return rows
