"""Run by test_zerogpu.py in a process of its own, for ZeroGPU changes torch for good: the contract of all backends."""

from __future__ import annotations

import os
import signal
import threading

import fake_zerogpu

fake_zerogpu.begin()

import psutil
import pytest
from serving import ASKED, DRAWN, Contract

from app.runs import batches
from backend import Lab, Step
from backend.inference.control import Control
from backend.models.pool import Models
from backend.serving.zerogpu import ZeroGpuBackend, here


@pytest.fixture(scope="module")
def space() -> ZeroGpuBackend:
    assert here()
    return ZeroGpuBackend(Lab(Models(["embedded"])))


class TestZeroGpu(Contract):
    """Workers forked from this process."""

    @pytest.fixture(scope="class")
    def backend(self, space) -> ZeroGpuBackend:
        return space


def test_a_run_whose_time_is_over_goes_on_in_another_worker(space):
    *whole, _ = space.stream(DRAWN)
    steps = []
    for event in space.stream(DRAWN):
        if isinstance(event, Step):
            steps.append(event)
            if len(steps) == 8:
                for worker in psutil.Process().children():
                    os.kill(worker.pid, signal.SIGKILL)
    assert [step.token for step in steps] == [step.token for step in whole]
    assert any("another GPU worker" in note for note in event.notes)


def test_the_visitor_s_share_of_time_is_used_and_no_more_than_the_run_needs(space):
    from gradio.context import LocalContext

    class Request:
        headers = {"x-ip-token": "of.the.visitor"}

    LocalContext.request.set(Request())
    fake_zerogpu.SCHEDULED.clear()
    for _ in batches(space.stream(ASKED)):
        pass
    [asked] = fake_zerogpu.SCHEDULED
    assert asked["token"] == "of.the.visitor" and int(asked["durationSeconds"]) <= 12
