"""An experiment: what it asks, its options, how it is measured case by case, and the card of its results.

A file of `backend/evaluation/experiments` that defines one is all that it takes: the command line, the report and the
Evidence tab read the registry. `eos_probe.py` is one to copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from backend.evaluation.card import Card
from backend.record.results import as_kept
from backend.refused import Refused

if TYPE_CHECKING:
    from backend.engine import Lab

Say = Callable[[str], None]
# Result files by their path within assets/results; a result as its file holds it.
Results = Mapping[str, Any]
Result = Mapping[str, Any]
Row = dict[str, Any]


class Flags(BaseModel):
    """What every experiment takes on the command line; a field more is a flag more."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    out: Path | None = Field(None, description="file to write, or to go on with")


class ModelFlags(Flags):
    """Those of an experiment on any model."""

    model: str = Field("embedded", description="name of the model")

    def lab(self) -> Lab:
        """A lab that may load the model."""
        from backend.engine import Lab
        from backend.models.pool import Models, allowed

        return Lab(Models(allowed(more=[self.model])))


class Case(NamedTuple):
    """key: what its rows have in the columns of `Experiment.key`. measure: its rows."""

    key: Hashable
    measure: Callable[[], Iterable[Row]]


class Plan(NamedTuple):
    """common: what all rows of a result have in common; it stands in the result, and no other is gone on with."""

    common: dict[str, Any]
    cases: Iterable[Case]


class Experiment(ABC):
    """name: of its command. question: one plain sentence, the head of its card. needs: packages of requirements-dev.

    files: the results it shows, patterns within assets/results; it writes the first unless --out says otherwise.
    rows: where the rows stand in a result. key: the columns that name a row's case; without any it is measured anew
    each time. recipe: the modules and arguments that make its results in assets/ anew, where the bare command does not;
    {data} is the folder of data sets, {more} what is added.
    withdrawn: why its figures are not shown.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    question: ClassVar[str]
    paper: ClassVar[str] = ""
    order: ClassVar[int] = 100
    Options: ClassVar[type[Flags]] = Flags
    needs: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]]
    rows: ClassVar[str] = "rows"
    key: ClassVar[tuple[str, ...]] = ()
    recipe: ClassVar[tuple[str, ...]] = ()
    withdrawn: ClassVar[str] = ""

    @property
    def command(self) -> str:
        """What measures it."""
        return f"python -m backend evaluate {self.name}"

    @property
    def resumes(self) -> bool:
        """Whether a stopped measurement goes on."""
        return bool(self.key)

    def file(self, options: Any) -> str:
        """Where a result of these options is kept, within assets/results."""
        return self.files[0]

    def plan(self, options: Any, say: Say) -> Plan:
        """What is to be measured. Errors in what was asked for are `Refused`."""
        raise NotImplementedError

    def summary(self, options: Any, rows: Sequence[Row]) -> dict[str, Any]:
        """What else stands in a result, made of its rows."""
        return {}

    def measure(self, options: Any, before: Result | None, say: Say) -> Iterator[dict[str, Any]]:
        """The result after each case, the last one whole. before: a result to go on from, whose cases are left out."""
        plan = self.plan(options, say)
        rows = [] if before is None else self._measured_before(before, plan.common)
        done = {tuple(row[column] for column in self.key) for row in rows}
        for case in plan.cases:
            if not self.key or case.key not in done:
                rows += case.measure()
                yield plan.common | {self.rows: rows} | self.summary(options, rows)

    def _measured_before(self, before: Result, common: Mapping[str, Any]) -> list[Row]:
        rows = before.get(self.rows)
        if not isinstance(rows, list) or any(column not in row for row in rows for column in self.key):
            raise not_gone_on("it is no result of this command")
        for name, value in common.items():
            if before.get(name) != as_kept(value):
                raise not_gone_on(f"it was measured with {name} {before.get(name)}, not {value}")
        return list(rows)

    @abstractmethod
    def card(self, results: Results) -> Card:
        """What those of `files` show that are there, at least one."""


def not_gone_on(why: str) -> Refused:
    """The error of a result that cannot be gone on from."""
    return Refused(f"what is there cannot be gone on from, {why}: give another --out, or delete it")


def chosen(names: Sequence[str], known: Collection[str]) -> list[str]:
    """The names asked for, or all that are known."""
    if wrong := next((name for name in names if name not in known), None):
        raise Refused(f"there is no {wrong!r}: choose of {', '.join(known)}")
    return list(names or known)
