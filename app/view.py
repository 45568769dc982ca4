"""What the page shows of one run, frame by frame, and the one place where the page asks the lab to run."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from app import live, text, toasts
from app.branches import Branch, Tree
from app.charts import shown
from app.charts.base import encode
from app.frames import PERIOD, Frame
from app.runs import Run, batches
from app.series import PastRun, RunSeries
from app.share import explain
from backend.ending import ended
from backend.models.capabilities import Capabilities
from backend.record.trace import Trace
from backend.refused import Refused
from backend.settings import RunSettings, counted, signed
from backend.steps import Finish, Prefilling, Progress, Searching, Step, Waiting
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
# What each of them means.
ABOUT = {
    "produced": "How long the answer is so far, in the unit that is counted.",
    "target": "What the method aims at, or the limit to stay under.",
    "error": "Produced minus target. Under a limit there is none.",
    "p_end": "The chance that the next token ends the answer.",
    "speed": "Tokens written in a second.",
    "read": "Tokens of the prompt and the answer so far.",
    "cache": "Memory that is kept for what was read.",
}
PAST_KEPT = 30

log = logging.getLogger("length_lab")


class View:
    """One run as the page shows it: text, figures and the charts that follow it, each no sooner than its period allows.

    name, words: as in RunSeries, of one of several.
    """

    def __init__(self, settings: RunSettings, past: Sequence[PastRun] = (), name: str = "", words: str = "") -> None:
        self.series = RunSeries(settings, name, words, past=past)
        self.trace = Trace(settings)
        # The answers that it stands among, once it has ended.
        self.tree: Tree = {}
        self.progress: Progress | None = None
        self.frames = 0
        self._text: tuple[Any, ...] = ()
        self._charts: dict[str, str] = {}
        self._drawn: dict[str, float] = {}

    @classmethod
    def begun(cls, trace: Trace, past: Sequence[PastRun] = (), name: str = "") -> View:
        """A recorded run of which nothing is shown yet."""
        view = cls(trace.settings, past, name)
        view.series.training_length = trace.capabilities.get("training_length")
        return view

    @classmethod
    def of(cls, trace: Trace, past: Sequence[PastRun] = (), name: str = "") -> View:
        """A recorded run, whole."""
        view = cls.begun(trace, past, name)
        view.add(trace.events())
        view.trace = trace
        return view

    def knows(self, capabilities: Capabilities) -> None:
        """What model this is, once that is known."""
        self.series.training_length = capabilities.training_length
        self.trace.capabilities = asdict(capabilities)

    def add(self, events: Iterable[Progress | Step | Finish]) -> None:
        """Takes what happened since the last frame."""
        for event in events:
            if isinstance(event, Progress):
                self.progress = event
                continue
            self.progress = None
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
        """The text, the figures and the charts; the figures alone while there is nothing else new."""
        if self.progress:
            return Frame({"run": live.fill(**self.figures())}, running=True)
        self.frames += 1
        series = self.series
        self._text = text.pieces(series, self._text)
        for chart in shown("generate"):
            since = time.monotonic() - self._drawn.get(chart.name, -math.inf)
            if chart.follows(series) and (self.ended or since >= chart.period):
                self._charts[chart.name] = encode(chart.draw([series]), series.run, self.frames)
                self._drawn[chart.name] = time.monotonic()
        parts = self._charts | {"run": live.fill(**self.figures())}
        return Frame(parts, {"text-run": self._text}, running=not self.ended)

    def figures(self) -> dict[str, Any]:
        """The strip above the text."""
        series, finish = self.series, self.series.finish
        error, unit = series.settings.missed(series.error), series.settings.unit
        strip = {
            "error": "–" if error is None else signed(error),
            "state": went(finish) if finish else "busy",
            "message": "" if finish is None else ended_words(finish, series.settings),
        }
        if not len(series):
            return strip | (coming_words(self.progress) if finish is None else {"produced": "0"})
        target = series.target[-1]
        goal = series.settings.max_new_tokens if target is None else target
        done = len(series) if target is None else series.produced[-1]
        short = unit if unit != "characters" else "chars"
        return strip | {
            "produced": f"{series.produced[-1]:,} {short}",
            "target": "none" if target is None else f"{'≤ ' * series.settings.limited}{target:,}",
            "p_end": _percent(series.p_eos[-1]),
            "speed": f"{series.speed:.0f}" if series.speed else "–",
            "read": f"{series.context[-1]:,}",
            "cache": "–" if finish is None else _bytes(finish.cache_bytes),
            "progress": done / goal,
        }

    def remembered(self) -> list[PastRun]:
        """The visitor's earlier runs and this one."""
        series, settings = self.series, self.series.settings
        if not len(series):
            return [*series.past]
        label = f"run {len(series.past) + 1}, {settings.method}" + (
            f", target {series.target[-1]:,}" if series.target[-1] else ""
        )
        past = PastRun(label, settings.unit, len(series), series.produced[-1], settings.missed(series.error))
        return [*series.past, past][-PAST_KEPT:]

    def leaves(self) -> list[Any]:
        """What the visitor's next run knows of this one: the earlier runs, its trace, and the answers around it."""
        return [self.remembered(), self.trace, self.tree]


def follow(
    lab: Any,
    settings: RunSettings,
    run: Run,
    past: Sequence[PastRun] = (),
    period: float = PERIOD,
    branch: Branch | None = None,
) -> Iterator[View]:
    """Runs the settings; yields the same view, grown, every `period` seconds. branch: of an earlier run, from which it
    goes on. Raises what the lab raises."""
    view = View(settings, past)
    view.add(branch.before if branch else ())
    run.views = [view]
    more = {"resumed": branch.resumed} if branch else {}
    for events in batches(lab.stream(settings, run.control, progress=True, **more), period):
        if not view.frames:
            view.knows(lab.capabilities(settings.model, settings.precision))
        view.add(events)
        yield view


def sentence(error: Exception, names: Mapping[str, str] = MappingProxyType({})) -> str:
    """An error as a sentence that says what to do; one that was not foreseen is logged. names: see `explain`."""
    if isinstance(error, Refused | ValidationError):
        words = explain(error, names)
        return words[0].upper() + words[1:] + ("" if words.endswith(".") else ".")
    log.error("a run failed", exc_info=error)
    words = f"The run failed ({type(error).__name__}: {error})."
    return f"{words} Nothing you entered is lost: try again, or change the settings."


def coming_words(progress: Progress | None) -> dict[str, Any]:
    """What the figures say of a run that has written nothing yet."""
    if isinstance(progress, Waiting):
        return {"message": f"Waiting: {progress.before:,} before you" if progress.before else "Waiting: you are next"}
    if isinstance(progress, Prefilling):
        words = f"Reading the prompt: {progress.read:,} of {progress.total:,} tokens …"
        return {"message": words, "progress": progress.read / progress.total}
    if isinstance(progress, Searching):
        return {"message": f"Searching: {progress.texts[0]}"}
    return {"message": "Reading the prompt …"}


def went(finish: Finish) -> str:
    """Whether a run went as it should, as the page's figures name it; how its answer ended is said in words."""
    return "bad" if finish.reason == "error" else "good"


def ended_words(finish: Finish, settings: RunSettings) -> str:
    """How a run ended, in a sentence."""
    if finish.reason == "error":
        return finish.message
    how, written = ended(finish, settings).capitalize(), counted(finish.tokens, "tokens")
    words = f"{how} after {written} in {finish.decode_seconds:.1f} s"
    if (error := settings.missed(finish.error)) is not None:
        words += f": {_beside(error, settings)}"
    return " ".join([words + ".", *finish.notes])


def _beside(error: int, settings: RunSettings) -> str:
    """An error that counts, in words."""
    if error == 0:
        return "as many as asked"
    by = counted(abs(error), settings.unit)
    return f"{by} over the limit" if settings.limited else f"{by} {'more' if error > 0 else 'fewer'} than asked"


def failed(figures: str, error: Exception, title: str, names: Mapping[str, str] = MappingProxyType({})) -> str:
    """Says in a corner of the page what could not be done; returns the frame that says it in the figures of that name.

    names: see `explain`.
    """
    words = sentence(error, names)
    toasts.warn(words, title)
    return Frame({figures: live.fill(state="bad", message=words)}).encode()


def _percent(p: float) -> str:
    return f"{p:.1%}" if p >= 0.001 else "< 0.1%"


def _bytes(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024  # type: ignore[assignment]
    return f"{count:.1f} GiB"
