"""A container's limits count: processors by its quota, memory by what it may still take."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from backend import cgroup, system_memory
from backend.inference import memory


@pytest.fixture
def group(tmp_path, monkeypatch):
    """Writes the limits of a group, the root's unless it is named; the process is in /pod/box."""
    (tmp_path / "own").write_text("4:memory:/elsewhere\n0::/pod/box\n")
    monkeypatch.setattr(cgroup, "OWN", tmp_path / "own")
    monkeypatch.setattr(cgroup, "ROOT", tmp_path / "groups")
    monkeypatch.setattr(cgroup, "usable", lambda: 8)

    def write(path: str = "", **limits: str) -> None:
        folder: Path = tmp_path / "groups" / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in limits.items():
            (folder / name.replace("_", ".", 1)).write_text(f"{value}\n")

    return write


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", 8), ("400000 100000", 4), ("150000 100000", 1), ("50000 100000", 1), ("9000000 100000", 8)],
)
def test_threads_are_as_many_as_the_quota_has_whole_processors(group, quota, cores):
    group(cpu_max=quota)
    assert cgroup.cores() == cores


def test_without_limits_there_is_all_the_machine_has(group):
    assert cgroup.cores() == 8 and cgroup.memory() == cgroup.UNLIMITED
    group(memory_max="max", memory_current="5000")
    assert cgroup.memory() == cgroup.UNLIMITED


def test_a_group_around_the_own_one_binds_too(group):
    group("pod", cpu_max="200000 100000")
    group("pod/box", cpu_max="300000 100000")
    assert cgroup.cores() == 2


def test_memory_is_what_is_left_and_what_files_take_that_may_go(group, monkeypatch, tmp_path):
    stat = "anon 1500000\ninactive_file 400000"
    group("pod/box", memory_max="5000000", memory_current="2000000", memory_stat=stat)
    assert cgroup.memory() == 3_400_000 == system_memory.free(torch.device("cpu"))
    group("pod/box", memory_current="5400001")
    assert cgroup.memory() == 0
    group("pod/box", memory_max="max")
    assert system_memory.free(torch.device("cpu")) > 10**8
    monkeypatch.setattr(system_memory, "_MEMINFO", tmp_path / "none")
    assert system_memory.free(torch.device("cpu")) is None
    # Of what is not known the caches take a share none the less.
    assert memory.memory.__wrapped__(torch.device("cpu")).total == memory.SHARE * memory.UNKNOWN


@pytest.mark.skipif(cgroup.usable() < 2, reason="needs two processors, to grant one of them")
def test_torch_starts_as_many_threads_as_are_granted(tmp_path):
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    program = (
        f"from pathlib import Path; from backend import cgroup; cgroup.ROOT = Path({str(tmp_path)!r}); "
        "import importlib, backend.inference.threads as threads; importlib.reload(threads); "
        "import torch; print(torch.get_num_threads())"
    )
    plain = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    assert subprocess.check_output([sys.executable, "-c", program], env=plain, text=True).strip() == "1"
    given = plain | {"OMP_NUM_THREADS": "2"}
    assert subprocess.check_output([sys.executable, "-c", program], env=given, text=True).strip() == "2"
