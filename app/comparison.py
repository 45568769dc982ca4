"""A comparison as files: what its settings wrote step by step, and a table of all their answers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from backend import sweep
from backend.record.trace import Trace
from backend.settings import RunSettings
from backend.steps import Finish

# Of one setting: its name, what it asks for, and how its answers ended, by their seeds.
Answers = tuple[str, RunSettings, dict[int, Finish]]


@dataclass
class Comparison:
    """What was compared. traces: of the first answer of each setting, with its name. answers: all; they grow."""

    traces: Sequence[tuple[str, Trace]]
    answers: list[Answers] = field(default_factory=list)

    def to_zip(self) -> bytes:
        """The traces, each as a run is saved. TraceError where one cannot be saved."""
        packed = io.BytesIO()
        with ZipFile(packed, "w") as file:
            for name, trace in self.traces:
                # Without a date, so that the same runs are the same file.
                file.writestr(ZipInfo(f"length-lab-run-{name}.json"), trace.to_json(), ZIP_DEFLATED)
        return packed.getvalue()

    def to_csv(self) -> str:
        """A row for each answer that has ended, under a sweep's columns, after the name of its setting."""
        rows = [
            [name, *sweep.as_row(settings.model_copy(update={"seed": seed}), one).values()]
            for name, settings, ended in self.answers
            for seed, one in sorted(ended.items())
        ]
        return "".join(map(sweep.line, [["setting", *sweep.COLUMNS], *rows]))
