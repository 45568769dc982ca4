"""A training that ends after so many seconds, whatever the machine does in them."""

from __future__ import annotations

import time
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class Timed(TrainerCallback):
    """Ends a training by its time, or by its steps where those are done first.

    seconds: from the first step on. steps: the most. warmup: steps. kept: times in all that the model is saved, evenly
    over the seconds; at every second one it is validated, if there is what to validate on.
    """

    def __init__(self, seconds: float, steps: int, warmup: int, kept: int = 0):
        self.seconds, self.steps, self.warmup, self.kept = seconds, steps, warmup, kept
        self.began: float | None = None
        self.parts = 0

    def share(self, step: int) -> float:
        """How much is done, from 0 to 1, after so many steps."""
        passed = 0.0 if self.began is None else time.monotonic() - self.began
        return min(1.0, max(passed / self.seconds, step / self.steps))

    def rate(self, step: int) -> float:
        """The learning rate's factor after so many steps: up over the warm-up, down to 0 with what is left to do."""
        return min(1.0, (step + 1) / max(1, self.warmup)) * (1 - self.share(step))

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.began = time.monotonic()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        share = self.share(state.global_step)
        ended = share >= 1
        if self.kept and (ended or share * self.kept >= self.parts + 1):
            self.parts = int(share * self.kept)
            control.should_save = True
            control.should_evaluate = ended or self.parts % 2 == 0
        control.should_training_stop = control.should_training_stop or ended
        return control
