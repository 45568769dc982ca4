"""The page's script by itself, without a browser."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from app import live

NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_page_s_script_is_sound_and_does_what_it_should(tmp_path):
    whole, parts = tmp_path / "whole.js", tmp_path / "page.js"
    whole.write_text(live.script(), "utf-8")
    parts.write_text("\n".join((live.PAGE / f"{part}.js").read_text("utf-8") for part in live.PARTS), "utf-8")
    tests = Path(__file__).with_name("page.test.mjs")
    for command in (["--check", whole], ["--test", tests]):
        done = subprocess.run(
            [NODE, *command], env=os.environ | {"PAGE": str(parts)}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_part_of_the_script_is_served():
    assert {part.stem for part in live.PAGE.glob("*.js")} == set(live.PARTS)
