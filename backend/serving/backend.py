"""What a page, a program or the API needs of that which writes: a lab in this process, or a stand-in for others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from backend.inference.control import Control
from backend.models.capabilities import Capabilities
from backend.models.pool import Models
from backend.settings import RunSettings
from backend.steps import Finish, Progress, Resumed, Step


@dataclass(frozen=True)
class Status:
    """One engine. name, process: what it is called, its process id. writing, waiting: runs that have a token, and that
    have none yet. tokens: written since it began. memory_bytes: that its process holds. cpu_seconds: of its process."""

    name: str
    process: int
    writing: int
    waiting: int
    tokens: int
    memory_bytes: int
    cpu_seconds: float


class EngineBackend(Protocol):
    """One or more engines. Every argument and every event can be pickled.

    models: which may be asked for, and their tokenizers.
    """

    models: Models

    def stream(
        self,
        settings: RunSettings,
        control: Control | None = None,
        progress: bool = False,
        resumed: Resumed | None = None,
    ) -> Iterator[Progress | Step | Finish]:
        """As `Lab.stream`. Closing the iterator ends the run. While the control is paused nothing is computed, but on a
        GPU that is lent by the second."""
        ...

    def capabilities(self, model: str = "embedded", precision: str = "bf16") -> Capabilities:
        """As `Lab.capabilities`."""
        ...

    def status(self) -> Sequence[Status]:
        """Of each engine that answers."""
        ...
