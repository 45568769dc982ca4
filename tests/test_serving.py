"""The engine in this process as a backend, and how it says that it stands still."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import httpx
import pytest
import yaml
from serving import ASKED, Contract
from visiting import serving

from app.metrics import written
from backend import Lab
from backend.models.pool import Models
from backend.refused import Refused
from backend.serving import ray_serve, watched
from backend.serving.backend import Status
from backend.serving.deployment import Deployment
from backend.serving.local import LocalBackend

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "assets" / "deploy"
REQUIRED = (ROOT / "requirements-ray.txt").read_text("utf-8").splitlines()


class TestLocal(Contract):
    """A lab."""

    @pytest.fixture(scope="class")
    def backend(self, lab: Lab) -> LocalBackend:
        return LocalBackend(lab)


def test_an_engine_stands_still_only_where_a_run_that_has_begun_waits_for_it(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(watched.time, "monotonic", lambda: now[0])
    backend = LocalBackend(Lab(Models(["embedded"])))
    asked = []

    class Events:
        """Asks, amid the lab's next event, whether it stands still after so many seconds."""

        def __init__(self, seconds):
            self.seconds = iter(seconds)

        def __next__(self):
            now[0] += next(self.seconds)
            asked.append(backend.watched.stands_still())
            return "event"

        def close(self):
            pass

    # Loading a model may take long; between two events it may not; a reader that takes its time is no standstill.
    monkeypatch.setattr(backend.lab, "stream", lambda *given, **more: Events([500, 59, 61]))
    events = backend.stream(ASKED)
    next(events), next(events)
    now[0] += 1000
    assert not backend.watched.stands_still()
    next(events)
    events.close()
    assert asked == [False, False, True] and not backend.watched.stands_still()


def test_a_deployment_grows_where_it_may():
    assert Deployment(replicas=3, most_replicas=3).options()["num_replicas"] == 3
    more = Deployment(replicas=4)
    assert more.options()["num_replicas"] == more.most == 4
    grows = Deployment(replicas=1, most_replicas=4).options()
    assert "num_replicas" not in grows and grows["autoscaling_config"]["max_replicas"] == 4


def test_the_page_tells_what_its_engine_does(held_lab):
    with serving(held_lab) as served:
        text = httpx.get(f"{served.address}/lab/metrics").text
        assert 'length_lab_writing{engine="local"} 0' in text and "length_lab_visitors 0" in text


def test_what_a_cluster_is_given_is_what_a_deployment_has():
    service = yaml.safe_load((DEPLOY / "kuberay.yaml").read_text("utf-8"))
    [application] = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    module, name = application["import_path"].split(":")
    assert callable(getattr(importlib.import_module(module), name))
    assert Deployment(**application["args"]).most_replicas == 8
    assert f"ray[serve]=={service['spec']['rayClusterConfig']['rayVersion']}" in REQUIRED


def test_metrics_are_lines_that_prometheus_reads():
    lines = written([Status("a", 7, 2, 1, 340, 10**9, 12.5), Status("b", 8, 0, 0, 3, 10**9, 1.0)], 5).splitlines()
    assert 'length_lab_tokens_total{engine="a"} 340' in lines and "length_lab_visitors 5" in lines
    assert lines.count("# TYPE length_lab_writing gauge") == 1
    assert all(float(line.rsplit(" ", 1)[1]) >= 0 for line in lines if not line.startswith("#"))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "[::1]:1", "127.0.0.1:99999"])
def test_an_address_where_no_cluster_listens_is_refused_at_once(address):
    with pytest.raises(Refused, match=f"no Ray cluster answers at {re.escape(address)} .*: begin one, or leave"):
        ray_serve.begin(["embedded"], Deployment(), address)
