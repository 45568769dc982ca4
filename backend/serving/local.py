"""The engine in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from backend.engine import Lab
from backend.inference.control import Control
from backend.models.capabilities import Capabilities
from backend.serving.backend import Status
from backend.serving.watched import Watched
from backend.settings import RunSettings
from backend.steps import Finish, Progress, Resumed, Step


class LocalBackend:
    """An `EngineBackend` around a lab. name: in its status."""

    def __init__(self, lab: Lab, name: str = "local") -> None:
        self.lab, self.models, self.watched = lab, lab.models, Watched(name)

    def stream(
        self,
        settings: RunSettings,
        control: Control | None = None,
        progress: bool = False,
        resumed: Resumed | None = None,
    ) -> Iterator[Progress | Step | Finish]:
        """As `Lab.stream`, but that a run can be paused."""
        # A lab that looks into its runs need not know of those that go on.
        more: dict[str, Any] = {} if resumed is None else {"resumed": resumed}
        control = control or Control()
        return control.paced(self.watched.over(self.lab.stream(settings, control, progress=True, **more), progress))

    def capabilities(self, model: str = "embedded", precision: str = "bf16") -> Capabilities:
        """As `Lab.capabilities`."""
        return self.lab.capabilities(model, precision)

    def status(self) -> Sequence[Status]:
        """Its own."""
        return [self.watched.status()]
