"""A setting is one field: it is then in a terminal, over HTTP, in links, in saved runs, and a control on the page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from one_file import ROOT, tree

from backend.settings import (
    LengthSettings,
    ModelSettings,
    PositionSettings,
    PromptSettings,
    RunSettings,
    SamplingSettings,
    VariantSettings,
    WindowSettings,
)

PARTS = (
    PromptSettings, ModelSettings, LengthSettings, PositionSettings, VariantSettings, WindowSettings, SamplingSettings,
)  # fmt: skip
FIELD = '''
    min_p: Annotated[float, OnPage("Min p", "0 is off", most=1, step=0.01, advanced=True)] = Field(
        0.0, ge=0, le=1, description="share of the likeliest token's probability; 0 is off"
    )
'''
LOOK = """
import contextlib, inspect, io, json
import gradio as gr
from app import controls, conversation, live, model
from app.api import described, endpoint
from app.share import from_query, to_query
from backend.__main__ import parser, settings_of
from backend.models.adapters import available
from backend.settings import RunSettings

asked = RunSettings(prompt="p", min_p=0.25)
with gr.Blocks():
    talk = live.conversation(conversation.EMPTY)
    form = controls.build(gr.Textbox(), talk, model.build(["embedded"]), available("embedded"))
with contextlib.redirect_stdout(io.StringIO()) as written, contextlib.suppress(SystemExit):
    parser().parse_args(["generate", "--help"])
generate = endpoint(None, None)
control = form.parts["min_p"]
print(json.dumps({
    "link": from_query({"prompt": "p", "min_p": "0.25"})[0]["min_p"],
    "query": to_query(asked),
    "terminal": written.getvalue(),
    "typed": settings_of(vars(parser().parse_args(["generate", "--prompt", "p", "--min-p", "0.25"]))).min_p,
    "http": list(inspect.signature(generate).parameters),
    "described": described(generate),
    "page": [type(control).__name__, control.label, control.info, control.minimum, control.maximum, control.step],
    "form": form.settings(form.values(asked)).min_p,
    "saved": RunSettings.model_validate_json(asked.model_dump_json()).min_p,
}))
"""


def test_no_two_parts_have_a_setting_of_one_name():
    names = [name for part in PARTS for name in part.model_fields]
    assert sorted([*names, "watch"]) == sorted(RunSettings.model_fields)


def test_one_field_is_seen_everywhere(tmp_path: Path):
    text = (ROOT / "backend/settings/sampling.py").read_text("utf-8")
    environment = tree(tmp_path, "settings", "sampling.py", text + FIELD)
    done = subprocess.run(
        [sys.executable, "-c", LOOK], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["link"] == found["typed"] == found["form"] == found["saved"] == 0.25
    assert "min_p=0.25" in found["query"] and "--min-p VALUE" in found["terminal"]
    # Clients that give arguments by their places keep them.
    assert found["http"][0] == "request" and found["http"][-1] == "min_p"
    assert "min_p: share of the likeliest token's probability; 0 is off; from 0 to 1" in found["described"]
    assert found["page"] == ["Slider", "Min p", "0 is off", 0, 1, 0.01]
