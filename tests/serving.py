"""What every `EngineBackend` keeps to: one body of tests, which each kind of backend runs."""

from __future__ import annotations

import os
import threading

import pytest

from backend import Finish, Lab, RunSettings, Step
from backend.inference.control import Control
from backend.models.embedded import ModelError
from backend.models.pool import Models
from backend.serving.backend import EngineBackend
from backend.steps import Prefilling, Resumed, Written

ASKED = RunSettings(prompt="Why is the sky blue?", max_new_tokens=30)
DRAWN = ASKED.model_copy(update={"temperature": 0.9, "seed": 5, "max_new_tokens": 24})


class Contract:
    """The tests. A subclass gives the fixture `backend`."""

    @pytest.fixture(scope="class")
    def lab(self) -> Lab:
        """Writes the same in this process."""
        return Lab(Models(["embedded"]))

    def test_a_run_has_the_steps_and_the_end_that_a_lab_gives_it(self, backend: EngineBackend, lab: Lab):
        for asked in (DRAWN, ASKED, ASKED.model_copy(update={"method": "ldpe", "target": 12})):
            *steps, finish = backend.stream(asked)
            *own, end = lab.stream(asked)
            assert [step.token for step in steps] == [step.token for step in own]
            assert (finish.reason, finish.text, finish.error) == (end.reason, end.text, end.error)

    def test_progress_is_given_where_it_is_asked_for(self, backend: EngineBackend):
        assert not any(isinstance(event, Prefilling) for event in backend.stream(ASKED))
        events = list(backend.stream(ASKED, progress=True))
        assert any(isinstance(event, Prefilling) for event in events) and isinstance(events[-1], Finish)

    def test_what_the_probes_see_arrives_whole(self, backend: EngineBackend):
        asked = ASKED.model_copy(update={"watch": ASKED.watch.model_copy(update={"enabled": True})})
        first, *_ = backend.stream(asked)
        assert isinstance(first, Step) and first.entropy.shape == (30, 9) and first.reading.tokens == first.context

    def test_settings_that_cannot_run_are_refused_before_the_first_step(self, backend: EngineBackend):
        with pytest.raises(ModelError, match="allow-list"):
            next(iter(backend.stream(ASKED.model_copy(update={"model": "no/model"}))))
        with pytest.raises(ValueError, match="sft"):
            next(iter(backend.stream(ASKED.model_copy(update={"method": "sft", "model": "no/model"}))))
        with pytest.raises(ModelError):
            backend.capabilities("no/model")

    def test_stop_ends_a_run_within_a_few_tokens(self, backend: EngineBackend):
        control, written = Control(), 0
        for event in backend.stream(ASKED.model_copy(update={"max_new_tokens": 2000, "seed": 1}), control):
            written += isinstance(event, Step)
            if written == 4:
                control.stop()
        assert event.reason == "stopped" and event.tokens == written < 400

    def test_a_run_stopped_before_it_began_writes_nothing(self, backend: EngineBackend):
        control = Control()
        control.stop()
        [finish] = backend.stream(ASKED, control)
        assert finish.reason == "stopped" and finish.tokens == 0

    def test_another_target_is_in_force_soon_and_met(self, backend: EngineBackend):
        control, wanted = Control(), []
        asked = ASKED.model_copy(update={"method": "ldpe", "target": 90, "max_new_tokens": 200})
        for event in backend.stream(asked, control):
            if isinstance(event, Step):
                wanted.append(event.wanted)
                if len(wanted) == 5:
                    control.retarget(60)
        assert wanted[4] == 90 and wanted[-1] == 60 and abs(event.error) <= 3

    def test_a_target_moved_before_the_run_began_holds_from_its_first_token(self, backend: EngineBackend):
        control = Control()
        control.retarget(11)
        first, *_ = backend.stream(ASKED.model_copy(update={"method": "ldpe", "target": 40}), control)
        assert first.wanted == 11

    def test_a_reader_that_goes_ends_its_run(self, backend: EngineBackend):
        events = backend.stream(ASKED.model_copy(update={"max_new_tokens": 4000}))
        for _ in range(3):
            next(events)
        events.close()
        idle(backend)

    def test_runs_at_once_do_not_see_each_other(self, backend: EngineBackend):
        asked = [DRAWN.model_copy(update={"seed": seed}) for seed in range(4)]
        alone = [[*backend.stream(each)][-1].text for each in asked]
        found: dict[int, str] = {}

        def write(number: int) -> None:
            found[number] = [*backend.stream(asked[number])][-1].text

        threads = [threading.Thread(target=write, args=(number,)) for number in range(len(asked))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [found[number] for number in range(len(asked))] == alone

    def test_a_run_goes_on_from_what_was_written(self, backend: EngineBackend):
        *steps, finish = backend.stream(DRAWN)
        begun = Resumed(tuple(Written(step.token, step.wanted) for step in steps[:9]), 1.0)
        *rest, end = backend.stream(DRAWN, resumed=begun)
        assert [step.token for step in rest] == [step.token for step in steps[9:]] and end.text == finish.text

    def test_its_status_counts(self, backend: EngineBackend):
        before = sum(each.tokens for each in backend.status())
        *steps, _ = backend.stream(ASKED)
        engines = backend.status()
        assert sum(each.tokens for each in engines) == before + len(steps)
        assert all(each.memory_bytes > 10**8 and each.cpu_seconds > 0 and each.process for each in engines)

    def test_a_model_is_described(self, backend: EngineBackend):
        assert backend.capabilities().training_length == 8192
        assert backend.models.names() == ["embedded"]


def idle(backend: EngineBackend) -> None:
    """Waits until no engine has a run."""
    from visiting import eventually

    eventually(lambda: not any(each.writing + each.waiting for each in backend.status()), "an idle engine")


def elsewhere(backend: EngineBackend) -> list[int]:
    """Processes of the engines."""
    return [each.process for each in backend.status() if each.process != os.getpid()]
