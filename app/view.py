"""What the page shows of one run, frame by frame, and the one place where the page asks the lab to run."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from pydantic import ValidationError

from app import charts, live, text
from app.charts import Past
from app.frames import Frame
from app.runs import PERIOD, Run, batches, merged
from app.series import Series
from app.share import explain
from backend.models.capabilities import Capabilities
from backend.record.trace import Trace
from backend.refused import Refused
from backend.settings import RunSettings, counted, noun
from backend.steps import Finish, Step
from backend.text.units import characters, words

FIELDS = (
    ("produced", "Produced"),
    ("target", "Target"),
    ("error", "Error"),
    ("p_end", "p(end)"),
    ("speed", "Tokens/s"),
    ("read", "Tokens read"),
    ("cache", "Cache reserved"),
)
SLOW_PERIOD = 12 * PERIOD
PAST_KEPT = 30

log = logging.getLogger("length_lab")


class View:
    """One run as the page shows it: text, figures, the four live charts and, under a policy, perceived positions.

    The principal components and the perceived positions are made at most once in SLOW_PERIOD seconds, everything else
    at each frame.
    """

    def __init__(
        self, settings: RunSettings, past: Sequence[Past] = (), capabilities: Capabilities | None = None
    ) -> None:
        self.series = Series(settings)
        self.trace = Trace(settings)
        self.past = list(past)
        self.frames = 0
        self._text: tuple[Any, ...] = ()
        self._slow: tuple[dict[str, str], float] = ({}, -SLOW_PERIOD)
        self.knows(capabilities)

    @classmethod
    def of(cls, trace: Trace, past: Sequence[Past] = ()) -> View:
        """A recorded run, whole."""
        view = cls(trace.settings, past)
        view.training_length = trace.capabilities.get("training_length")
        view.add(list(trace.events()))
        view.trace = trace
        return view

    def knows(self, capabilities: Capabilities | None) -> None:
        """What model this is, once that is known."""
        self.training_length = capabilities.training_length if capabilities else None
        if capabilities:
            self.trace.capabilities = asdict(capabilities)

    def add(self, events: Iterable[Step | Finish]) -> None:
        """Takes what happened since the last frame."""
        for event in events:
            if isinstance(event, Step) and not len(self.series):
                self._aims(event)
            self.series.add(event)
            self.trace.append(event)

    def _aims(self, first: Step) -> None:
        """A target that was asked for before the first token is the run's own."""
        settings = self.series.settings
        if first.wanted not in (None, settings.goal):
            self.series.settings = self.trace.settings = settings.model_copy(update={settings.bound: first.wanted})

    def cut_short(self, trace: Trace) -> None:
        """Ends what is shown of a recorded run where it was stopped."""
        if trace.finish is None or self.ended:
            return
        series, shown = self.series, self.series.answer
        finish = replace(
            trace.finish,
            reason="stopped",
            text=shown,
            tokens=len(series) - series.thought,
            thinking_tokens=series.thought,
            words=words(shown),
            characters=characters(shown),
            error=series.error,
            decode_seconds=series.seconds[-1] if len(series) else 0.0,
            tokens_per_second=series.speed,
            p_eos=None,
            p_eos_model=None,
            notes=(),
            landed=False,
            own_end=False,
        )
        self.add([finish])

    @property
    def ended(self) -> bool:
        """Whether the last event was seen."""
        return self.series.finish is not None

    def frame(self) -> Frame:
        """The text, the figures and the charts."""
        self.frames += 1
        series = self.series
        self._text = text.pieces(series, self._text)
        drawn = {
            "length": charts.length(series, self.past),
            "entropy": charts.entropy(series),
            "logits": charts.logits(series, self.training_length),
        }
        parts = {name: charts.encode(chart, series.run, self.frames) for name, chart in drawn.items()}
        parts |= self._slow_parts() | {"run": live.fill(**self.figures())}
        return Frame(parts, {"text-run": self._text}, running=not self.ended)

    def figures(self) -> dict[str, Any]:
        """The strip above the text."""
        series, finish = self.series, self.series.finish
        error, unit = series.error, series.settings.goal_unit
        strip = {
            "error": "–" if error is None else charts.signed(error),
            "state": ending(finish) if finish else "busy",
            "message": "" if finish is None else ended_words(finish, series.settings),
        }
        if not len(series):
            return strip | ({"message": "Reading the prompt …"} if finish is None else {"produced": "0"})
        target = series.target[-1]
        goal = series.settings.max_new_tokens if target is None else target
        done = len(series) if target is None else series.produced[-1]
        short = unit if unit != "characters" else "chars"
        return strip | {
            "produced": f"{series.produced[-1]:,} {short}",
            "target": "none" if target is None else f"{target:,}",
            "p_end": _percent(series.p_eos[-1]),
            "speed": f"{series.speed:.0f}" if series.speed else "–",
            "read": f"{series.context[-1]:,}",
            "cache": "–" if finish is None else _bytes(finish.cache_bytes),
            "progress": done / goal,
        }

    def remembered(self) -> list[Past]:
        """The visitor's earlier runs and this one."""
        series, settings = self.series, self.series.settings
        if not len(series):
            return self.past
        label = f"run {len(self.past) + 1}, {settings.method}" + (
            f", target {series.target[-1]:,}" if series.target[-1] else ""
        )
        past = Past(label, settings.goal_unit, len(series), series.produced[-1], series.error)
        return [*self.past, past][-PAST_KEPT:]

    def _slow_parts(self) -> dict[str, str]:
        """First-layer states; and, under a policy, how far behind the text so far seems to be."""
        parts, made = self._slow
        if self.ended or time.monotonic() - made >= SLOW_PERIOD:
            drawn = {"states": charts.states(self.series)}
            settings = self.series.settings
            if len(self.series) and (settings.pic != "none" or settings.window):
                drawn["positions"] = charts.positions(settings, self.series.context[-1])
            parts = {name: charts.encode(chart, self.series.run, self.frames) for name, chart in drawn.items()}
            self._slow = (parts, time.monotonic())
        return parts


def follow(
    lab: Any, settings: RunSettings, run: Run, past: Sequence[Past] = (), period: float = PERIOD
) -> Iterator[View]:
    """Runs the settings; yields the same view, grown, every `period` seconds. Raises what the lab raises."""
    view = View(settings, past)
    run.view = view
    for events in batches(lab.stream(settings, run.control), period):
        if not view.frames:
            view.knows(lab.capabilities(settings.model, settings.precision))
        view.add(events)
        yield view


def follow_all(lab: Any, settings: Sequence[RunSettings], run: Run, period: float = PERIOD) -> Iterator[list[View]]:
    """Runs all the settings at once, as `follow` does one; yields the same views."""
    views = [View(each) for each in settings]
    run.view = views[0]
    for events in batches(merged([lab.stream(each, run.control) for each in settings]), period):
        for number, view in enumerate(views):
            if view.training_length is None:
                view.knows(lab.capabilities(view.series.settings.model, view.series.settings.precision))
            view.add(event for of, event in events if of == number)
        yield views


def sentence(error: Exception) -> str:
    """An error as a sentence that says what to do; one that was not foreseen is logged."""
    if isinstance(error, Refused | ValidationError):
        words = explain(error)
        return words[0].upper() + words[1:] + ("" if words.endswith(".") else ".")
    log.error("a run failed", exc_info=error)
    words = f"The run failed ({type(error).__name__}: {error})."
    return f"{words} Nothing you entered is lost: try again, or change the settings."


def ending(finish: Finish) -> str:
    """Whether a run ended well, as the page's figures name it."""
    return "bad" if finish.reason == "error" else "good"


def ended_words(finish: Finish, settings: RunSettings) -> str:
    """How a run ended, in a sentence."""
    if finish.reason == "error":
        return finish.message
    words = f"{finish.ended.capitalize()} after {counted(finish.tokens, 'tokens')} in {finish.decode_seconds:.1f} s"
    if finish.error is not None:
        words += f", {charts.signed(finish.error)} {noun(finish.error, settings.goal_unit)} from the {settings.bound}"
    return " ".join([words + ".", *finish.notes])


def _percent(p: float) -> str:
    return f"{p:.1%}" if p >= 0.001 else "< 0.1%"


def _bytes(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024  # type: ignore[assignment]
    return f"{count:.1f} GiB"
