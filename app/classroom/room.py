"""A room: its students, their predictions and their runs. Nothing of it is stored, and no names are asked for."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

from app.view import View
from backend.ending import ending

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
    """A run of a student. name: of one of several side by side. target: in `unit`, None without one. state, ended: as
    `backend.ending.ending` has them. lesson, predicted: of the prediction that the run answers."""

    number: int
    student: int
    name: str
    method: str
    unit: str
    target: int | None
    produced: int
    state: str
    ended: str
    lesson: str = ""
    predicted: float | None = None
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
        self._answered: dict[int, Prediction] = {}
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
                del self._sessions[next(iter(self._sessions))]
            self.version += 1
        return True, (
            f"You are student {student} of the class {self.code}: your runs and predictions become dots on the "
            "teacher's screen, without your name and without your text."
        )

    def predicts(self, session: str | None, prediction: Prediction) -> None:
        """Notes what a session's student predicts; the next run answers it."""
        with self._lock:
            if student := self._sessions.get(session or ""):
                self._answered[student] = prediction
                self._predictions[student] = [*self._predictions.get(student, []), prediction][-KEPT:]
                self.version += 1

    def ended(self, session: str | None, views: Sequence[View]) -> None:
        """Makes a dot of each run that has written something."""
        written = [view for view in views if len(view.series) and view.series.finish]
        with self._lock:
            student = self._sessions.get(session or "")
            if student is None or not written:
                return
            answered = self._answered.pop(student, Prediction("", None, None))
            for view in written:
                self._made += 1
                dot = _dot(self._made, student, view, answered)
                self._dots[student] = [*self._dots.get(student, []), dot][-KEPT:]
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
        """The names of a dot's fields, then the dots, in the order of their runs."""
        with self._lock:
            dots = sorted((dot for dots in self._dots.values() for dot in dots), key=lambda dot: dot.number)
        return [[field.name for field in fields(Dot)], *([*asdict(dot).values()] for dot in dots)]

    def close(self) -> None:
        """Forgets everything; another class begins, with another code."""
        with self._lock:
            self.code = _code()
            for kept in (self._students, self._sessions, self._predictions, self._answered, self._dots):
                kept.clear()
            self.version += 1


def _code() -> str:
    return "".join(secrets.choice(SIGNS) for _ in range(LENGTH))


def _dot(number: int, student: int, view: View, answered: Prediction) -> Dot:
    series, settings = view.series, view.series.settings
    assert series.finish is not None
    return Dot(
        number, student, series.name, settings.method, settings.unit, series.target[-1], series.produced[-1],
        *ending(series.finish, settings), answered.lesson, answered.number,
    )  # fmt: skip
