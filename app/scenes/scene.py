"""What a scene is: one sentence, recorded runs side by side or one measured figure, and what to look at."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from app.toml_file import Part, TomlFile
from backend.settings import RunSettings


class Lane(Part):
    """A recorded run. run: the name of its file in assets/presets.

    settings, moves: of a run that is recorded for this scene alone; moves are other targets, by how many tokens were
    written before.
    """

    name: str
    run: str
    settings: RunSettings | None = None
    moves: dict[int, int] = Field(default_factory=dict)


class Drawing(Part):
    """A figure of an experiment's card, by its place there. curves: those that are drawn, and what each is called."""

    experiment: str
    figure: int = 0
    curves: dict[str, str] = Field(min_length=1)


class Scene(TomlFile):
    """A scene, as its file has it. title: one sentence. look: one sentence, what to look at. It has lanes or a
    drawing."""

    title: str
    look: str
    lanes: tuple[Lane, ...] = Field(default=(), max_length=2)
    drawing: Drawing | None = None

    @model_validator(mode="after")
    def _shows_one_thing(self) -> Self:
        if bool(self.lanes) == bool(self.drawing):
            raise ValueError("give lanes, or a drawing")
        return self
