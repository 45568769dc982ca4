"""The numbers of one run as they arrive, ready to be drawn: a bounded sample costs the same at any length."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from backend.settings import RunSettings
from backend.steps import Finish, Logits, Reading, Step
from backend.text.units import Growing

_ids = count(1)


@dataclass
class Series:
    """Columns of a run, one entry a response token.

    produced is in the unit of the settings' goal; target likewise (None while nothing steers the length).
    p_model: the model's own p, before penalty, decay and temperature; None in old files. thinking: whether the token
    comes before the answer; thought: how many do.
    p_eos has one entry more where the run ended by EOS: the chance with which that was chosen.
    entropy holds one array [layers] a token, the mean over heads in nats; states one [d] a token; both possibly empty.
    extremes: lowest and highest of all logits seen since their layer and head are watched.
    """

    settings: RunSettings
    run: int = field(default_factory=lambda: next(_ids))
    text: list[str] = field(default_factory=list)
    p: list[float] = field(default_factory=list)
    p_model: list[float | None] = field(default_factory=list)
    thinking: list[bool] = field(default_factory=list)
    p_eos: list[float] = field(default_factory=list)
    spread: list[float] = field(default_factory=list)
    remaining: list[int | None] = field(default_factory=list)
    produced: list[int] = field(default_factory=list)
    target: list[int | None] = field(default_factory=list)
    context: list[int] = field(default_factory=list)
    attended: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    entropy: list[np.ndarray] = field(default_factory=list)
    states: list[np.ndarray] = field(default_factory=list)
    reading: Reading | None = None
    logits: Logits | None = None
    extremes: tuple[float, float] = (math.inf, -math.inf)
    finish: Finish | None = None

    def __post_init__(self) -> None:
        self._length = Growing(self.settings.goal_unit)
        self.thought = 0

    def __len__(self) -> int:
        return len(self.p)

    @classmethod
    def of(cls, settings: RunSettings, events: Iterable[Step | Finish]) -> Series:
        """A whole recorded run."""
        series = cls(settings)
        for event in events:
            series.add(event)
        return series

    def add(self, event: Step | Finish) -> None:
        """Takes one event of the run."""
        if isinstance(event, Finish):
            self.finish = event
            if event.p_eos is not None:
                self.p_eos.append(event.p_eos)
            return
        self.produced.append(self._produced(event))
        self.target.append(event.wanted)
        self.text.append(event.text)
        self.p.append(event.p)
        self.p_model.append(event.p_model)
        self.thinking.append(event.thinking)
        self.p_eos.append(event.p_eos)
        self.spread.append(event.spread)
        self.remaining.append(event.remaining)
        self.context.append(event.context)
        self.attended.append(event.attended)
        self.seconds.append(event.seconds)
        if event.entropy is not None:
            self.entropy.append(event.entropy.mean(axis=1, dtype=np.float32))
        if event.state is not None:
            self.states.append(event.state)
        self.reading = event.reading or self.reading
        if event.logits is not None:
            self._see(event.logits)

    @property
    def answer(self) -> str:
        """The text so far, without the thinking before it."""
        return "".join(text for text, thinking in zip(self.text, self.thinking, strict=True) if not thinking)

    @property
    def error(self) -> int | None:
        """Signed error so far, produced − target, in the unit of the goal."""
        if self.finish is not None:
            return self.finish.error
        if not self.target or self.target[-1] is None:
            return None
        return self.produced[-1] - self.target[-1]

    @property
    def speed(self) -> float:
        """Tokens a second over the last 32 tokens, or of the whole run once it ended."""
        if self.finish is not None:
            return self.finish.tokens_per_second
        recent = self.seconds[-33:]
        span = recent[-1] - recent[0] if len(recent) > 1 else 0.0
        return (len(recent) - 1) / span if span > 0 else 0.0

    def predicted_stop(self) -> float | None:
        """Token at which the run would end on average if p(EOS) stayed at its mean over the last 8 tokens."""
        hazard = float(np.mean(self.p_eos[-8:])) if self.p_eos else 0.0
        return len(self) + (1 - hazard) / hazard if hazard > 1e-6 else None

    def _see(self, logits: Logits) -> None:
        before = self.logits
        if before is None or (before.layer, before.head) != (logits.layer, logits.head):
            self.extremes = (math.inf, -math.inf)
        low, high = self.extremes
        self.extremes = (min(low, float(logits.low.min())), max(high, float(logits.high.max())))
        self.logits = logits

    def _produced(self, step: Step) -> int:
        if step.thinking:
            self.thought += 1
            return 0
        return step.index - self.thought if self.settings.goal_unit == "tokens" else self._length.add(step.text)


def sample(n: int, limit: int) -> np.ndarray:
    """At most about `limit` of the indices 0 … n − 1, the last one included.

    The stride is a power of two, so that points stay where they are while a run grows.
    """
    if n <= 0:
        return np.zeros(0, dtype=np.int64)
    stride = 1 << max(0, int(np.ceil(np.log2(n / limit))))
    picked = np.arange(0, n, stride)
    return picked if picked[-1] == n - 1 else np.append(picked, n - 1)


def pick(column: Sequence, indices: np.ndarray) -> np.ndarray:
    """The values of a column at the indices, as float64 (None becomes nan)."""
    return np.array([np.nan if column[i] is None else column[i] for i in indices], dtype=np.float64)
