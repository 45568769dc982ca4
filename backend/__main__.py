"""The lab in a terminal.

    python -m backend generate --prompt "Why do people travel?" --target 60 --pic dynamic --ratio 4 --lambda-window 512
    python -m backend generate --prompt - --json < question.txt
    python -m backend sweep --prompts questions.csv --methods ldpe prompted --targets 20 60 --out table.csv
    python -m backend capabilities --model embedded
    python -m backend distill --out corpus.jsonl
    python -m backend train --method ldpe --data corpus.jsonl --out assets/adapters/ldpe
    python -m backend evaluate long_responses --data FILE --out mine.json
    python -m backend report

Text goes to stdout, progress to stderr. Exit status: 0, 1 when a run failed, 2 for a wrong setting, 130 when stopped.
"""
from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import ValidationError

from backend.ending import ended
from backend.refused import Refused
from backend.settings import RunSettings, Turn, Watch, counted
from backend.steps import Finish, Step
from backend.terminal import WRONG, Parser, StatusLine, carries, let_any_text_through, say, typed
from backend.training import command as training
from backend.training import publish

if TYPE_CHECKING:
    from backend.engine import Lab
    from backend.inference.control import Control

FLAGS = {"window": ["--lambda-window", "--window"]}
FAILED, STOPPED = 1, 130


def parser(evaluates: bool = True) -> Parser:
    """The command line; the options of `generate` are the fields of RunSettings. evaluates: with the experiments, which
    take a while to import."""
    main = Parser(prog="python -m backend", description="Steer how long a language model writes and how far it reads.")
    commands = main.add_subparsers(dest="command", required=True, parser_class=Parser)
    generate = commands.add_parser("generate", help="write a response", allow_abbrev=False)
    generate.set_defaults(run=_generate)
    _add_settings(generate)
    generate.add_argument("--json", action="store_true", help="one JSON document a line: every step, then the finish")
    generate.add_argument("--save", type=Path, metavar="FILE", help="save the run as a trace (.json or .json.gz)")
    swept = commands.add_parser("sweep", help="run prompts × methods × targets × seeds", allow_abbrev=False)
    _add_sweep(swept)
    describe = commands.add_parser("capabilities", help="say what a model is and allows, as JSON", allow_abbrev=False)
    describe.set_defaults(run=_capabilities)
    for name in ("model", "precision"):
        _add_field(describe, name)
    training.add(commands)
    evaluate = commands.add_parser("evaluate", help="run an experiment, and keep its result", allow_abbrev=False)
    if evaluates:
        from backend.evaluation import runner
        from backend.evaluation.experiments import experiments

        runner.add(evaluate, experiments)
    report = commands.add_parser("report", help="write assets/results/README.md of the results", allow_abbrev=False)
    report.set_defaults(run=_report)
    publish.add(commands)
    for command in (generate, swept, describe):
        command.add_argument("--models", type=Path, metavar="FILE", help="more allowed models: a JSON list of names")
        command.add_argument(
            "--allow-model", action="append", default=[], metavar="NAME", help="one more: a hub id or a local folder"
        )
    return main


def _add_sweep(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=_sweep)
    command.add_argument("--prompts", type=Path, required=True, metavar="FILE", help="CSV, JSON lines, or one a line")
    command.add_argument("--methods", nargs="+", required=True, metavar="METHOD", help="how the length is steered")
    command.add_argument("--targets", nargs="+", type=int, default=[100], metavar="N", help="wanted lengths (100)")
    command.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="N", help="of sampling (0)")
    command.add_argument("--out", type=Path, required=True, metavar="FILE", help="the table, a CSV; goes on with it")
    command.add_argument("--chart", type=Path, metavar="FILE", help="lengths by target, as an HTML file")
    _add_messages(command)
    for name in RunSettings.model_fields:
        if name not in ("prompt", "method", "target", "limit", "seed", "watch", "earlier"):
            _add_field(command, name)


def _add_messages(command: argparse.ArgumentParser) -> None:
    command.add_argument("--system", metavar="TEXT", help="a system prompt; without one the model's own stays")
    command.add_argument(
        "--turns", type=Path, metavar="FILE",
        help='messages before the prompt, the user\'s and the assistant\'s in turn: {"role": …, "content": …} as JSON '
        "lines, or in a JSON list",
    )  # fmt: skip


def _add_settings(command: argparse.ArgumentParser) -> None:
    _add_messages(command)
    for name in RunSettings.model_fields:
        if name not in ("watch", "earlier"):
            _add_field(command, name)
    for name, field in Watch.model_fields.items():
        if name == "enabled":
            command.add_argument(
                "--watch", dest="watch_enabled", action=argparse.BooleanOptionalAction,
                default=argparse.SUPPRESS, help=field.description,
            )
        else:
            command.add_argument(
                f"--watch-{name}", metavar="N", default=argparse.SUPPRESS, help=f"{field.description} ({field.default})"
            )


def _add_field(command: argparse.ArgumentParser, name: str) -> None:
    field = RunSettings.model_fields[name]
    required = field.is_required() and command.get_default("run") is _generate
    flags = FLAGS.get(name, [f"--{name.replace('_', '-')}"])
    meaning = (field.description or name.replace("_", " ")).replace("%", "%%")
    default = "" if field.is_required() or field.default is None else f" ({field.default})"
    if field.annotation is bool:
        command.add_argument(
            *flags, dest=name, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=meaning
        )
        return
    choices = "|".join(get_args(field.annotation)) if get_origin(field.annotation) is Literal else "VALUE"
    command.add_argument(
        *flags, dest=name, required=required, metavar=choices, default=argparse.SUPPRESS, help=meaning + default
    )


def settings_of(options: dict[str, Any]) -> RunSettings:
    """RunSettings of the options given; pydantic's ValidationError, a ValueError, where one of them is wrong."""
    values = {name: value for name, value in options.items() if name in RunSettings.model_fields}
    watch = {name: options[f"watch_{name}"] for name in Watch.model_fields if f"watch_{name}" in options}
    if values.get("prompt") == "-":
        values["prompt"] = typed()
    if earlier := _earlier(options.get("system"), options.get("turns")):
        values["earlier"] = earlier
    return RunSettings(**values, watch=Watch(**watch))


def _earlier(system: str | None, turns: Path | None) -> list[Turn]:
    """The messages before the prompt. ValueError where the file holds none."""
    from backend.record import conversation

    first = [] if system is None else [Turn(role="system", content=system)]
    return first + (conversation.read(turns) if turns else [])


def _sentence(error: ValidationError) -> str:
    """One sentence that names the option that is wrong."""
    first, *rest = error.errors(include_url=False)
    message = str(first["ctx"]["error"]) if first["type"] == "value_error" else _lower(first["msg"])
    if not first["loc"]:
        return message
    name = str(first["loc"][0])
    message = ", or ".join([message, *(_lower(other["msg"]) for other in rest if other["loc"][:1] == first["loc"][:1])])
    if name in ("prompt", "earlier"):
        return message
    flag = f"--watch-{name}" if error.title == "Watch" else FLAGS.get(name, [f"--{name.replace('_', '-')}"])[0]
    return f"{flag} {first['input']}: {message}"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _lab(options: argparse.Namespace) -> Lab:
    from backend.engine import Lab
    from backend.models.pool import Models, allowed

    return Lab(Models(allowed(options.models, options.allow_model)))


def _capabilities(options: argparse.Namespace) -> int:
    chosen = {name: getattr(options, name) for name in ("model", "precision") if hasattr(options, name)}
    settings = settings_of({"prompt": "any", **chosen})
    print(json.dumps(asdict(_lab(options).capabilities(settings.model, settings.precision)), indent=2))
    return 0


def _report(options: argparse.Namespace) -> int:
    from backend.evaluation.report import write

    write()
    return 0


def _generate(options: argparse.Namespace) -> int:
    settings = settings_of(_heeding(options) | vars(options))
    if options.save and not options.save.absolute().parent.is_dir():
        raise Refused(f"--save {options.save}: there is no folder {options.save.absolute().parent}")
    if options.save and options.save.is_dir():
        raise Refused(f"--save {options.save}: this is a folder, name a file in it")
    lab = _lab(options)
    finish = _write(lab, settings, options.json, options.save)
    print(_summary(settings, finish), file=sys.stderr)
    if finish.reason == "error":
        return FAILED
    return STOPPED if finish.reason == "stopped" else 0


def _sweep(options: argparse.Namespace) -> int:
    from backend import sweep

    shared = {name: getattr(options, name) for name in RunSettings.model_fields if hasattr(options, name)}
    shared["earlier"] = _earlier(options.system, options.turns)
    asked = sweep.cases(sweep.prompts(options.prompts), options.methods, options.targets, options.seeds, **shared)
    for file in filter(None, (options.out, options.chart)):
        if not file.absolute().parent.is_dir() or file.is_dir():
            raise Refused(f"{file} cannot be written: name a file in a folder that exists")
    table = sweep.sweep(_lab(options), asked, options.out, say)
    if options.chart:
        offline = {"displaylogo": False, "showSendToCloud": False}
        sweep.chart(table).write_html(options.chart, include_plotlyjs=True, config=offline)
    for line in sweep.summary(table):
        print(line)
    return 0


def _heeding(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that a target asks for where no method is named."""
    from backend.models import adapters

    if not hasattr(options, "target") or hasattr(options, "method"):
        return {}
    return adapters.heeding(getattr(options, "model", "embedded"))


def _write(lab: Lab, settings: RunSettings, as_json: bool, save: Path | None) -> Finish:
    from backend.inference.control import Control
    from backend.record.trace import Trace

    trace, control = Trace(settings), Control()
    with _interruptible(control), StatusLine() as status:
        for event in lab.stream(settings, control):
            trace.append(event)
            print(_line(event) if as_json else _text(event), end="", flush=True)
            if isinstance(event, Step):
                status.show(_progress(settings, event))
    assert trace.finish is not None
    if save:
        trace.capabilities = asdict(lab.capabilities(settings.model, settings.precision))
        trace.save(save)
    return trace.finish


@contextmanager
def _interruptible(control: Control) -> Iterator[None]:
    """The first Ctrl-C ends the run with its Finish; a second one ends the program."""
    before = signal.getsignal(signal.SIGINT)

    def stop(*_: Any) -> None:
        signal.signal(signal.SIGINT, before)
        control.stop()

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _text(event: Step | Finish) -> str:
    """What the terminal shows of an event: the answer, without the thinking before it."""
    if isinstance(event, Finish):
        return "\n"
    return "" if event.thinking else event.text


def _line(event: Step | Finish) -> str:
    from backend.record.schema import FinishRecord, StepRecord

    record = StepRecord if isinstance(event, Step) else FinishRecord
    kind = {"event": "step" if isinstance(event, Step) else "finish"}
    fields = record.model_validate(event).model_dump(mode="json", exclude_none=True)
    plain = json.dumps(kind | fields, ensure_ascii=False, separators=(",", ":"))
    return (plain if carries(plain) else json.dumps(kind | fields, separators=(",", ":"))) + "\n"


def _progress(settings: RunSettings, step: Step) -> str:
    rate = step.index / step.seconds if step.seconds else 0.0
    line = f"{counted(step.index, 'tokens')} · {rate:.1f} tokens/s"
    if step.thinking:
        return f"{line} · thinking"
    if step.goal is None or step.remaining is None:
        return line
    wanted = counted(settings.goal, settings.unit)
    if settings.unit != "tokens":
        wanted += f" ≈ {counted(step.goal, 'tokens')}"
    return f"{line} · {settings.bound} {wanted} · {-step.remaining:+d} so far"


def _summary(settings: RunSettings, finish: Finish) -> str:
    if finish.reason == "error":
        return finish.message
    parts = [ended(finish, settings), counted(finish.tokens, "tokens"), f"{finish.tokens_per_second:.1f} tokens/s"]
    if finish.thinking_tokens:
        parts.insert(1, f"{counted(finish.thinking_tokens, 'tokens')} of thinking")
    if finish.error is not None:
        parts.append(f"{settings.bound} {counted(settings.goal, settings.unit)}")
        if (missed := settings.missed(finish.error)) is not None:
            parts[-1] += f", error {missed:+d}"
    return " · ".join([*parts, *finish.notes])


def main(arguments: list[str] | None = None) -> int:
    let_any_text_through()
    # What a failed run or load says to people is its sentence, not the traceback that the lab logs.
    logging.getLogger("length_lab").addHandler(logging.NullHandler())
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parser(evaluates=arguments[:1] == ["evaluate"]).parse_args(arguments)
    try:
        return options.run(options)
    except (Refused, ValidationError) as error:
        print(_sentence(error) if isinstance(error, ValidationError) else error, file=sys.stderr)
        return WRONG
    except FloatingPointError as error:
        print(error, file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        # The reader has gone (`| head`): nothing is left to say, and the interpreter must not flush into the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        print(f"{error.filename or 'a file'}: {_lower(error.strerror or str(error))}", file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
