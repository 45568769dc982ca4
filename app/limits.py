"""What visitors may send and hold, so that nobody shuts out the others; `python -m app --help` lists it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, fields, replace

MB = 1_000_000


def _limit(default: float, about: str) -> float:
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True)
class Limits:
    """Each field is an option of the command line; all are above 0.

    JSON is bounded by its values too: one of two bytes costs Python a hundred and more.
    """

    json_mb: float = _limit(4, "MB of a request other than an upload")
    json_values: float = _limit(20_000, "values in a request's JSON")
    json_depth: float = _limit(32, "lists in lists in a request's JSON")
    upload_mb: float = _limit(64, "MB of an uploaded file")
    bodies_mb: float = _limit(64, "MB of all requests, uploads excepted, that are being read at the same time")
    head_seconds: float = _limit(10, "seconds for a request's head to arrive")
    body_seconds: float = _limit(30, "seconds for a request, or an upload's next piece, to arrive")
    connections: float = _limit(1_000, "open connections")
    address_connections: float = _limit(400, "open connections of one address; behind a proxy all have its address")
    log_kb: float = _limit(100, "kB written to the terminal in a minute")
    end_seconds: float = _limit(4, "seconds for runs and answers to end after Ctrl-C or SIGTERM")

    def behind_proxy(self) -> Limits:
        """The same where every connection has the address of one proxy."""
        return replace(self, address_connections=self.connections)

    @classmethod
    def add_to(cls, parser: argparse.ArgumentParser) -> None:
        """Adds an option for each limit."""
        group = parser.add_argument_group("limits")
        for limit in fields(cls):
            group.add_argument(
                f"--{limit.name.replace('_', '-')}",
                type=_above_zero,
                default=limit.default,
                metavar="N",
                help=f"{limit.metadata['about']} (default {limit.default:,})",
            )

    @classmethod
    def of(cls, given: argparse.Namespace) -> Limits:
        """What the options of `add_to` were given."""
        return cls(**{limit.name: getattr(given, limit.name) for limit in fields(cls)})


def _above_zero(text: str) -> float:
    """The number in a text. Raises argparse.ArgumentTypeError."""
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is no number above 0")
    return number
