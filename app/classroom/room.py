"""A room: its students, their predictions and their runs. Nothing of it is stored, and no names are asked for."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

from app.lessons import lessons
from app.outcome import Outcome, figure
from app.runs import Run

# Signs that nobody mistakes for another.
SIGNS, LENGTH = "ABCDEFGHJKMNPQRSTUVWXYZ23456789", 5
STUDENTS = 500
# Pages that are known: each that is loaded anew is another one.
PAGES = 4 * STUDENTS
# Dots and predictions of one student; the oldest go.
KEPT = 40


class Prediction(NamedTuple):
    """What a student predicts of a lesson: a number, or the index of a choice."""

    lesson: str
    number: float | None
    choice: int | None


@dataclass(frozen=True)
class Dot:
    """A run of a student, or a prediction that no run has answered yet: that has neither a `number` nor an outcome.

    number: of the run among all. name, method, unit, target, produced, state, ended: as `app.outcome.Outcome` has them.
    lesson, predicted, choice: of the prediction that the run answers, a choice in its words. figure: what the lesson
    asks of a run of this name, in `measured`; None for none.
    """

    student: int
    number: int | None = None
    name: str = ""
    method: str = ""
    unit: str = ""
    target: int | None = None
    produced: float | None = None
    state: str = ""
    ended: str = ""
    lesson: str = ""
    predicted: float | None = None
    choice: str = ""
    figure: float | None = None
    measured: str = ""
    hidden: bool = False


class Room:
    """A class that is open. code: opens the lab as a student. secret: opens the teacher's screen."""

    def __init__(self) -> None:
        self.code = _code()
        self.secret = secrets.token_urlsafe(16)
        # Of what the teacher's screen shows: another one is worth reading.
        self.version = 0
        self._students: dict[str, int] = {}
        self._sessions: dict[str, int] = {}
        self._predictions: dict[int, list[Prediction]] = {}
        # Of these, what no run has answered yet.
        self._alone: dict[int, list[Prediction]] = {}
        # What a session's next run answers, and what each run that goes on does, by the name of its stream.
        self._awaited: dict[str, Prediction] = {}
        self._asked: dict[str, Prediction] = {}
        self._dots: dict[int, list[Dot]] = {}
        self._made = 0
        self._lock = threading.Lock()

    def joins(self, code: str, session: str | None, browser: str) -> tuple[bool, str]:
        """Takes a browser's page in; returns whether it is in, and the sentence that it shows."""
        with self._lock:
            if not session or not secrets.compare_digest(code.strip().upper().encode(), self.code.encode()):
                return False, f"There is no class with the code {code.strip():.12}: ask your teacher for it."
            known = browser or session
            if known not in self._students and len(self._students) >= STUDENTS:
                return False, f"The class is full: {STUDENTS} students are in it."
            student = self._students.setdefault(known, len(self._students) + 1)
            self._sessions[session] = student
            if len(self._sessions) > PAGES:
                gone = next(iter(self._sessions))
                del self._sessions[gone]
                self._awaited.pop(gone, None)
            self.version += 1
        return True, (
            f"You are student {student} of the class {self.code}: your runs and predictions become dots on the "
            "teacher's screen, without your name and without your text."
        )

    def predicts(self, session: str | None, prediction: Prediction, runs: bool = True) -> None:
        """Notes what a session's student predicts. runs: whether a run of the session is to answer it."""
        with self._lock:
            if student := self._sessions.get(session or ""):
                assert session is not None
                self._awaited.pop(session, None)
                if runs:
                    self._awaited[session] = prediction
                # Who runs a lesson again with the same guess has guessed once.
                if prediction not in self._predictions.get(student, []):
                    for kept in (self._predictions, self._alone):
                        kept[student] = [*kept.get(student, []), prediction][-KEPT:]
                self.version += 1

    def begins(self, run: Run) -> None:
        """Takes note that a run begins: it answers what its session has predicted, where it is begun on the lesson's
        tab; a run elsewhere answers nothing, and nor does any after it."""
        with self._lock:
            prediction = self._awaited.pop(run.session or "", None)
            if prediction and lessons()[prediction.lesson].run.tab == run.place:
                self._asked[run.stream.name] = prediction

    def ended(self, run: Run) -> None:
        """Makes a dot of each answer that was written and of each text that was read."""
        outcomes = run.came_to
        with self._lock:
            answered = self._asked.pop(run.stream.name, None)
            student = self._sessions.get(run.session or "")
            if student is None or not outcomes:
                return
            for outcome in outcomes[-KEPT:]:
                self._made += 1
                dot = Dot(student, self._made, *outcome[:7], **_of_lesson(outcome, outcomes, answered))
                self._dots[student] = [*self._dots.get(student, []), dot][-KEPT:]
            if answered in (alone := self._alone.get(student, [])):
                alone.remove(answered)
            self.version += 1

    def hide(self, number: int) -> None:
        """Takes a dot from the screen, or puts it back."""
        with self._lock:
            for student, dots in self._dots.items():
                self._dots[student] = [
                    replace(dot, hidden=not dot.hidden) if dot.number == number else dot for dot in dots
                ]
            self.version += 1

    def shown(self) -> dict[str, Any]:
        """What the teacher's screen shows, as JSON takes it."""
        with self._lock:
            return {
                "version": self.version,
                "code": self.code,
                "students": len(self._students),
                "dots": [asdict(dot) for dots in self._dots.values() for dot in dots],
                "predictions": [each._asdict() for made in self._predictions.values() for each in made],
            }

    def table(self) -> list[list[Any]]:
        """The names of a dot's fields, the dots in the order of their runs, then the predictions that no run has
        answered."""
        with self._lock:
            dots = sorted((dot for dots in self._dots.values() for dot in dots), key=lambda dot: dot.number or 0)
            alone = [Dot(student, **_predicted(each)) for student, made in self._alone.items() for each in made]
        return [[field.name for field in fields(Dot)], *([*asdict(dot).values()] for dot in [*dots, *alone])]

    def close(self) -> None:
        """Forgets everything; another class begins, with another code."""
        with self._lock:
            self.code = _code()
            for kept in (
                self._students, self._sessions, self._predictions, self._alone, self._awaited, self._asked, self._dots,
            ):  # fmt: skip
                kept.clear()
            self.version += 1


def _code() -> str:
    return "".join(secrets.choice(SIGNS) for _ in range(LENGTH))


def _predicted(prediction: Prediction) -> dict[str, Any]:
    """The fields of a dot that say what was predicted."""
    choices = lessons()[prediction.lesson].predict.choices
    choice = "" if prediction.choice is None else choices[prediction.choice]
    return {"lesson": prediction.lesson, "predicted": prediction.number, "choice": choice}


def _of_lesson(outcome: Outcome, beside: Sequence[Outcome], answered: Prediction | None) -> dict[str, Any]:
    """The fields of a dot that its lesson adds: of several answers of one name the first has the figure."""
    if answered is None:
        return {}
    asked = next((each for each in lessons()[answered.lesson].figures if each.of == outcome.name), None)
    if asked is None or outcome is not next(one for one in beside if one.name == outcome.name):
        return _predicted(answered)
    found = figure(beside, asked.of, asked.what)
    return _predicted(answered) | {"figure": found, "measured": asked.unit}
