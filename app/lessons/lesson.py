"""What a lesson is: something to predict, to run on the page, to look at and to check."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from app.outcome import Measure
from app.toml_file import Part, TomlFile


class Predict(Part):
    """A question before the run: a number from least to most, or one of some choices, of which `right` is the index of
    the one that comes true."""

    question: str
    unit: str = ""
    least: int = 0
    most: int = 0
    choices: tuple[str, ...] = ()
    right: int | None = None

    @model_validator(mode="after")
    def _has_an_answer(self) -> Self:
        if self.choices and (self.right is None or not 0 <= self.right < len(self.choices)):
            raise ValueError("say which of the choices is right: an index from 0")
        if not self.choices and not self.least < self.most:
            raise ValueError("give choices, or a least and a larger most")
        return self


class Run(Part):
    """What is run. tab: where; settings: of that tab's boxes, by their names, the others as the page opens with them.

    words: what will happen.
    """

    tab: Literal["try", "compare", "long"]
    words: str
    settings: dict[str, Any]


class Figure(Part):
    """A number that a run comes to, and in which range with the embedded model, since other processors round otherwise.
    of: the run, as the page names it among several; what: as `app.outcome.figure` has it."""

    of: str
    what: Measure = "length"
    unit: str = "tokens"
    least: float
    most: float

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.least > self.most:
            raise ValueError("give a least that is not larger than most")
        return self


class Check(Part):
    """A question after the run, and its answer."""

    question: str
    answer: str


class Teacher(Part):
    """say: what to tell the class. expect: what the runs show, with ranges: other processors round otherwise."""

    say: str
    expect: str


class Lesson(TomlFile):
    """A lesson, as its file has it. minutes: with a class. idea: what it is about, in a sentence. figures: what its run
    comes to, first that which is to be predicted, where it is a number. at: the parts of the page that `look` speaks
    of, as CSS selectors. misconception: what it takes away."""

    title: str
    minutes: int = Field(ge=1)
    idea: str
    predict: Predict
    run: Run
    figures: tuple[Figure, ...] = Field(min_length=1)
    look: str
    at: tuple[str, ...] = Field(min_length=1)
    check: Check
    misconception: str
    teacher: Teacher
