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
    most_replicas: int = _number(2, "replicas at most, where these are more: they are begun while runs wait")
    replica_cores: int = _number(1, "processors of each replica")
    replica_runs: int = _number(48, "runs that a replica is given, and eight ahead; it writes 48 at a time")
    queued_runs: int = _number(64, "runs that wait for a replica; more are refused")
    drain_seconds: int = _number(120, "seconds that the runs of a replica have to end when it is taken away")

    @property
    def most(self) -> int:
        """Replicas that there may be."""
        return max(self.replicas, self.most_replicas)

    def options(self) -> dict[str, Any]:
        """As Ray Serve has them. Some runs more are sent to a replica, so that the next one is there when a place is
        free."""
        number: dict[str, Any] = {"num_replicas": self.replicas}
        if self.most > self.replicas:
            number = {
                "autoscaling_config": {
                    "min_replicas": self.replicas,
                    "max_replicas": self.most,
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
