"""The project as a wheel: what it holds, and that its command starts the app away from this folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app import setup

ROOT = Path(__file__).parents[1]
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
PARTS = ("app", "backend", "assets", "pyproject.toml", "requirements.txt", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder in which the wheel lies as pip lays it."""
    source, built, into = (tmp_path_factory.mktemp(name) for name in ("source", "built", "installed"))
    for part in PARTS:
        copied = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copied(ROOT / part, source / part)
    subprocess.run([*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", built, source], check=True)
    (wheel,) = built.glob("length_lab-*.whl")
    subprocess.run([*PIP, "install", "--no-deps", "--target", into, wheel], check=True)
    return into


def ran(installed: Path, *command: str | Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(installed)}
    return subprocess.check_output(command, env=environment, cwd=installed.parent, text=True)


def test_the_command_starts_the_app(installed):
    command = installed / "bin" / "length-lab-app"
    assert "--port" in ran(installed, sys.executable, command, "--help")


def test_the_app_finds_its_files_beside_it(installed):
    program = (
        "import app.live, app.lessons, app.present, app.presets, app.scenes; "
        "import backend.models.adapters as adapters, backend.models.pool as pool; "
        "print(adapters.available('embedded')['ldpe'], pool.allowed()[0], app.presets.FOLDER.is_dir(), "
        "len(app.live.page_head()) > 0, all(file.is_file() for file in app.live.STYLES), "
        "len(app.lessons.lessons()) > 0, len(app.present.playable()) == len(app.scenes.scenes()) > 0, app.__file__)"
    )
    *found, place = ran(installed, sys.executable, "-c", program).split()
    assert found == ["None", "embedded", *["True"] * 5] and Path(place).is_relative_to(installed)


def test_without_make_a_change_of_the_requirements_asks_for_another_installation(tmp_path):
    stamp, file = tmp_path / "stamp", tmp_path / "requirements.txt"
    file.touch()
    assert not setup.current(stamp, [file])
    stamp.touch()
    os.utime(file, (0, 0))
    assert setup.current(stamp, [file])
    os.utime(stamp, (0, 0))
    os.utime(file, (9, 9))
    assert not setup.current(stamp, [file])


def test_setup_without_a_command_says_what_there_is():
    done = subprocess.run([sys.executable, "-m", "app.setup", "any"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "python -m app.setup demo" in done.stdout
