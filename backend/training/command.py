"""The commands `train`, `sharpen`, `headlines`, `gaps` and `distill`."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import MISSING, fields
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from backend.methods import methods
from backend.models import headlines
from backend.models.adapters import other_models
from backend.models.headlines import TargetTokens
from backend.refused import Refused
from backend.terminal import say
from backend.training.settings import PRESETS, HeadlineSettings, SharpenSettings, TrainSettings

if TYPE_CHECKING:
    from backend.models.pool import Loaded

# As 000 takes of OpenOrca.
HUB_ROWS = 100_000


def add(commands: Any) -> None:
    """Add them to the subparsers of `python -m backend`."""
    _add_train(commands.add_parser("train", help="fine-tune an adapter for a length method", allow_abbrev=False))
    _add_sharpen(commands.add_parser("sharpen", help="let an adapter practise on its answers", allow_abbrev=False))
    _add_headlines(commands.add_parser("headlines", help="train the headline model", allow_abbrev=False))
    _add_gaps(commands.add_parser("gaps", help="write a first lesson for the headline model", allow_abbrev=False))
    _add_distill(commands.add_parser("distill", help="write a corpus in a model's own words", allow_abbrev=False))


def _add_train(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=_train)
    command.add_argument("--out", type=Path, required=True, help="folder to write the adapter to")
    command.add_argument(
        "--data", type=Path, action="append", default=[], help="a JSON-lines file of prompts and responses; may repeat"
    )
    command.add_argument(
        "--hub", action="append", default=[], metavar="NAME[:ROWS]", help=f"a set on the hub ({HUB_ROWS}); may repeat"
    )
    command.add_argument("--note", default="", help="on the licences of the texts, for the model card")
    command.add_argument("--preset", choices=sorted(PRESETS), help="settings to start from")
    for field in fields(TrainSettings):
        flag = f"--{field.name.replace('_', '-')}"
        default = "" if field.default is MISSING or field.default is None else f" ({field.default})"
        if field.name == "method":
            trained = [method.name for method in methods if method.adapter or method.encoder_decoder]
            command.add_argument(flag, choices=trained, required=True, help="length method")
        elif isinstance(field.default, bool):
            command.add_argument(flag, action="store_true", default=argparse.SUPPRESS)
        elif isinstance(field.default, tuple):
            many: dict[str, Any] = {"type": float, "nargs": 2} if field.default else {"type": int, "nargs": "+"}
            command.add_argument(flag, default=argparse.SUPPRESS, help=f"numbers{default}", **many)
        else:
            kind = str if field.default is None else type(field.default)
            command.add_argument(flag, type=kind, default=argparse.SUPPRESS, help=default.strip())


def _add_sharpen(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=_sharpen)
    command.add_argument("--out", type=Path, required=True, help="folder to write the adapter to")
    command.add_argument("--data-folder", type=Path, required=True, help="folder of the data sets")
    command.add_argument("--model", default="embedded")
    command.add_argument("--note", default="", help="on the licences of the texts, for the model card")
    for field in fields(SharpenSettings):
        flag, default = f"--{field.name.replace('_', '-')}", field.default
        if default is MISSING:
            command.add_argument(flag, required=True, help="the adapter to go on from")
        else:
            command.add_argument(flag, type=type(default), default=default, help=f"({default})")


def _add_headlines(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=_headlines)
    command.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    command.add_argument("--data", type=Path, required=True, help="folder of train.jsonl and valid.jsonl")
    command.add_argument("--note", default="", help="on where the texts are from, for the model card")
    for field in fields(HeadlineSettings):
        flag, default = f"--{field.name.replace('_', '-')}", field.default
        if isinstance(default, bool):
            command.add_argument(flag, action="store_true", help=f"({default})")
            continue
        kind, shown = (str, "none") if default is None else (type(default), default)
        choices = get_args(TargetTokens) if field.name == "target_tokens" else None
        command.add_argument(flag, type=kind, default=default, choices=choices, help=f"({shown})")


def _add_gaps(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=_gaps)
    command.add_argument("--out", type=Path, required=True, help="folder to write train.jsonl and valid.jsonl to")
    command.add_argument("--data", type=Path, required=True, help="folder of the headlines' train and valid.jsonl")
    command.add_argument("--texts", type=Path, nargs="+", default=[], help="JSON-lines files of prompts and responses")
    command.add_argument("--seed", type=int, default=0)


def _add_distill(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=_distill)
    command.add_argument("--out", type=Path, required=True, help="the corpus to write; a stopped call goes on with it")
    command.add_argument("--model", default="embedded")
    command.add_argument("--questions", type=int, default=1000, help="questions to sample from the model (1000)")
    command.add_argument(
        "--begins", nargs="+", default=[""], metavar="TEXT", help="how the sampled questions begin, in turn"
    )
    command.add_argument(
        "--prompts", type=Path, action="append", default=[], help="JSON lines of prompts or abstracts; may repeat"
    )
    command.add_argument("--longest", type=int, default=256, help="cap on an answer's tokens (256)")
    command.add_argument("--longest-prompt", type=int, default=400, help="tokens of the longest prompt asked (400)")
    command.add_argument("--turns", type=int, default=4, help="answers to each question, one for each hint at most (4)")
    hints = command.add_mutually_exclusive_group()
    hints.add_argument("--no-hints", action="store_true", help="ask for no length: answers as long as they come")
    hints.add_argument("--words", type=int, nargs="+", help="ask for so many words, in the place of the usual hints")
    command.add_argument("--seed", type=int, default=0)


def _train(options: argparse.Namespace) -> int:
    names = {field.name for field in fields(TrainSettings)}
    given = {name: value for name, value in vars(options).items() if name in names}
    settings = TrainSettings(**{**PRESETS.get(options.preset, {}), **given})
    method, encoder = methods[settings.method], _has_encoder(settings.model)
    if not (method.works_with(encoder) and (encoder or method.adapter)):
        raise Refused(f"{other_models(settings.method)}, as far as training goes: choose another method or model")
    if encoder:
        return _train_on_pairs(options, settings)
    if settings.beside or settings.left_out or settings.seconds:
        raise Refused("--beside, --left-out and --seconds are for models that have an encoder: leave them out")
    if not options.data and not options.hub:
        raise Refused("nothing to train on: give --data FILE (see `python -m backend distill`), or --hub NAME")
    from backend.inference.precision import precision
    from backend.training.data import corpus, hub_texts, samples
    from backend.training.train import train

    read = corpus(options.data)
    loaded = _loaded(settings.model, "4bit" if settings.load_in_4bit else precision())
    read += [text for name, rows in map(_hub, options.hub) for text in hub_texts(name, rows, settings.seed)]
    shortest = settings.shortest if settings.longform else 0
    found = samples(read, loaded.tokenizer, settings.longest_prompt, settings.longest, shortest, settings.ended)
    print(f"{len(found):,} samples from {len(read):,} texts", flush=True)
    sources = Counter(sample.source for sample in found)
    adapter = train(loaded, found, settings, options.out, say, sources, options.note)
    print(f"adapter in {adapter.path}")
    return 0


def _has_encoder(model: str) -> bool:
    from backend.models.capabilities import writes_of_a_source
    from backend.models.pool import config

    return model == headlines.NAME or writes_of_a_source(config(model))


def _sharpen(options: argparse.Namespace) -> int:
    from backend.inference.precision import precision
    from backend.splits import TARGETS, prompts
    from backend.training.data import prompts_of
    from backend.training.sharpen import Asked, sharpen

    given = {field.name: getattr(options, field.name) for field in fields(SharpenSettings)}
    settings, folder = SharpenSettings(**given), options.data_folder
    files = {"instructions": "instructions.jsonl", "abstracts": "scitldr_train.jsonl"}
    found = [Asked(kind, text) for kind, file in files.items() for text in prompts_of(folder / file)]
    validation = [*zip((prompt.text for prompt in prompts("validation", folder)), cycle(TARGETS), strict=False)]
    loaded = _loaded(options.model, precision())
    print(f"adapter in {sharpen(loaded, found, validation, settings, options.out, say, options.note).path}")
    return 0


def _train_on_pairs(options: argparse.Namespace, settings: TrainSettings) -> int:
    from backend.encoder_decoder import model, pairs
    from backend.training import encoder_decoder

    if options.hub or settings.start:
        raise Refused("--hub and --start are for models without an encoder: give --data FILE alone")
    if not options.data:
        raise Refused("nothing to train on: give --data FILE, JSON lines with a source and a headline")
    found = [pair for file in options.data for pair in pairs.read(file)]
    writer = model.load(settings.model)
    adapter = encoder_decoder.train(
        writer.model, writer.tokenizers, found, settings, options.out, say, options.note
    )
    print(f"adapter in {adapter.path}")
    return 0


def _headlines(options: argparse.Namespace) -> int:
    from backend.encoder_decoder.pairs import read
    from backend.training.encoder_decoder import VALIDATED, train_base

    settings = HeadlineSettings(**{field.name: getattr(options, field.name) for field in fields(HeadlineSettings)})
    valid = read(options.data / "valid.jsonl", VALIDATED)
    train_base(read(options.data / "train.jsonl"), valid, settings, options.out, say, options.note)
    print(f"model in {options.out}")
    return 0


def _gaps(options: argparse.Namespace) -> int:
    from backend.training.gap_sentences import write

    print(f"{write(options.data, options.texts, options.out, options.seed):,} pairs in {options.out}")
    return 0


def _hub(asked: str) -> tuple[str, int]:
    """A data set's name and how many of its rows are wanted. ValueError for another number than one from 1."""
    name, _, rows = asked.partition(":")
    if rows and not (rows.isdecimal() and int(rows)):
        raise Refused(f"--hub {asked}: give NAME, or NAME:ROWS with a number of rows from 1")
    return name, int(rows or HUB_ROWS)


def _distill(options: argparse.Namespace) -> int:
    from backend.training.data import prompts_of
    from backend.training.distill import HINTS, distill, words_hint

    hints = ("",) if options.no_hints else tuple(map(words_hint, options.words or ())) or HINTS
    if not 1 <= options.turns <= max(4, len(hints)):
        raise Refused(f"--turns {options.turns}: give 1 to {max(4, len(hints))}")
    prompts = []
    for file in options.prompts:
        prompts += [(file.stem, prompt) for prompt in prompts_of(file)]
    loaded = _loaded(options.model, "bf16")
    pairs = distill(
        loaded, options.out, options.questions, prompts, options.longest, options.turns, options.seed, say, hints,
        options.begins, options.longest_prompt,
    )  # fmt: skip
    print(f"{pairs:,} pairs in {options.out}")
    return 0


def _loaded(model: str, precision: str) -> Loaded:
    from backend.models.pool import Models, allowed

    return Models(allowed(more=[model])).load(model, precision)
