"""The numbers of a run as they arrive, ready to be drawn: a bounded sample costs the same at any length."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from backend.evaluation.perplexity import Chunk
from backend.settings import RunSettings, Unit
from backend.steps import Alternative, Finish, Logits, Reading, Step, TriedEnding
from backend.text.units import Growing

# A browser keeps what runs of an earlier start have drawn: no number comes again.
_ids = count(time.time_ns() // 1000)


@dataclass(frozen=True)
class PastRun:
    """What is remembered of an earlier run of the same visitor."""

    label: str
    unit: Unit
    tokens: int
    produced: int
    error: int | None


@dataclass
class RunSeries:
    """Columns of a run, one entry a step: a token of a response that is written, or a chunk of a text that is read.

    name, words: a letter and the settings in a few words where several runs are drawn together; one alone has none.
    training_length: tokens of the model's training, or None; past: earlier runs. to_read: tokens of the text that is
    read, 0 where a response is written.

    Of every step: context, the tokens read so far, and attended, the keys that its last token saw; entropy, an array
    [layers], the mean over heads in nats; sink_share, an array [layers] of attention on the
    first tokens, at the contexts sink_context; logits,
    the newest, and extremes, the lowest and highest of all since their layer and head are watched. states: rows [d] of
    the first layer, at state_positions. All but the first two may be missing.

    Of a response: produced is in the settings' unit; target likewise (None while nothing steers the
    length). p_model: the model's own p, before penalty, decay and temperature; None in old files. thinking: whether the
    token comes before the answer; thought: how many do. alternatives: the likeliest tokens there; chosen: whether a
    person chose the one that was written. p_eos has one entry more where the run ended by EOS: the chance
    with which that was chosen. reading: what prefill saw. source: an encoder's tokens; looked: arrays of as many shares
    of the attention that chose each token. tried: the endings that landing tried last.

    Of a text: nll, an array of nats a token; throughput in tokens a second; cache_bytes. written: what the model went
    on with.
    """

    settings: RunSettings
    name: str = ""
    words: str = ""
    training_length: int | None = None
    past: Sequence[PastRun] = ()
    to_read: int = 0
    run: int = field(default_factory=lambda: next(_ids))
    context: list[int] = field(default_factory=list)
    attended: list[int] = field(default_factory=list)
    entropy: list[np.ndarray] = field(default_factory=list)
    sink_share: list[np.ndarray] = field(default_factory=list)
    sink_context: list[int] = field(default_factory=list)
    states: list[np.ndarray] = field(default_factory=list)
    state_positions: list[int] = field(default_factory=list)
    logits: Logits | None = None
    extremes: tuple[float, float] = (math.inf, -math.inf)
    text: list[str] = field(default_factory=list)
    p: list[float] = field(default_factory=list)
    p_model: list[float | None] = field(default_factory=list)
    thinking: list[bool] = field(default_factory=list)
    alternatives: list[Sequence[Alternative]] = field(default_factory=list)
    chosen: list[bool] = field(default_factory=list)
    p_eos: list[float] = field(default_factory=list)
    spread: list[float] = field(default_factory=list)
    remaining: list[int | None] = field(default_factory=list)
    produced: list[int] = field(default_factory=list)
    target: list[int | None] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    reading: Reading | None = None
    source: Sequence[str] = ()
    tried: Sequence[TriedEnding] = ()
    looked: list[np.ndarray] = field(default_factory=list)
    finish: Finish | None = None
    nll: list[np.ndarray] = field(default_factory=list)
    throughput: list[float] = field(default_factory=list)
    cache_bytes: list[int] = field(default_factory=list)
    written: str = ""

    def __post_init__(self) -> None:
        self._length = Growing(self.settings.unit)
        self.thought = 0

    def __len__(self) -> int:
        return len(self.context)

    @classmethod
    def of(cls, settings: RunSettings, events: Iterable[Step | Finish], **about: Any) -> RunSeries:
        """A whole recorded run. about: its name, words, training_length and past."""
        series = cls(settings, **about)
        for event in events:
            series.add(event)
        return series

    def add(self, event: Step | Chunk | Finish) -> None:
        """Takes one event of the run."""
        if isinstance(event, Finish):
            self.finish = event
            self.tried = self.tried if event.tried is None else event.tried
            if event.p_eos is not None:
                self.p_eos.append(event.p_eos)
            return
        self.attended.append(event.attended)
        if event.entropy is not None:
            self.entropy.append(event.entropy.mean(axis=1, dtype=np.float32))
        if event.sink_share is not None:
            self.sink_share.append(event.sink_share)
            self.sink_context.append(event.context if isinstance(event, Step) else event.position)
        if event.logits is not None:
            self._see(event.logits)
        if isinstance(event, Step):
            self._write(event)
        else:
            self._read(event)

    @property
    def label(self) -> str:
        """Name and words, as tables and sentences call it."""
        return " · ".join(filter(None, (self.name, self.words))) or "this run"

    @property
    def read(self) -> int:
        """Tokens read so far."""
        return self.context[-1] if self.context else 0

    @property
    def perplexity(self) -> float:
        """exp of the mean nll so far."""
        return float(np.exp(np.mean(np.concatenate(self.nll)))) if self.nll else float("nan")

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

    def _write(self, step: Step) -> None:
        self.context.append(step.context)
        self.produced.append(self._produced(step))
        self.target.append(step.wanted)
        self.text.append(step.text)
        self.p.append(step.p)
        self.p_model.append(step.p_model)
        self.thinking.append(step.thinking)
        self.alternatives.append(step.alternatives or ())
        self.chosen.append(step.chosen)
        self.p_eos.append(step.p_eos)
        self.spread.append(step.spread)
        self.remaining.append(step.remaining)
        self.seconds.append(step.seconds)
        self.reading = step.reading or self.reading
        self.source = step.source or self.source
        self.tried = self.tried if step.tried is None else step.tried
        if step.looked is not None:
            self.looked.append(step.looked)
        if step.state is not None:
            self.states.append(step.state)
            self.state_positions.append(step.context)

    def _read(self, chunk: Chunk) -> None:
        self.context.append(chunk.position)
        self.nll.append(chunk.nll)
        self.throughput.append(chunk.tokens_per_second)
        self.cache_bytes.append(chunk.cache_bytes)
        self.states.extend(chunk.states)
        self.state_positions.extend(chunk.state_positions)

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
        return step.index - self.thought if self.settings.unit == "tokens" else self._length.add(step.text)


def sample(n: int, limit: int) -> np.ndarray:
    """At most about `limit` of the indices 0 … n − 1, the last one included.

    The stride is a power of two, so that points stay where they are while a run grows.
    """
    if n <= 0:
        return np.zeros(0, dtype=np.int64)
    stride = 1 << max(0, int(np.ceil(np.log2(n / limit))))
    picked = np.arange(0, n, stride)
    return picked if picked[-1] == n - 1 else np.append(picked, n - 1)


def stretches(n: int, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each of at most about `limit` stretches of 0 … n − 1 begins, and where it ends, that index not included; of
    no more than `limit` indices each is one."""
    starts = sample(n, limit)[:-1] if n > limit else np.arange(n)
    return starts, np.append(starts[1:], n)


def pick(column: Sequence[Any], indices: np.ndarray) -> np.ndarray:
    """The values of a column at the indices, as float64 (None becomes nan)."""
    return np.array([np.nan if column[i] is None else column[i] for i in indices], dtype=np.float64)
