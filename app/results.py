"""Recorded measurements: result files in assets/results, read and checked; what is said where one cannot be used."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from app.charts import Chart
from backend.evaluation.files import RESULTS

FOLDER = RESULTS
UNKNOWN = "–"


class Call(BaseModel):
    """One call of the command that made a file, or a part of it."""

    command: str = ""
    commit: str = ""
    date: str = ""

    @property
    def call(self) -> str:
        """Command, commit and date in a line, without what is not known."""
        changed = "+changes" * self.commit.endswith("+changes")
        commit = f"commit {self.commit[:10]}{changed}" if self.commit else ""
        return " · ".join(filter(None, (self.command, commit, self.date[:16].replace("T", " "))))


class Recorded(Call):
    """What every result file says of itself (see backend.evaluation.machine); keys it has besides are kept.

    went_on_from: earlier calls, of which it kept what they had measured.
    """

    model_config = ConfigDict(extra="allow")

    went_on_from: list[Call] = Field(default_factory=list)
    seed: int | None = None
    machine: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, Any] = Field(default_factory=dict)

    @property
    def provenance(self) -> str:
        """Command, commit, date, seed, machine and versions in a line."""
        told = [
            self.call,
            f"seed {self.seed}" if self.seed is not None else "",
            *(_part(key, value) for key, value in self.machine.items() if value is not None),
            *(f"{name} {text(version)}" for name, version in self.versions.items()),
        ]
        return " · ".join(filter(None, told))


R = TypeVar("R", bound=Recorded)


@dataclass(frozen=True)
class Result(Generic[R]):
    """One file: its path within the folder, what it holds, or a sentence on why that cannot be shown."""

    name: str
    data: R | None
    problem: str = ""


@dataclass(frozen=True)
class Table:
    """columns: headings. rows: text; in a short row the second cell reaches as far as is missing.

    quoted: the column, if any, that holds the papers' figures rather than measured ones.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]] = field(default_factory=list)
    quoted: int | None = None


class Figure(NamedTuple):
    """A chart under its heading and hint."""

    title: str
    hint: str
    chart: Chart


@dataclass
class Shown:
    """What a file shows: a sentence, tables, figures, and where a part was measured apart."""

    words: str
    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    apart: str = ""


def read(name: str, command: str, kind: type[R]) -> Result[R]:
    """The file `name` of the folder as `kind`; never raises. command: what makes the file."""
    try:
        return Result(name, kind.model_validate(json.loads((FOLDER / name).read_text("utf-8"))))
    except FileNotFoundError:
        return Result(name, None, f"Not measured yet: {command}")
    except (OSError, ValueError, RecursionError) as error:
        return Result(name, None, f"{name} cannot be used, {_reason(error)}. To make it again: {command}")


def names() -> list[str]:
    """Every result file that is there, as a path within the folder."""
    return sorted(file.relative_to(FOLDER).as_posix() for file in FOLDER.rglob("*.json"))


def route() -> Route:
    """Where result files are downloaded."""
    return Route("/lab/results/{name:path}", _download)


def figure(value: Any) -> str:
    """A number with three significant digits or all of its whole ones; "–" for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return UNKNOWN
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{max(0, digits)}f}" if isinstance(value, float) else f"{value:,}"


def decimal(value: Any) -> str:
    """A number with two decimals; "–" for what is none."""
    return UNKNOWN if figure(value) == UNKNOWN else f"{value:,.2f}"


def signed(value: Any) -> str:
    """A whole number as it is, any other with two decimals, and the sign of either; "–" for what is none."""
    if figure(value) == UNKNOWN:
        return UNKNOWN
    size = f"{abs(value):,.0f}" if float(value).is_integer() else f"{abs(value):,.2f}"
    return ("+" if value > 0 else "−" if value < 0 else "") + size


def percent(share: Any) -> str:
    """A share as a percentage with one decimal; "–" for what is no number."""
    return UNKNOWN if figure(share) == UNKNOWN else f"{100 * share:.1f} %"


def text(value: Any) -> str:
    """Whatever a file may hold, to be read."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return figure(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


async def _download(request: Request) -> Response:
    name = request.path_params["name"]
    return FileResponse(FOLDER / name) if name in names() else Response(status_code=404)


def _part(key: str, value: Any) -> str:
    if key == "memory_bytes" and isinstance(value, int):
        return f"memory {value / 2**30:.1f} GiB"
    return f"{key.replace('_', ' ')} {text(value)}"


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return f"{place or 'its content'}: {first['msg'][:1].lower()}{first['msg'][1:]}"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON (line {error.lineno}, column {error.colno})"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return str(error)
