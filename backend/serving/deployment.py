"""How many replicas there are, how many runs each takes, and when one is replaced."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def _number(default: float, about: str) -> Any:
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True)
class Deployment:
    """Numbers of a deployment on Ray Serve; all are above 0."""

    replicas: int = _number(2, "replicas at least")
    most_replicas: int = _number(2, "replicas at most: more are begun while runs wait")
    replica_cores: int = _number(1, "processors of each replica")
    replica_runs: int = _number(48, "runs that a replica writes at the same time")
    queued_runs: int = _number(64, "runs that wait for a replica; more are refused")
    drain_seconds: int = _number(120, "seconds that the runs of a replica have to end when it is taken away")

    def options(self) -> dict[str, Any]:
        """As Ray Serve has them. A run of its own is written a token at a time: as many as a replica takes are sent to
        it, and some more, so that the next one has read its prompt when a place is free."""
        number: dict[str, Any] = {"num_replicas": self.replicas}
        if self.most_replicas > self.replicas:
            number = {
                "autoscaling_config": {
                    "min_replicas": self.replicas,
                    "max_replicas": self.most_replicas,
                    "target_ongoing_requests": max(1, self.replica_runs / 2),
                    "upscale_delay_s": 10,
                    "downscale_delay_s": 300,
                    "look_back_period_s": 30,
                }
            }
        return number | {
            "max_ongoing_requests": self.replica_runs + 8,
            "max_queued_requests": self.queued_runs,
            "health_check_period_s": 5,
            "health_check_timeout_s": 15,
            "graceful_shutdown_timeout_s": self.drain_seconds,
            "ray_actor_options": {"num_cpus": self.replica_cores},
        }
