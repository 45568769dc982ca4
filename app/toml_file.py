"""What a folder of TOML files holds: each file is one thing, checked as it is read."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError


class Part(BaseModel):
    """A part of such a file, which has no fields but its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TomlFile(Part):
    """A file by its fields. name: of the file; order: among those of its folder, ties go by name."""

    name: str
    order: int

    @classmethod
    def read(cls, path: Path) -> Self:
        """One of a file. Raises ValueError that names the file where it is none."""
        try:
            return cls(name=path.stem, **tomllib.loads(path.read_text("utf-8")))
        except (tomllib.TOMLDecodeError, ValidationError) as error:
            raise ValueError(f"{path.name} is no {cls.__name__.lower()}: {error}") from error

    @classmethod
    def folder(cls, path: Path) -> dict[str, Self]:
        """All of a folder by the names of their files, in order."""
        found = sorted(map(cls.read, path.glob("*.toml")), key=lambda each: (each.order, each.name))
        return {each.name: each for each in found}
