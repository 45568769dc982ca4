"""`make demo` and `make test` where there is no make, as on Windows; needs Python 3.11 or newer and nothing else.

    python -m app.setup demo        # sets everything up, then opens the lab; options of `python -m app` may follow
    python -m app.setup test        # sets everything up, then runs the tests; arguments of pytest may follow

Both fill `.venv` and leave there the stamps that make leaves, so that either may go on from the other.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / ".venv"
OLDEST = (3, 11)
# Each command's requirements files, the first of which is installed, and its stamp.
NEEDS = {"demo": (["requirements.txt"], ".runs"), "test": (["requirements-dev.txt", "requirements.txt"], ".develops")}
# What is run once all is there. Two files of tests at a time, as in the Makefile.
RUNS = {"demo": ["-m", "app"], "test": ["-m", "pytest", "-n", "2", "--dist", "loadfile"]}


def python() -> Path:
    """The environment's interpreter."""
    return ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def current(stamp: Path, requirements: list[Path]) -> bool:
    """Whether what the files name was installed since they were changed."""
    return stamp.exists() and all(stamp.stat().st_mtime >= file.stat().st_mtime for file in requirements)


def prepare(command: str) -> None:
    """Makes the environment and the embedded model, where they are not there. CalledProcessError where that fails."""
    if not python().exists():
        subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
    names, stamp = NEEDS[command]
    files = [ROOT / name for name in names]
    if not current(ENVIRONMENT / stamp, files):
        subprocess.run([python(), "-m", "pip", "install", "-r", files[0]], check=True)
        (ENVIRONMENT / stamp).touch()
    subprocess.run([python(), "-m", "backend.models.embedded"], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


def main() -> int:
    command, *more = sys.argv[1:] or ["help"]
    if command not in RUNS:
        print(__doc__)
        return 0 if command in ("help", "-h", "--help") else 2
    if sys.version_info < OLDEST:
        print(f"This is Python {sys.version.split()[0]}: start this with Python 3.11 or newer.")
        return 2
    try:
        prepare(command)
        return subprocess.call([python(), *RUNS[command], *more], cwd=ROOT)
    except subprocess.CalledProcessError as failed:
        print("It could not be set up, as said above: check the network, then start this again.")
        return failed.returncode
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
