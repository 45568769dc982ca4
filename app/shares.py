"""What one visitor may have at a time, so that there is enough for all; `python -m app --help` lists it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, fields


def _share(default: int, about: str) -> int:
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True)
class Shares:
    """Each field is an option of the command line; all are above 0. A press is whatever is no run: Stop, an export."""

    visitor_runs: int = _share(16, "runs of one visitor that wait or go on")
    visitor_presses: int = _share(64, "presses of one visitor that wait to be answered")
    address_visitors: int = _share(8, "times as many runs and presses as a visitor's for one address")
    unread_seconds: int = _share(300, "seconds that a run waits for somebody to read it")
    kept_seconds: int = _share(60, "seconds that what a visitor had is kept after they left")
    visitor_mb: int = _share(128, "MB of uploads and exports of one visitor; eight times as much of all together")

    @classmethod
    def add_to(cls, parser: argparse.ArgumentParser) -> None:
        """Adds an option for each share."""
        group = parser.add_argument_group("shares")
        for share in fields(cls):
            group.add_argument(
                f"--{share.name.replace('_', '-')}",
                type=_above_zero,
                default=share.default,
                metavar="N",
                help=f"{share.metadata['about']} (default {share.default:,})",
            )

    @classmethod
    def of(cls, given: argparse.Namespace) -> Shares:
        """What the options of `add_to` were given."""
        return cls(**{share.name: getattr(given, share.name) for share in fields(cls)})


def _above_zero(text: str) -> int:
    """The whole number in a text. Raises argparse.ArgumentTypeError."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number above 0")
    return int(text)
