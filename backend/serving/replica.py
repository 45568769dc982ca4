"""One engine of several: what Ray Serve begins, asks and replaces."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from backend.engine import Lab
from backend.inference.control import Asked, Control
from backend.models.adapters import available
from backend.models.capabilities import Capabilities
from backend.models.pool import Models
from backend.serving.backend import Status
from backend.serving.local import LocalBackend
from backend.serving.watched import STANDSTILL
from backend.settings import RunSettings
from backend.steps import Resumed

# Seconds between two batches of a run's events. A batch costs a millisecond here and where it is read, an event in it a
# tenth of that; the page draws three to five times a second.
PERIOD = 0.25
log = logging.getLogger("length_lab")


class Replica:
    """A lab whose runs are called, and followed, from other processes.

    names: models that may be asked for; the first, and its adapters, are in memory before the replica is ready.
    """

    def __init__(self, names: Sequence[str], name: str) -> None:
        self.backend = LocalBackend(Lab(Models(names)), name)
        self._controls: dict[str, Control] = {}
        self._preload(names[0])

    def _preload(self, model: str) -> None:
        """So that no run waits for a model when it comes from a replica that died."""
        for method, missing in available(model).items():
            if missing is None:
                try:
                    self.backend.lab.runner(RunSettings(model=model, method=method, prompt="…"))
                except Exception as error:
                    log.warning("not preloaded: %s with %s: %s", model, method, error)

    async def stream(
        self, run: str, settings: RunSettings, asked: Asked, progress: bool, resumed: Resumed | None
    ) -> AsyncIterator[list[Any]]:
        """The events of a run as they come, in batches; an empty one first. What ends it is the last of them."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Queue[Any]()
        control = self._controls[run] = Control(asked)

        ended = asyncio.Event()

        def put(item: Any) -> None:
            loop.call_soon_threadsafe(arrived.put_nowait, item)

        def read() -> None:
            try:
                for event in self.backend.stream(settings, control, progress, resumed):
                    put(event)
            except Exception as error:
                put(error)
            put(None)
            loop.call_soon_threadsafe(ended.set)

        try:
            yield []
            threading.Thread(target=read, daemon=True, name="run").start()
            while True:
                batch = [await arrived.get()]
                while not arrived.empty():
                    batch.append(arrived.get_nowait())
                last = batch[-1] is None
                yield batch[:-1] if last else batch
                if last:
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), PERIOD)
        finally:
            # Also where whoever read it is gone.
            control.stop()
            del self._controls[run]

    async def ask(self, run: str, asked: Asked) -> bool:
        """Steers a run if it is this replica's."""
        control = self._controls.get(run)
        if control is not None:
            control.ask(**asked._asdict())
        return control is not None

    async def capabilities(self, model: str, precision: str) -> Capabilities | Exception:
        """As `Lab.capabilities`; what it raises is returned."""
        try:
            return await asyncio.to_thread(self.backend.capabilities, model, precision)
        except Exception as error:
            return error

    async def status(self) -> Status:
        """Its own."""
        return self.backend.status()[0]

    def check_health(self) -> None:
        """RuntimeError where it is to be replaced."""
        if self.backend.watched.stands_still():
            raise RuntimeError(f"no run came forward for {STANDSTILL:.0f} s")
