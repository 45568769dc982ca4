"""What visitors may send and hold, so that nobody shuts out the others; `python -m app --help` lists it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.options import option

MB = 1_000_000


@dataclass(frozen=True)
class Limits:
    """Each field is an option of the command line; all are above 0.

    JSON is bounded by its values too: one of two bytes costs Python a hundred and more.
    """

    json_mb: float = option(4, "MB of a request other than an upload")
    json_values: float = option(20_000, "values in a request's JSON")
    json_depth: float = option(32, "lists in lists in a request's JSON")
    upload_mb: float = option(64, "MB of an uploaded file")
    bodies_mb: float = option(64, "MB of all requests, uploads excepted, that are being read at the same time")
    head_seconds: float = option(10, "seconds for a request's head to arrive")
    body_seconds: float = option(30, "seconds for a request, or an upload's next piece, to arrive")
    connections: float = option(1_000, "open connections")
    address_connections: float = option(400, "open connections of one address; behind a proxy all have its address")
    log_kb: float = option(100, "kB written to the terminal in a minute")
    end_seconds: float = option(4, "seconds for runs and answers to end after Ctrl-C or SIGTERM")

    def behind_proxy(self) -> Limits:
        """The same where every connection has the address of one proxy."""
        return replace(self, address_connections=self.connections)
