"""How the page shows a setting: what stands beside its range on the field itself."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo


class OnPage(NamedTuple):
    """A setting's control: its name, a few words about it, and how it is set.

    least, most: range of a slider, which may be smaller than the field's own; without `most` a number is typed. step:
    of the slider. options: what the page calls the choices, in their order. advanced: shown in the advanced view alone.
    """

    label: str
    info: str = ""
    least: float | None = None
    most: float | None = None
    step: float = 1
    options: tuple[str, ...] = ()
    advanced: bool = False


class Part(BaseModel):
    """Settings that steer one thing. title, hint: head of their panel on the page."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    title: ClassVar[str]
    hint: ClassVar[str]


def on_page(field: FieldInfo) -> OnPage | None:
    """How the page shows a field; None for one that has no control of its own."""
    return next((found for found in field.metadata if isinstance(found, OnPage)), None)
