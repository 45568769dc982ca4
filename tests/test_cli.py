"""The terminal: streams, JSON for programs, one sentence for what is wrong, Ctrl-C, saved traces."""
from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import talking

from backend.__main__ import _progress, _summary, main, settings_of
from backend.record.trace import Trace
from backend.settings import LANDING, RunSettings, Watch
from backend.steps import Finish, Step

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-m", "backend"]
ASK = ["generate", "--prompt", "Why is the sky blue?"]
STEERED = [*ASK, "--method", "prompted", "--target", "20", "--pic", "dynamic", "--ratio", "4", "--recent", "8",
           "--lambda-window", "16", "--sinks", "4", "--max-new-tokens", "24"]


@dataclass
class Done:
    returncode: int | str | None
    stdout: str
    stderr: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """run(*arguments): the command line in this process, which spares each test the imports."""

    def command(*arguments: str) -> Done:
        capsys.readouterr()
        try:
            code: int | str | None = main([*arguments])
        except SystemExit as error:
            code = error.code
        return Done(code, *capsys.readouterr())

    return command


def test_a_program_of_its_own_streams_text_and_reports_on_stderr():
    done = subprocess.run([*COMMAND, *STEERED], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 5
    report = done.stderr.strip().splitlines()[-1]
    assert re.search(r"\d+ tokens · \d+\.\d tokens/s · target 20 tokens, error [+-]\d+", report)


def test_json_is_one_step_a_line_then_the_finish(run):
    done = run(*STEERED, "--json")
    *steps, finish = [json.loads(line) for line in done.stdout.splitlines()]
    assert [step["index"] for step in steps] == list(range(1, len(steps) + 1))
    assert all(step["event"] == "step" and 0 <= step["p"] <= 1 and "entropy" in step for step in steps)
    assert max(step["attended"] for step in steps) <= 16 + 4
    assert finish["event"] == "finish" and finish["reason"] in ("eos", "cap")
    assert finish["error"] == finish["tokens"] - 20
    text = "".join(step["text"] for step in steps)
    assert text.startswith(finish["text"]) or text == finish["text"]
    assert run(*STEERED).stdout.rstrip("\n") == text.rstrip("\n"), "the plain output is the same text"


def test_no_watch_leaves_the_probes_out_and_the_tokens_alone(run):
    watched, plain = (run(*ASK, "--max-new-tokens", "12", "--json", *more) for more in ([], ["--no-watch"]))
    seen, unseen = ([json.loads(line) for line in done.stdout.splitlines()] for done in (watched, plain))
    assert "entropy" in seen[0] and not any("entropy" in event or "state" in event for event in unseen)
    assert [event.get("token") for event in seen] == [event.get("token") for event in unseen]


def test_a_reader_that_leaves_gets_no_traceback():
    piped = f"{sys.executable} -m backend generate --prompt hello --max-new-tokens 8 --json | head -1"
    done = subprocess.run(piped, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert json.loads(done.stdout)["index"] == 1
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr


def test_prompt_from_stdin(run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("What is the capital of France?"))
    done = run("generate", "--prompt", "-", "--max-new-tokens", "4")
    assert done.returncode == 0 and "cap" in done.stdout


EMOJI = [" waves", " 🌊", " 雪", " ça", " 𠮷", " end."]


@pytest.fixture(scope="module")
def waves(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model whose answer no narrow encoding holds."""
    return talking.thinker(tmp_path_factory.mktemp("waves"), EMOJI)


@pytest.mark.parametrize("encoding", ["cp1252", "gbk", "ascii", "utf-8"])
def test_a_narrow_terminal_loses_neither_the_run_nor_its_trace(encoding: str, waves: str, tmp_path: Path, monkeypatch):
    file, outs = tmp_path / "run.json", []
    asked = ["generate", "--allow-model", waves, "--model", waves, "--prompt", "hi", "--save", str(file)]
    for more in ([], ["--json"]):
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr(sys, "stdout", out)
        assert main([*asked, *more]) == 0
        out.flush()
        outs.append(out.buffer.getvalue().decode(encoding))
        assert Trace.load(file).finish.text == "".join(EMOJI)
        file.unlink()
    text, lines = outs
    assert ("🌊" if encoding == "utf-8" else "\\U0001f30a") in text and "end." in text
    *steps, finish = map(json.loads, lines.splitlines())
    assert "".join(step["text"] for step in steps) == finish["text"] == "".join(EMOJI)


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("cp1252", marks=pytest.mark.ui)])
def test_a_program_of_its_own_goes_on_in_a_narrow_terminal(encoding: str, waves: str):
    done = subprocess.run(
        [*COMMAND, "generate", "--allow-model", waves, "--model", waves, "--prompt", "hi", "--json"],
        cwd=ROOT, capture_output=True, timeout=300, env=os.environ | {"PYTHONIOENCODING": encoding},
    )
    assert done.returncode == 0 and b"Traceback" not in done.stderr
    assert json.loads(done.stdout.decode(encoding).splitlines()[-1])["text"] == "".join(EMOJI)


@pytest.mark.parametrize(("written", "terminal", "text"), [
    ("utf-8", "utf-8", "Où est la mer? 🌊"), ("utf-8", "ascii", "Où est la mer? 🌊"), ("utf-8", "gbk", "雪"),
    ("utf-8-sig", "utf-8", "Où est la mer?"), ("utf-16", "utf-8", "Où 雪"), ("cp1252", "cp1252", "Où est la mer?"),
    ("gbk", "gbk", "什么是雪？"), ("utf-8", "utf-8", "one\r\ntwo"), ("cp1252", "utf-8", None), ("gbk", "ascii", None),
])  # fmt: skip
def test_stdin_in_any_encoding_is_read_or_refused(written: str, terminal: str, text: str | None, monkeypatch):
    data = (text or "Où est la 什么"[: 9 if written == "cp1252" else None]).encode(written, "ignore")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding=terminal))
    if text is None:
        with pytest.raises(ValueError, match=r"not UTF-8 .*: save it as UTF-8"):
            settings_of({"prompt": "-"})
    else:
        assert settings_of({"prompt": "-"}).prompt == text.replace("\r\n", "\n")


def test_one_is_no_plural():
    settings = RunSettings(prompt="hi", method="prompted", unit="words", target=1)
    assert "1 token ·" in _progress(settings, Step(1, 5, "a", 0.5, 0.1, 1.0, 3, 3, 1, 0, 0.1))
    assert "target 1 word ≈ 1 token · +0" in _progress(settings, Step(1, 5, "a", 0.5, 0.1, 1.0, 3, 3, 1, 0, 0.1))
    finish = Finish("eos", "a", 1, 1, 1, 0, 3, 0.1, 0.1, 10.0, 0)
    assert _summary(settings, finish) == "ended without a full stop · 1 token · 10.0 tokens/s · target 1 word, error +0"


def test_a_folder_is_no_file_to_save_in(run, tmp_path: Path):
    done = run(*ASK, "--save", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "") and "this is a folder, name a file in it" in done.stderr


def test_saved_trace_holds_the_run(tmp_path: Path, run):
    file = tmp_path / "run.json.gz"
    done = run(*STEERED, "--save", str(file))
    trace = Trace.load(file)
    assert done.returncode == 0 and trace.finish is not None
    assert trace.finish.text.strip() == done.stdout.strip()
    assert (trace.settings.window, trace.settings.pic, trace.capabilities["model"]) == (16, "dynamic", "embedded")


def test_ctrl_c_ends_the_run_with_its_finish():
    process = subprocess.Popen(
        [*COMMAND, "generate", "--prompt", "Write a very long story.", "--max-new-tokens", "4000", "--temperature", "1",
         "--json"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    assert process.stdout is not None
    first = [process.stdout.readline() for _ in range(5)]
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=300)
    finish = json.loads((first + rest.splitlines())[-1])
    assert (finish["event"], finish["reason"], process.returncode) == ("finish", "stopped", 130)
    assert "Traceback" not in errors and errors.strip().splitlines()[-1].startswith("stopped · ")


def test_in_a_terminal_the_progress_line_leaves_the_text_whole(run):
    text = run(*STEERED).stdout.strip()
    leader, follower = pty.openpty()
    process = subprocess.Popen([*COMMAND, *STEERED], cwd=ROOT, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    output = b""
    while True:
        try:
            output += os.read(leader, 65536)
        except OSError:
            break
    os.close(leader)
    assert process.wait(timeout=300) == 0
    shown = output.decode().replace("\r\n", "\n")
    status = re.compile(r"\x1b7\x1b\[\d+;1H\x1b\[K(.*?)\x1b8", re.DOTALL)
    assert any("tokens/s · target 20 tokens" in line for line in status.findall(shown))
    assert text in re.sub(r"\x1b7.*?\x1b8|\x1b\[1A", "", shown, flags=re.DOTALL)
    assert "\x1b[r" in shown, "the scroll region is given back"


@pytest.mark.parametrize("arguments, sentence", [
    ([], "the following arguments are required: command"),
    (["generate"], "required: --prompt"),
    ([*ASK, "--ratio", "0.01"], "--ratio 0.01: input should be greater than or equal to 0.05"),
    ([*ASK, "--ratio", "nan"], "--ratio nan: input should be a finite number"),
    ([*ASK, "--target", "many"], "--target many: input should be a valid integer"),
    ([*ASK, "--target", "-3"], "--target -3: input should be greater than or equal to 1"),
    ([*ASK, "--method", "ldp"], "--method ldp: there is no method 'ldp': did you mean ldpe"),
    ([*ASK, "--method", "magic"], "--method magic: there is no method 'magic': use one of none, prompted"),
    ([*ASK, "--distance-limit", "0"], "give a distance limit from 1 to 131,072"),
    ([*ASK, "--lambda-window", "1e9"], "--lambda-window 1e9: input should be"),
    ([*ASK, "--watch-layer", "-1"], "--watch-layer -1: input should be greater than or equal to 0"),
    ([*ASK, "--lambda-window", "9", "--prefill", "paper"], "(prefill 'row_exact'), or choose no window"),
    ([*ASK, "--model", "gpt2"], "not on the allow-list"),
    ([*ASK, "--models", "/no/such/list.json"], "JSON list of names"),
    ([*ASK, "--save", "/no/such/folder/run.json"], "there is no folder /no/such/folder"),
    ([*ASK, "--frobnicate"], "unrecognized arguments: --frobnicate"),
    (["generate", "--prompt", "  "], "the prompt is empty"),
    (["capabilities", "--precision", "int3"], "--precision int3: input should be 'bf16'"),
])
def test_what_is_wrong_is_one_sentence_and_exit_2(arguments: list[str], sentence: str, run):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr and done.stderr.count("\n") == 1


def test_every_setting_has_an_option(run):
    options = {
        "prompt": "hi", "model": "m", "precision": "fp32", "method": "lrpe", "target": "7", "unit": "words",
        "limit": "8", "landing": "3", "max_new_tokens": "9", "pic": "ntk", "ratio": "2", "initial": "1", "recent": "3",
        "reading": "literal", "prefill": "row_exact", "window": "64", "sinks": "5", "distance_limit": "32",
        "temperature": "0.5", "top_k": "4", "top_p": "0.9", "repetition_penalty": "1.1", "seed": "11",
        "thinking": True, "thinking_budget": "8", "special_tokens": True, "in_prompt": True,
        "watch_enabled": False, "watch_layer": "2", "watch_head": "1", "watch_every": "6",
    }
    settings = settings_of(options)
    assert {*RunSettings.model_fields} - {"watch", "earlier"} <= options.keys()
    assert {f"watch_{name}" for name in Watch.model_fields} <= options.keys()
    assert settings.watch == Watch(enabled=False, layer=2, head=1, every=6)
    assert (settings.distance_limit, settings.window, settings.ratio, settings.unit) == (32, 64, 2.0, "words")
    listed = run("generate", "--help").stdout
    assert all(f"--{name.replace('_', '-')}" in listed for name in options if name != "watch_enabled")
    assert "--no-watch" in listed


TALK = [("user", "Name a river."), ("assistant", "The Rhine.")]


def messages(file: Path, talk: list[tuple[str, str]], lines: bool) -> Path:
    """A file of messages, as JSON lines or as a list."""
    found = [json.dumps({"role": role, "content": content}) for role, content in talk]
    file.write_text("\n".join(found) if lines else f"[{', '.join(found)}]\n", "utf-8")
    return file


@pytest.mark.parametrize("lines", [True, False])
def test_a_system_prompt_and_earlier_turns_come_before_the_prompt(run, tmp_path: Path, lines: bool):
    file, turns = tmp_path / "run.json", messages(tmp_path / "turns", TALK, lines)
    done = run(*ASK, "--system", "Be brief.", "--turns", str(turns), "--max-new-tokens", "3", "--save", str(file))
    assert done.returncode == 0 and done.stdout.strip()
    saved = Trace.load(file)
    assert [(turn.role, turn.content) for turn in saved.settings.earlier] == [("system", "Be brief."), *TALK]
    plain = run(*ASK, "--max-new-tokens", "3", "--json").stdout.splitlines()[-1]
    assert saved.finish.prompt_tokens > json.loads(plain)["prompt_tokens"]
    swept = tmp_path / "table.csv"
    (tmp_path / "q.txt").write_text("Why?")
    asked = ["sweep", "--prompts", str(tmp_path / "q.txt"), "--methods", "none", "--out", str(swept)]
    assert run(*asked, "--max-new-tokens", "2", "--turns", str(turns)).returncode == 0
    assert "The Rhine." in swept.read_text("utf-8")


@pytest.mark.parametrize(("talk", "sentence"), [
    ([*TALK, TALK[0]], "two messages of the user's follow each other: join them"),
    ([("system", "a"), ("system", "b")], "a system message comes after another message"),
    ([("robot", "a")], "message 1 of FILE is none: give a role"),
])
def test_turns_in_another_order_are_refused_in_a_sentence(run, tmp_path: Path, talk, sentence):
    file = messages(tmp_path / "turns.jsonl", talk, lines=True)
    done = run(*ASK, "--turns", str(file))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert sentence.replace("FILE", str(file)) in done.stderr


@pytest.mark.parametrize(("text", "sentence"), [
    ("{", "document 1 of FILE is no JSON"), ('{"role": "user"}', "document 1 of FILE lacks content"),
    ("[5]", "message 1 of FILE is none"), (None, "FILE cannot be read"),
])
def test_a_file_without_turns_is_refused_in_a_sentence(run, tmp_path: Path, text, sentence):
    file = tmp_path / "turns"
    if text is not None:
        file.write_text(text)
    done = run(*ASK, "--turns", str(file))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert sentence.replace("FILE", str(file)) in done.stderr


def test_a_target_alone_is_heeded(tmp_path, monkeypatch, capsys):
    asked = [*ASK, "--target", "12", "--pic", "dynamic", "--ratio", "4", "--lambda-window", "512"]
    assert main([*asked, "--save", str(tmp_path / "run.json")]) == 0
    summary = capsys.readouterr().err.strip()
    assert re.search(r"ended \D+ · \d+ tokens · \S+ tokens/s · target 12 tokens, error [+-]\d$", summary)
    settings = Trace.load(tmp_path / "run.json").settings
    assert (settings.method, settings.landing, settings.in_prompt) == ("ldpe", LANDING, True)
    assert main([*asked, "--landing", "0", "--save", str(tmp_path / "run.json")]) == 0
    assert Trace.load(tmp_path / "run.json").settings.landing == 0
    monkeypatch.setattr("backend.models.adapters.ROOT", tmp_path)
    assert main([*asked, "--max-new-tokens", "3", "--save", str(tmp_path / "run.json")]) == 0
    assert Trace.load(tmp_path / "run.json").settings.method == "prompted"


def test_a_limit_is_said_in_the_unit_that_is_chosen():
    settings = RunSettings(prompt="hi", method="mnt_ldpe", unit="words", limit=8)
    assert "limit 8 words ≈ 11 tokens · -10" in _progress(settings, Step(1, 5, "a", 0.5, 0.1, 1.0, 3, 3, 11, 10, 0.1))
    finish = Finish("eos", "a", 1, 1, 1, -7, 3, 0.1, 0.1, 10.0, 0)
    assert _summary(settings, finish).endswith("limit 8 words")
    assert _summary(settings, replace(finish, error=2)).endswith("limit 8 words, error +2")


def test_a_run_that_fails_keeps_its_text_and_says_one_sentence(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from backend.inference.model_runner import Runner

    own, calls = Runner.signalled, []

    def read(self, ids, *more):
        calls.extend([1] * (len(ids) == 1))
        if len(calls) > 2:
            raise RuntimeError("the device is gone")
        return own(self, ids, *more)

    monkeypatch.setattr(Runner, "signalled", read)
    file = tmp_path / "run.json"
    done = run(*ASK, "--save", str(file))
    said = "The run failed after 3 tokens (RuntimeError: the device is gone): try again, or change the settings."
    assert (done.returncode, done.stderr.strip().splitlines()[-1]) == (1, said)
    assert "Traceback" not in done.stderr
    assert Trace.load(file).finish.text.strip() == done.stdout.strip() != ""


def test_capabilities_as_json(run):
    known = json.loads(run("capabilities").stdout)
    assert (known["model"], known["layers"], known["training_length"]) == ("embedded", 30, 8192)
    assert known["unsupported"] == {}
