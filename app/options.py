"""Numbers of the command line: each is a field of a frozen dataclass, whose default it shows."""

from __future__ import annotations

import argparse
from dataclasses import Field, field, fields
from typing import Any, TypeVar

Numbers = TypeVar("Numbers")


def option(default: float, about: str) -> Any:
    """A field that is an option too; all are above 0."""
    return field(default=default, metadata={"about": about})


def add_to(parser: argparse.ArgumentParser, title: str, numbers: type) -> None:
    """Adds an option for each field, in a group of this title."""
    group = parser.add_argument_group(title)
    for each in fields(numbers):
        group.add_argument(
            f"--{each.name.replace('_', '-')}",
            type=_whole if _is_whole(each) else _above_zero,
            default=each.default,
            metavar="N",
            help=f"{each.metadata['about']} (default {each.default:,})",
        )


def of(numbers: type[Numbers], given: argparse.Namespace) -> Numbers:
    """What the options of `add_to` were given."""
    return numbers(**{each.name: getattr(given, each.name) for each in fields(numbers)})  # type: ignore[arg-type]


def _is_whole(number: Field[Any]) -> bool:
    return number.type in (int, "int")


def _above_zero(text: str) -> float:
    """The number in a text. Raises argparse.ArgumentTypeError."""
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is no number above 0")
    return number


def _whole(text: str) -> int:
    """The whole number in a text. Raises argparse.ArgumentTypeError."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number above 0")
    return int(text)
