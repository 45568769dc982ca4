"""What a Hugging Face Space reads of this folder, and how it starts the app."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from app.space_check import HOST, front_matter, variables

ROOT = Path(__file__).parents[1]
CARD = front_matter((ROOT / "README.md").read_text("utf-8"))
PINNED = (ROOT / "requirements.txt").read_text("utf-8").splitlines()


def test_the_card_names_what_is_there():
    assert CARD["sdk"] == "gradio" and f"gradio=={CARD['sdk_version']}" in PINNED
    assert CARD["python_version"] == "3.12" and (ROOT / CARD["app_file"]).is_file()


def test_the_app_starts_by_its_path_beside_files_named_as_parts_of_python():
    assert (ROOT / "app" / "numbers.py").is_file()
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, CARD["app_file"], "--help"], cwd=ROOT, env=plain, capture_output=True, text=True
    )
    assert done.returncode == 0 and "--port" in done.stdout, done.stderr


def test_a_space_has_its_name_and_no_token(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", "hf_any")
    monkeypatch.setenv("PYTHONPATH", "/anywhere")
    given = variables(tmp_path, 7861, CARD)
    assert not {"HF_TOKEN", "PYTHONPATH"} & given.keys()
    assert (given["SPACE_HOST"], given["GRADIO_SERVER_NAME"], given["GRADIO_SERVER_PORT"]) == (HOST, "0.0.0.0", "7861")
