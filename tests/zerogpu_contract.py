"""Run by test_zerogpu.py in a process of its own, for ZeroGPU changes torch for good: the contract of all backends."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import fake_zerogpu

SERVICE = fake_zerogpu.begin()

import psutil  # noqa: E402
import pytest  # noqa: E402
from serving import ASKED, DRAWN, Contract  # noqa: E402
from starlette.datastructures import Headers  # noqa: E402

from app.runs import batches  # noqa: E402
from backend import Lab, Step  # noqa: E402
from backend.models.pool import Models  # noqa: E402
from backend.serving.on_zerogpu import on_zerogpu  # noqa: E402
from backend.serving.zerogpu import ZeroGpuBackend  # noqa: E402

# As the hub's proxy signs one; its middle says whose it is, in base64.
TOKEN = "a.e30.c"


@pytest.fixture(scope="module")
def space() -> ZeroGpuBackend:
    assert on_zerogpu()
    return ZeroGpuBackend(Lab(Models(["embedded"])))


class TestZeroGpu(Contract):
    """Workers forked from this process."""

    @pytest.fixture(scope="class")
    def lab(self, space) -> ZeroGpuBackend:
        # What stands for a GPU has tensors in a worker alone: one worker is held against another.
        return space

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
                    if worker.pid != SERVICE:
                        os.kill(worker.pid, signal.SIGKILL)
    assert [step.token for step in steps] == [step.token for step in whole]
    assert any("another GPU worker" in note for note in event.notes)


def test_the_visitor_s_share_of_time_is_used_and_no_more_than_the_run_needs(space):
    from gradio.context import LocalContext

    LocalContext.request.set(SimpleNamespace(headers=Headers({"x-ip-token": TOKEN})))
    before = len(fake_zerogpu.scheduled())
    for _ in batches(space.stream(ASKED)):
        pass
    [asked] = fake_zerogpu.scheduled()[before:]
    assert asked["token"] == TOKEN and int(asked["durationSeconds"]) <= 12
