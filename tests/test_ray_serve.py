"""Replicas on Ray Serve: the contract of all backends, and what happens when a replica dies."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from serving import ASKED, DRAWN, Contract, idle

from backend import Lab, Step
from backend.inference.control import Control
from backend.models.pool import Models
from backend.refused import Refused
from backend.serving import ray_serve
from backend.serving.deployment import Deployment

pytest.importorskip("ray", reason="Ray Serve is not installed: make test-ray installs it")
pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def replicas() -> Iterator[ray_serve.RayServeBackend]:
    backend = ray_serve.begin(["embedded"], Deployment(replica_runs=1, queued_runs=4))
    yield backend
    ray_serve.end()


class TestRayServe(Contract):
    """Two replicas."""

    @pytest.fixture(scope="class")
    def lab(self) -> Iterator[Lab]:
        # A replica has one processor, and a sum of two threads rounds otherwise.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        yield Lab(Models(["embedded"]))
        torch.set_num_threads(threads)

    @pytest.fixture(scope="class")
    def backend(self, replicas) -> ray_serve.RayServeBackend:
        return replicas


def killed(backend: ray_serve.RayServeBackend) -> int:
    """Kills a replica that writes; its process id."""
    process = next(each.process for each in backend.status() if each.writing)
    os.kill(process, signal.SIGKILL)
    return process


def test_a_run_goes_on_at_another_replica_with_the_tokens_that_it_would_have_had(replicas):
    asked = DRAWN.model_copy(update={"max_new_tokens": 60})
    *whole, _ = replicas.stream(asked)
    steps, gone = [], None
    for event in replicas.stream(asked):
        if isinstance(event, Step):
            steps.append(event)
            if len(steps) == 10:
                gone = killed(replicas)
    assert [step.token for step in steps] == [step.token for step in whole]
    assert [step.index for step in steps] == list(range(1, 61))
    assert all(one.seconds <= other.seconds for one, other in pairwise(steps))
    assert any("went on at another replica" in note for note in event.notes) and gone


def test_what_was_asked_of_a_run_holds_where_it_goes_on(replicas):
    control, wanted = Control(), []
    asked = ASKED.model_copy(update={"method": "ldpe", "target": 90, "max_new_tokens": 200})
    for event in replicas.stream(asked, control):
        if isinstance(event, Step):
            wanted.append(event.wanted)
            if len(wanted) == 5:
                control.retarget(60)
            if len(wanted) == 20:
                killed(replicas)
    assert wanted[-1] == 60 and abs(event.error) <= 3


def test_more_runs_than_may_wait_are_refused_and_the_others_end(replicas):
    idle(replicas)
    ends: list[str] = []
    control = Control()

    def write() -> None:
        try:
            *_, finish = replicas.stream(ASKED.model_copy(update={"max_new_tokens": 4000}), control)
            ends.append(finish.reason)
        except Refused as error:
            ends.append(str(error))
            control.stop()

    threads = [threading.Thread(target=write) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ends) == 40 and any("wait already" in end for end in ends)
    assert {end for end in ends if "wait already" not in end} <= {"stopped", "cap", "eos"}


def test_without_any_replica_a_run_that_is_stopped_ends(replicas):
    idle(replicas)
    for each in replicas.status():
        os.kill(each.process, signal.SIGKILL)
    control = Control()
    threading.Timer(1.0, control.stop).start()
    *_, finish = replicas.stream(ASKED.model_copy(update={"max_new_tokens": 4000}), control)
    assert finish.reason == "stopped"
