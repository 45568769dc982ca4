"""A ZeroGPU Space, before a device service that is none."""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from backend.inference.control import Asked
from backend.serving.control import SharedMemoryControl
from backend.serving.zerogpu import seconds
from backend.settings import RunSettings
from backend.steps import Resumed, Written

HERE = Path(__file__).parent


@pytest.mark.skipif(importlib.util.find_spec("spaces") is None, reason="spaces is not installed: make test installs it")
def test_runs_on_zerogpu_keep_to_the_contract(tmp_path):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", HERE / "zerogpu_contract.py"]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    # Workers may outlive it, and hold a pipe open.
    with (tmp_path / "printed").open("w+") as printed:
        done = subprocess.run(command, cwd=HERE.parent, env=plain, stdout=printed, stderr=subprocess.STDOUT)
        printed.seek(0)
        assert done.returncode == 0, printed.read()[-5000:]


def test_a_control_in_shared_memory_is_one_in_every_process():
    control = SharedMemoryControl()
    program = (
        "import pickle, sys; control = pickle.loads(bytes.fromhex(sys.argv[1])); "
        "assert control.asked.goal == 30 and not control.stopped; control.watch(2, 5); control.stop()"
    )
    control.retarget(30)
    subprocess.run([sys.executable, "-c", program, pickle.dumps(control).hex()], check=True, cwd=HERE.parent)
    assert control.asked == Asked(True, 30, (2, 5))
    control.close()
    assert not Path(control.path).exists() and control.stopped


def test_a_run_asks_for_the_time_that_its_tokens_take():
    asked = RunSettings(prompt="x", max_new_tokens=1000)
    whole = seconds(asked, SharedMemoryControl(), True, Resumed())
    rest = seconds(asked, SharedMemoryControl(), True, Resumed((Written(1),) * 900))
    assert 10 < rest < whole < seconds(asked.model_copy(update={"max_new_tokens": 10**5}), None, True, Resumed()) == 120
