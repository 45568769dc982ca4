"""What a CPU Space does with this folder, done here: `make space-check`.

Makes an environment of requirements.txt alone, runs the front matter's `app_file` in it as a script under the variables
that a Space sets and without HF_TOKEN, then opens the page by the Space's name in Chromium and reads an answer. The
embedded model is laid where `preload_from_hub` would have laid the hub's copy. `--python` names the Space's Python.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from playwright.sync_api import sync_playwright

from app.chromium import launch
from app.free_port import free_port
from backend.models import embedded

ROOT = Path(__file__).parents[1]
HOST = "somebody-length-lab.hf.space"
SETTINGS = {"prompt": "Why is the sky blue?", "method": "ldpe", "target": "40"}
# Seconds for the page to be there, and for each thing on it; a machine that others use takes minutes.
START, SECONDS = 300, 300
COMMIT = "0" * 40


class Unfit(Exception):
    """What would not work on a Space, in a sentence."""


def front_matter(readme: str) -> dict[str, str]:
    """The plain values in a README's front matter, without quotes."""
    block = re.match(r"---\n(.*?)\n---\n", readme, re.DOTALL)
    lines = block[1].splitlines() if block else []
    return {name: value.strip().strip('"') for name, _, value in (line.partition(":") for line in lines)}


def environment(home: Path, python: Path | str) -> Path:
    """The Python of a new environment that has requirements.txt and nothing else. Unfit where it cannot be had."""
    try:
        subprocess.run([python, "-m", "venv", home], check=True)
        inside = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        subprocess.run([inside, "-m", "pip", "install", "--quiet", "-r", ROOT / "requirements.txt"], check=True)
        subprocess.run([inside, "-m", "pip", "check"], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unfit(f"requirements.txt cannot be installed under {python}: {error}") from error
    return inside


def variables(home: Path, port: int, card: Mapping[str, str]) -> dict[str, str]:
    """What a Space sets, in place of this machine's; `home` has the hub's cache."""
    kept = {name: value for name, value in os.environ.items() if not re.match("HF_|HUGGING|LENGTH_LAB|PYTHON", name)}
    return kept | {
        "SYSTEM": "spaces",
        "SPACE_ID": "somebody/length-lab",
        "SPACE_HOST": HOST,
        "SPACE_AUTHOR_NAME": "somebody",
        "SPACE_REPO_NAME": card["title"],
        "GRADIO_SERVER_NAME": "0.0.0.0",
        "GRADIO_SERVER_PORT": str(port),
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "LENGTH_LAB_CACHE": str(home / "lab"),
    }


def preload(home: Path) -> None:
    """Lays the embedded model into the hub's cache below `home`, as if it had been fetched from there."""
    repo = home / "hub" / f"models--{embedded.HUB_COPY.replace('/', '--')}"
    shutil.copytree(embedded.folder(), repo / "snapshots" / COMMIT)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMIT)


@contextmanager
def running(python: Path, card: Mapping[str, str], home: Path, port: int) -> Iterator[None]:
    """The Space's process while its page is there. Unfit where it ends or the page does not come."""
    process = subprocess.Popen([python, card["app_file"]], cwd=ROOT, env=variables(home, port, card))
    try:
        _until_there(process, Request(f"http://127.0.0.1:{port}", headers={"Host": HOST}))
        yield
    finally:
        process.terminate()
        process.wait()


def _until_there(process: subprocess.Popen[bytes], page: Request) -> None:
    until = time.monotonic() + START
    while time.monotonic() < until:
        if process.poll() is not None:
            raise Unfit(f"app_file ended with status {process.returncode}: see above")
        try:
            urlopen(page, timeout=SECONDS).close()
            return
        except URLError:
            time.sleep(0.5)
    raise Unfit(f"no page came in {START} s: see above")


def answer(port: int) -> tuple[str, str]:
    """Opens the page as a visitor of the Space, presses Generate: what was written, and how it ended."""
    with sync_playwright() as playwright:
        browser = launch(playwright, f"--host-resolver-rules=MAP {HOST} 127.0.0.1")
        page = browser.new_page()
        page.set_default_timeout(1000 * SECONDS)
        page.goto(f"http://{HOST}:{port}?{urlencode(SETTINGS)}")
        page.wait_for_selector("#model-state [data-state=good]")
        page.wait_for_selector("#chart-length .ll-chart[data-run]")
        before = page.get_attribute("#chart-length .ll-chart", "data-run")
        page.click("#go")
        page.wait_for_function("b => document.querySelector('#chart-length .ll-chart').dataset.run !== b", arg=before)
        page.wait_for_selector("#go:not([disabled])")
        page.wait_for_selector("#figures-run [data-state=good]")
        text = page.text_content("#text-run .ll-text") or ""
        ended = page.inner_text("#figures-run .ll-message")
        browser.close()
    return text, ended


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m app.space_check", description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="makes the environment (default: this one)")
    given = parser.parse_args()
    card = front_matter((ROOT / "README.md").read_text("utf-8"))
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="space-") as scratch:
        home = Path(scratch)
        try:
            python = environment(home / "environment", given.python)
            preload(home)
            with running(python, card, home, port):
                text, ended = answer(port)
        except Unfit as unfit:
            sys.exit(f"A Space would fail: {unfit}")
        version = subprocess.check_output([python, "--version"], text=True).strip()
    if not text.strip():
        sys.exit(f"A Space would fail: nothing was written ({ended})")
    print(f"{version}, {card['app_file']} on port {port}: {text!r}\n{ended}")


if __name__ == "__main__":
    main()
