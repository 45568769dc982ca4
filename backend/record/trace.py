"""The recorded run: kept, replayed, exported.

>>> trace = Trace(settings, capabilities)
>>> for event in Lab().stream(settings):
...     trace.append(event)
>>> trace.save("run.json.gz")
>>> for event in Trace.load("run.json.gz").events():
...     print(event)
"""
from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from backend.record import bom, export
from backend.record.schema import FinishRecord, Header, StepRecord, TraceRecord
from backend.refused import Refused
from backend.settings import RunSettings
from backend.steps import Finish, Step

FORMAT: str = TraceRecord.model_fields["format"].default
VERSION: int = TraceRecord.model_fields["version"].default
MAX_BYTES = 64 * 1024 * 1024
# Several times as many as the longest run has; each takes up to a hundred bytes when it is parsed.
MAX_VALUES = 8_000_000
GZIP_MAGIC = b"\x1f\x8b"


class TraceError(Refused):
    """A trace that cannot be read or written; the message is a sentence that says why."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass
class Trace:
    """Settings, every step's numbers and the finish of one run.

    capabilities: the model's, as a dictionary of JSON values. created: UTC, ISO 8601. finish: None while it runs.
    A saved trace comes back equal, up to float16 in entropies and states and four digits in logits.
    """

    settings: RunSettings
    capabilities: dict[str, Any] = field(default_factory=dict)
    version: int = VERSION
    created: str = field(default_factory=_now)
    steps: list[Step] = field(default_factory=list)
    finish: Finish | None = None

    def append(self, event: Step | Finish) -> None:
        """Record the next thing a run yields; TraceError once it has finished."""
        if self.finish is not None:
            raise TraceError("the run has finished: start another trace for another run")
        if isinstance(event, Finish):
            self.finish = event
        else:
            self.steps.append(event)

    def events(self) -> Iterator[Step | Finish]:
        """Everything the run yielded, in order."""
        yield from self.steps
        if self.finish is not None:
            yield self.finish

    def to_json(self) -> str:
        """The trace as it is saved; TraceError where a number is not finite or the shapes contradict each other."""
        try:
            record = TraceRecord(
                created=self.created,
                settings=self.settings,
                capabilities=self.capabilities,
                steps=[StepRecord.model_validate(step) for step in self.steps],
                finish=FinishRecord.model_validate(self.finish) if self.finish else None,
            )
            return record.model_dump_json(exclude_none=True)
        except ValueError as error:
            raise TraceError(f"the run cannot be saved: {_reason(error)}") from error

    def to_csv(self) -> str:
        """One row a token, with entropies averaged over heads; text is guarded against spreadsheet formulas."""
        return export.csv_table(self.steps)

    def to_script(self) -> str:
        """A Python script that makes the same run again."""
        return export.script(self.settings, self.steps, self.finish)

    def to_notebook(self) -> dict[str, Any]:
        """A Jupyter notebook (nbformat 4.5 JSON) that makes the same run again and draws its length and entropy."""
        return export.notebook(self.settings, self.steps, self.finish)

    def save(self, path: str | Path) -> Path:
        """Write the trace whole or not at all, gzipped where the name ends in .gz; TraceError if it is over 64 MiB."""
        path = Path(path)
        data = self.to_json().encode()
        if len(data) > MAX_BYTES:
            raise TraceError(
                f"the run is too long to be saved ({len(data) >> 20} MiB, at most {MAX_BYTES >> 20}): "
                "export it as CSV, or record fewer tokens or no probes"
            )
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        scratch.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
        scratch.replace(path)
        return path

    @classmethod
    def load(cls, source: str | Path | bytes) -> Trace:
        """A saved trace, from its path or its bytes; TraceError where it is not one, is damaged or is too large."""
        try:
            data = _unmarked(_plain(source if isinstance(source, bytes) else _read(Path(source))))
            _check_header(data)
            record = TraceRecord.model_validate_json(data)
        except ValidationError as error:
            raise TraceError(f"the trace is damaged: {_reason(error)}") from error
        settings = _meant(record)
        return cls(
            settings=settings,
            capabilities=dict(record.capabilities),
            version=record.version,
            created=record.created,
            steps=[step.event(settings) for step in record.steps],
            finish=record.finish.event() if record.finish else None,
        )


def _meant(record: TraceRecord) -> RunSettings:
    """The settings of a run. In older files a limit counts tokens, whatever the unit: these never estimated it."""
    settings = record.settings
    first = next((step for step in record.steps if step.goal is not None), None)
    counted = first is not None and first.wanted in (first.goal, None) and first.goal != 1
    if settings.limited and settings.unit != "tokens" and counted:
        return settings.model_copy(update={"unit": "tokens"})
    return settings


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return _capped(stream)
    except OSError as error:
        raise TraceError(f"the trace cannot be read: {error.strerror or error}") from error


def _capped(stream: Any) -> bytes:
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise TraceError(f"the file is larger than {MAX_BYTES >> 20} MiB, more than any trace saved here")
    return data


def _plain(data: bytes) -> bytes:
    if len(data) > MAX_BYTES or data[:2] != GZIP_MAGIC:
        return _capped(io.BytesIO(data))
    try:
        return _capped(gzip.GzipFile(fileobj=io.BytesIO(data)))
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError("the file is a damaged gzip archive: save or download the trace again") from error


def _unmarked(data: bytes) -> bytes:
    """UTF-8 without a byte order mark; what cannot be decoded is left to the header's check."""
    if not data.startswith(tuple(bom.MARKS)):
        return data
    try:
        return bom.decoded(data).encode()
    except UnicodeError:
        return data


def _check_header(data: bytes) -> None:
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise TraceError(f"the file holds more values than {MAX_VALUES:,}, more than any trace saved here")
    try:
        header = Header.model_validate_json(data)
    except ValidationError as error:
        raise TraceError("the file is not a trace: choose a .json or .json.gz file saved by Length Lab") from error
    if header.format != FORMAT:
        raise TraceError("the file is not a trace: choose a .json or .json.gz file saved by Length Lab")
    if header.version != VERSION:
        raise TraceError(f"the trace has version {header.version} and this program reads version {VERSION}")


def _reason(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"]))
    words = first["msg"].removeprefix("Value error, ")
    return f"{where}: {words}" if where else words
