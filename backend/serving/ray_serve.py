"""Replicas on Ray Serve, and a run that goes on at another one when its own dies.

    python -m app --replicas 2

begins a local cluster and a page whose runs two processes write. `--ray ADDRESS` joins a cluster that is there.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from backend.inference.control import Asked, Control
from backend.models.capabilities import Capabilities
from backend.models.pool import Models
from backend.refused import Refused
from backend.serving.backend import Status
from backend.serving.deployment import Deployment
from backend.serving.followed_run import FollowedRun
from backend.settings import RunSettings
from backend.steps import Finish, Progress, Resumed, Step, Waiting

APPLICATION, DEPLOYMENT = "length-lab", "Replica"
# Times that a run goes on elsewhere, and seconds that it waits for a replica to take it.
MOVES, PATIENCE = 3, 60.0
# Seconds within which a replica answers what is asked of all.
ANSWER = 10.0
# Seconds within which a cluster is reached at its address.
REACHED_SECONDS = 5.0
ROOT = Path(__file__).parents[2]
log = logging.getLogger("length_lab")


def application(names: Sequence[str], deployment: Deployment) -> Any:
    """What `serve.run` takes: replicas that may load the named models."""
    from ray import serve

    from backend.serving.replica import Replica

    class Named(Replica):
        def __init__(self, names: Sequence[str]) -> None:
            super().__init__(names, serve.get_replica_context().replica_id.unique_id)

    return serve.deployment(name=DEPLOYMENT, **deployment.options())(Named).bind(list(names))


def built(arguments: dict[str, Any]) -> Any:
    """The same for a cluster's own configuration. arguments: models (names), and fields of `Deployment`."""
    from backend.models.pool import allowed

    numbers = dict(arguments)
    return application(allowed(None, numbers.pop("models", [])), Deployment(**numbers))


def begin(names: Sequence[str], deployment: Deployment, address: str | None = None) -> RayServeBackend:
    """Joins the cluster at `address`, or begins one on this machine, and its replicas. Refused with a sentence."""
    if address is not None:
        _reach(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray lets its workers give way to all else, the page included, whose visitors wait for them.
    os.environ.setdefault("RAY_worker_niceness", "0")
    try:
        import ray
        from ray import serve
    except ImportError as error:
        raise Refused(
            "Ray Serve is not installed: install it with `pip install -r requirements-ray.txt`"
        ) from error
    # Processes of the cluster find the lab where this one found it.
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    try:
        ray.init(
            address=address, ignore_reinit_error=True, include_dashboard=None if address else False,
            log_to_driver=False, configure_logging=False,
            num_cpus=None if address else max(2, deployment.most * deployment.replica_cores + 1),
        )  # fmt: skip
    except (ConnectionError, ValueError) as error:
        raise _unanswered(address, error) from error
    serve.start(proxy_location="Disabled")
    # Pages of one cluster share its replicas.
    if APPLICATION in serve.status().applications:
        handle = serve.get_app_handle(APPLICATION)
    else:
        handle = serve.run(application(names, deployment), name=APPLICATION, route_prefix=None)
    return RayServeBackend(handle, Models(names))


def _reach(address: str) -> None:
    """Ray itself tries for minutes to join what is not there. Refused where nothing listens at HOST:PORT."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACHED_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise _unanswered(address, error) from error


def _unanswered(address: str | None, error: Exception) -> Refused:
    return Refused(f"no Ray cluster answers at {address} ({error}): begin one, or leave --ray out")


def end() -> None:
    """Ends what `begin` began; runs that are under way end with it."""
    import ray
    from ray import serve

    serve.shutdown()
    ray.shutdown()


class RayServeBackend:
    """An `EngineBackend` in front of a deployment's handle."""

    def __init__(self, handle: Any, models: Models) -> None:
        self._handle, self.models = handle, models
        # What is asked of a run must not wait for a replica that does not answer.
        self._asking = ThreadPoolExecutor(8, thread_name_prefix="asking")

    def stream(
        self,
        settings: RunSettings,
        control: Control | None = None,
        progress: bool = False,
        resumed: Resumed | None = None,
    ) -> Iterator[Progress | Step | Finish]:
        """As `Lab.stream`. The run goes on at another replica where its own is gone, at most `MOVES` times."""
        from ray.exceptions import ActorDiedError, ActorUnavailableError

        run = FollowedRun(settings, control or Control(), resumed or Resumed(), "replica")
        for _ in range(MOVES + 1):
            call = _Call(self._handle, self._asking, run, progress)
            try:
                yield from call.events()
                return
            except (ActorDiedError, ActorUnavailableError) as error:
                log.warning("a replica is gone, and a run goes on without it: %s", error)
                call.end()
                run.moved()
                if progress and not run.written:
                    yield Waiting(0)
            finally:
                call.end()
        yield run.failed(f"the replicas that wrote this ended {MOVES + 1} times: press Generate to begin again")

    def capabilities(self, model: str = "embedded", precision: str = "bf16") -> Capabilities:
        """As `Lab.capabilities`."""
        found = self._handle.capabilities.remote(model, precision).result()
        if isinstance(found, Exception):
            raise found
        return found

    def status(self) -> Sequence[Status]:
        """Of each replica."""
        return self._handle.broadcast("status").results(timeout_s=ANSWER)


class _Call:
    """A run at one replica, from its call to its end."""

    def __init__(self, handle: Any, asking: ThreadPoolExecutor, run: FollowedRun, progress: bool) -> None:
        self.name = uuid.uuid4().hex
        self._handle, self._asking, self._run = handle, asking, run
        self._sent = run.control.asked
        self._taken, self._ended, self._late = False, False, False
        self._batches = handle.options(stream=True).stream.remote(
            self.name, run.settings, self._sent, progress, run.goes_on()
        )
        self._patience = threading.Timer(PATIENCE, self._gives_up)
        self._patience.daemon = True

    def events(self) -> Iterator[Progress | Step | Finish]:
        """Raises what the replica's lab raises, and what says that the replica is gone."""
        from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RequestCancelledError

        self._patience.start()
        self._run.control.passes_on(self._asks)
        try:
            for batch in self._batches:
                self._begun()
                for event in batch:
                    if isinstance(event, Exception):
                        raise event
                    yield self._run.takes(event)
        except BackPressureError as error:
            raise Refused("many runs wait already: try again in a minute") from error
        except DeploymentUnavailableError as error:
            raise Refused("no replica can be begun: look at the cluster's logs, then try again") from error
        except RequestCancelledError:
            if self._late:
                yield self._run.failed("no replica took the run within a minute: try again")
            else:
                yield self._run.stopped()

    def _begun(self) -> None:
        if self._taken:
            return
        self._taken = True
        self._patience.cancel()
        # Asked after the call, and before the replica knew the run.
        if self._run.control.asked != self._sent:
            self._send()

    def _gives_up(self) -> None:
        if not self._taken:
            self._late = True
            self._cancel()

    def _asks(self, asked: Asked) -> None:
        if self._ended or asked == self._sent:
            return
        if self._taken:
            self._send()
        elif asked.stopped:
            self._cancel()

    def _send(self) -> None:
        self._asking.submit(self._sends)

    def _sends(self) -> None:
        """The newest alone: one that waited in the meantime says no more."""
        asked = self._run.control.asked
        if self._ended or asked == self._sent:
            return
        self._sent = asked
        try:
            self._handle.broadcast("ask", self.name, asked).results(timeout_s=ANSWER)
        except Exception as error:
            log.warning("a run could not be steered: %s", error)

    def end(self) -> None:
        """Lets the replica go: a run that goes on there is ended."""
        if not self._ended:
            self._ended = True
            self._patience.cancel()
            self._cancel()

    def _cancel(self) -> None:
        # One that was refused, or whose replica is gone, has nothing to be cancelled, and raises that.
        with suppress(Exception):
            self._batches.cancel()
