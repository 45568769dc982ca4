"""A lab whose runs write as far as a test lets them, so that no test depends on how fast the machine is."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

from backend import Finish, Lab, RunSettings, Step
from backend.inference.control import Control
from backend.models.pool import Models
from backend.steps import Prefilling, Progress, Resumed

LOOK = 0.05
# A model that a page offers and that is not there.
MISSING = "/no/such/folder"


class Held(Lab):
    """A lab whose runs wait where a test says; one that is stopped never waits.

    controls, settings: of all that began, in their order.
    """

    def __init__(self, models: Sequence[str]) -> None:
        super().__init__(Models(models))
        self.controls: list[Control] = []
        self.settings: list[RunSettings] = []
        self.free()

    @property
    def control(self) -> Control:
        """Of the run that began last."""
        return self.controls[-1]

    def upto(self, tokens: int) -> None:
        """Lets runs write so many tokens; with 0 they wait before they read their prompt."""
        self._most: float = tokens

    def free(self) -> None:
        """Lets runs write to their end."""
        self._most = math.inf

    def stream(
        self,
        settings: RunSettings,
        control: Control | None = None,
        progress: bool = False,
        resumed: Resumed | None = None,
    ) -> Iterator[Progress | Step | Finish]:
        control = control or Control()
        self.controls.append(control)
        self.settings.append(settings)
        for event in super().stream(settings, control, True, resumed):
            if progress or not isinstance(event, Progress):
                yield event
            if isinstance(event, Step | Prefilling):
                self._waits(event.index if isinstance(event, Step) else 0, control)

    def _waits(self, written: int, control: Control) -> None:
        while written >= self._most and not control.stopped:
            time.sleep(LOOK)
