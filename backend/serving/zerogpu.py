"""A ZeroGPU Space: each run has a GPU for some seconds, in a worker that is forked from this process.

A worker inherits what this process has in memory when the first run begins; nothing that is loaded later is in it. So
all models are loaded before the page is served, in the main thread: in others ZeroGPU puts no emulated GPU. `spaces` is
to be imported before torch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing

from backend.engine import Lab
from backend.inference.control import Control
from backend.models.adapters import available
from backend.models.capabilities import Capabilities
from backend.serving.backend import Status
from backend.serving.control import SharedMemoryControl
from backend.serving.followed_run import FollowedRun
from backend.serving.watched import Watched
from backend.settings import RunSettings
from backend.steps import Finish, Progress, Resumed, Step

# Seconds asked of ZeroGPU: for a worker and its prompt, for a token, and at most; a run that needs more goes on in
# another worker, so many times.
BEGINNING, TOKEN, MOST = 10.0, 0.04, 120.0
MOVES = 10
# What `spaces` says of a worker whose time is over.
ABORTED = "GPU task aborted"
log = logging.getLogger("length_lab")


class ZeroGpuBackend:
    """An `EngineBackend` around a lab. It loads the lab's models: make it in the main thread, before the page."""

    def __init__(self, lab: Lab) -> None:
        import spaces

        self.lab, self.models, self._watched = lab, lab.models, Watched("zerogpu")
        for model in lab.models.names():
            _load(lab, model)

        def write(
            settings: RunSettings, control: Control, progress: bool, resumed: Resumed
        ) -> Iterator[Progress | Step | Finish | Exception]:
            # An error of a worker arrives as its name alone.
            try:
                yield from lab.stream(settings, control, progress, resumed)
            except Exception as error:
                yield error

        self._write = spaces.GPU(write, duration=seconds)

    def stream(
        self,
        settings: RunSettings,
        control: Control | None = None,
        progress: bool = False,
        resumed: Resumed | None = None,
    ) -> Iterator[Progress | Step | Finish]:
        """As `Lab.stream`. Where a worker's time is over, the run goes on in another one."""
        return self._watched.over(self._followed(settings, control, progress, resumed), progress)

    def _followed(
        self, settings: RunSettings, control: Control | None, progress: bool, resumed: Resumed | None
    ) -> Iterator[Progress | Step | Finish]:
        run = FollowedRun(settings, control or Control(), resumed or Resumed(), "GPU worker")
        with closing(SharedMemoryControl()) as shared:
            run.control.passes_on(lambda asked: shared.ask(**asked._asdict()))
            for _ in range(MOVES + 1):
                try:
                    yield from self._written(run, shared, progress)
                    return
                except Exception as error:
                    if getattr(error, "message", "") != ABORTED:
                        raise
                    if run.control.stopped:
                        yield run.stopped()
                        return
                    log.warning("a GPU worker ended, and a run goes on without it")
                    run.moved()
            yield run.failed("the GPU was taken away again and again: try a shorter response")

    def _written(
        self, run: FollowedRun, shared: SharedMemoryControl, progress: bool
    ) -> Iterator[Progress | Step | Finish]:
        events = self._write(run.settings, shared, progress, run.goes_on())
        try:
            for event in events:
                if isinstance(event, Exception):
                    raise event
                yield run.takes(event)
        except GeneratorExit:
            # Closing the worker's events does not wake it amid a step.
            shared.stop()
            events.close()
            raise

    def capabilities(self, model: str = "embedded", precision: str = "bf16") -> Capabilities:
        """As `Lab.capabilities`, of what is loaded."""
        return self.lab.capabilities(model, precision)

    def status(self) -> Sequence[Status]:
        """Of all its workers; memory and processor time are this process's."""
        return [self._watched.status()]


def _load(lab: Lab, model: str) -> None:
    for method, missing in available(model).items():
        if missing is None:
            lab.runner(RunSettings(model=model, method=method, prompt="…"))


def seconds(settings: RunSettings, control: Control, progress: bool, resumed: Resumed) -> int:
    """What a run asks of ZeroGPU, which counts it against the visitor's share."""
    left = settings.max_new_tokens - len(resumed.written)
    return int(min(MOST, BEGINNING + TOKEN * left))
