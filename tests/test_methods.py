"""What every length method of the folder keeps to, and that one file there is all that a method takes."""

import inspect
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import torch
from pydantic import ValidationError

from app import controls
from app.api import endpoint
from app.share import flat, from_query, settings_of, to_query
from backend.__main__ import parser
from backend.methods import methods
from backend.methods.signal import signal_methods
from backend.recipes import lines
from backend.settings import MAX_NEW_TOKENS, RunSettings, cap_for
from backend.text.prompt import asked
from backend.training.recipes import ADAPTERS, ROWS

ROOT = Path(__file__).parents[1]
EVERY = pytest.mark.parametrize("method", methods, ids=lambda method: method.name)
SIGNALS = pytest.mark.parametrize("signal", signal_methods(), ids=lambda signal: signal.name)
WIDTH = 64


# Every method


@EVERY
def test_it_says_in_a_sentence_what_it_does(method):
    assert method.name.isidentifier() and method.label.strip() == method.label != ""
    assert method.summary[0].isupper() and method.summary.endswith(".") and ". " not in method.summary
    assert len({other.label for other in methods}) == len(methods)


@EVERY
def test_settings_that_name_it_come_back_from_json_and_links(method):
    settings = RunSettings(prompt="Why?", method=method.name, target=33, limit=44)
    assert RunSettings.model_validate_json(settings.model_dump_json()) == settings
    query = dict(pair.split("=") for pair in to_query(settings).split("&"))
    values, problems = from_query({**query, "prompt": "Why?"})
    assert not problems and settings_of(flat(settings)) == settings_of(values) == settings


@EVERY
def test_its_aim_is_that_of_the_settings(method):
    settings = RunSettings(prompt="Why?", method=method.name, target=33, limit=44, unit="words", landing=2)
    assert (settings.steered, settings.limited) == (method.bound is not None, method.bound == "limit")
    assert settings.lands == (method.bound is not None)
    assert settings.goal == (44 if settings.limited else 33)
    assert method.bound or not method.retargets
    assert 1 <= settings.max_new_tokens == cap_for(method.name, 33, 44, "words") <= MAX_NEW_TOKENS


@EVERY
def test_page_terminal_and_api_offer_it(method):
    [option] = [option for option in controls.method_options({}) if option["id"] == method.name]
    assert (option["label"], option["hint"], option["off"]) == (method.label, method.summary, "")
    target, _, _, limit, in_prompt = controls._aims(method.name)
    assert (target["interactive"], limit["visible"]) == (method.bound == "target", method.bound == "limit")
    assert in_prompt["visible"] == (method.bound is not None and not method.asks)
    assert parser().parse_args(["generate", "--prompt", "x", "--method", method.name]).method == method.name
    assert parser().parse_args(["evaluate", "joint_rate", "--method", method.name]).method == method.name
    signature = inspect.signature(endpoint(None, None), eval_str=True)
    assert method.name in get_args(signature.parameters["method"].annotation)
    assert method.name in RunSettings.model_json_schema()["properties"]["method"]["enum"]


@EVERY
def test_it_is_trained_by_a_recipe_if_it_needs_an_adapter(method):
    arguments = ["train", "--method", method.name, "--out", "x", "--data", "y"]
    if not (method.adapter or method.encoder_decoder):
        with pytest.raises(SystemExit):
            parser().parse_args(arguments)
        return
    assert parser().parse_args(arguments).method == method.name
    if not (method.adapter and method.causal):
        assert any(row.split()[0] == method.name for row in ROWS.values())
        return
    made = [line for line in lines(ADAPTERS, "data", []) if f"--method {method.name} " in line]
    assert len(made) == len(method.recipe) > 0
    assert made[-1].endswith(f"--out assets/adapters/{method.name}")


@EVERY
def test_its_prompt_is_the_text_or_asks_for_the_length_too(method):
    words = asked(method.name, "Why is the sky blue?", 43, "words")
    assert words == "Why is the sky blue?" or ("43 words" in words and words.endswith("Why is the sky blue?"))


@EVERY
def test_its_processor_leaves_the_scores_alone_without_an_aim(method):
    processor = method.processor(3, [2])
    assert (processor is not None) == method.writes_end
    if processor is None:
        return
    ids, scores = torch.zeros(1, 40, dtype=torch.long), torch.randn(1, 8)
    for aim, changed in ((None, False), (30, True), (200, False), (30, True), (None, False)):
        processor.aim(aim)
        assert torch.equal(processor(ids, scores.clone()), scores) != changed


def test_an_unknown_method_is_answered_with_the_one_meant():
    with pytest.raises(ValidationError, match="there is no method 'ldp': did you mean ldpe"):
        RunSettings(prompt="Why?", method="ldp")


def test_settings_bring_no_torch():
    """The command line and the page say what is wrong with settings before they load a model."""
    script = "import sys, backend.settings; print({'torch', 'transformers'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.strip() == "set()"


# Every signal


def shown(signal, response, target):
    return signal.rows(response, target, WIDTH)


@SIGNALS
def test_a_signal_is_a_sine_and_a_cosine_of_one_phase(signal):
    rows = shown(signal, torch.arange(-5, 30), 12)
    assert rows.shape == (35, WIDTH) and rows.dtype == torch.float64
    norms = rows.square().unflatten(-1, (-1, 2)).sum(-1)
    seen = rows.any(-1)
    torch.testing.assert_close(norms[seen], torch.ones_like(norms[seen]))
    assert seen[6:].all()


@SIGNALS
def test_a_signal_stays_at_the_target_once_it_is_reached(signal):
    rows = shown(signal, torch.arange(1, 60), 12)
    assert torch.equal(rows[12:], rows[11:12].expand(47, WIDTH))
    assert len({tuple(row.tolist()) for row in rows[:12]}) == 12


@SIGNALS
def test_a_signal_of_a_batch_is_that_of_its_rows(signal):
    response, targets = torch.stack([torch.arange(-3, 17), torch.arange(-9, 11)]), torch.tensor([[4], [300]])
    before = response.clone()
    batch = shown(signal, response, targets)
    for row, (places, target) in enumerate(zip(response, (4, 300), strict=True)):
        torch.testing.assert_close(batch[row], shown(signal, places, target), rtol=0, atol=1e-12)
    assert torch.equal(response, before)


@SIGNALS
def test_a_signal_is_new_at_each_call(signal):
    rows = shown(signal, torch.arange(1, 5), 9)
    kept = rows.clone()
    rows.zero_()
    assert torch.equal(shown(signal, torch.arange(1, 5), 9), kept)


@SIGNALS
def test_a_signal_is_trained_near_what_it_shows(signal):
    response = torch.arange(-3, 40)
    plain, trained = (rows(response, 50, WIDTH) for rows in (signal.rows, signal.training_rows))
    assert trained.shape == plain.shape and trained.dtype == torch.float64
    cosine = (plain * trained).sum(-1)[4:] / (WIDTH / 2)
    assert cosine.mean() > 1 / math.sqrt(2)


# One file


TOY = '''"""Two counts a token."""
from backend.methods.signal import SignalMethod
from backend.methods.sinusoid import sinusoid


class Doubled(SignalMethod):
    name = "doubled"
    label = "Doubled"
    summary = "A countdown by two."
    recipe = ("{answers} --method doubled --out assets/adapters/doubled",)

    def rows(self, response, target, width):
        return sinusoid(2 * (target + 1 - response).clamp_(min=1), width)
'''
SEES = """
import json
import torch
from app import page
from app.runs import Runs
from backend import Lab, RunSettings
from backend.__main__ import parser
from backend.inference.signal import signal_rows
from backend.methods.signal import SignalSettings
from backend.models.adapters import available
from backend.models.pool import Models
from backend.training.settings import TrainSettings

settings = RunSettings(prompt="Why?", method="doubled", target=9)
signal = SignalSettings("doubled", 0.5, 1.0, (1, 9))
demo = page.build(Lab(Models(["embedded"])), lambda model: {}, Runs())
print(json.dumps({
    "settings": RunSettings.model_validate_json(settings.model_dump_json()).method,
    "missing": available("embedded")["doubled"],
    "generate": next(a for a in parser()._subparsers._group_actions[0].choices["generate"]._actions
                     if a.dest == "method").metavar.split("|"),
    "train": parser().parse_args(["train", "--method", "doubled", "--out", "x"]).method,
    "adapter": signal.method,
    "rows": list(signal_rows(signal, torch.arange(4), 1, 9, 8).shape),
    "page": str(demo.get_config_file()),
    "api": str(demo.get_api_info()["named_endpoints"]["/generate"]),
}))
"""


def test_one_file_adds_a_method(tmp_path):
    """A copy of the program, by links, whose folder of methods holds one file more."""
    for name in ("app", "assets"):
        (tmp_path / name).symlink_to(ROOT / name)
    for folder in ("backend", "backend/methods"):
        (tmp_path / folder).mkdir()
        for entry in (ROOT / folder).iterdir():
            if entry.name not in ("methods", "__pycache__"):
                (tmp_path / folder / entry.name).symlink_to(entry)
    (tmp_path / "backend" / "methods" / "doubled.py").write_text(TOY)
    script = f"import sys; sys.dont_write_bytecode = True; sys.path.insert(0, {str(tmp_path)!r})\n{SEES}"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["settings"] == found["train"] == found["adapter"] == "doubled"
    assert found["generate"] == [*methods.names(), "doubled"]
    assert found["missing"].startswith("no adapter for doubled on ")
    assert found["rows"] == [4, 8]
    # The choices of Generate and of each setting of Compare, with the sentence under the former.
    assert found["page"].count("'Doubled'") >= 5 and "A countdown by two." in found["page"]
    assert "'doubled'" in found["api"]
