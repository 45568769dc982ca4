"""What a scene is: one sentence, recorded runs side by side or one measured figure, and what to look at."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from backend.settings import RunSettings


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Lane(_Part):
    """A recorded run. run: the name of its file in assets/presets.

    settings, moves: of a run that is recorded for this scene alone; moves are other targets, by how many tokens were
    written before.
    """

    name: str
    run: str
    settings: RunSettings | None = None
    moves: dict[int, int] = Field(default_factory=dict)


class Drawing(_Part):
    """A figure of an experiment's card, by its place there. curves: those that are drawn, and what each is called."""

    experiment: str
    figure: int = 0
    curves: dict[str, str] = Field(min_length=1)


class Scene(_Part):
    """A scene, as its file has it. title: one sentence. look: one sentence, what to look at. It has lanes or a
    drawing."""

    name: str
    title: str
    order: int
    look: str
    lanes: tuple[Lane, ...] = Field(default=(), max_length=2)
    drawing: Drawing | None = None

    @model_validator(mode="after")
    def _shows_one_thing(self) -> Self:
        if bool(self.lanes) == bool(self.drawing):
            raise ValueError("give lanes, or a drawing")
        return self

    @classmethod
    def read(cls, path: Path) -> Scene:
        """A scene's TOML file. Raises ValueError that names the file where it is none."""
        try:
            return cls(name=path.stem, **tomllib.loads(path.read_text("utf-8")))
        except (tomllib.TOMLDecodeError, ValidationError) as error:
            raise ValueError(f"{path.name} is no scene: {error}") from error
