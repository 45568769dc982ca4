"""A setting as a control: its name, its range and its choices as the settings have them."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import gradio as gr
from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo

from backend.settings import RunSettings, Watch
from backend.settings.on_page import on_page

FIELDS: dict[str, FieldInfo] = {**Watch.model_fields, **RunSettings.model_fields}


def control(name: str, typed: bool = False, **props: Any) -> Any:
    """The component of a setting; props: of the component, in the place of the setting's own.

    typed: a number is typed, without words about it, over the whole range of which a slider has a part.
    """
    field = FIELDS[name]
    page = on_page(field)
    if page is None:
        raise LookupError(f"{name} has no control of its own")
    about = {} if typed else {"info": info(name), "elem_id": name}
    given: dict[str, Any] = {"value": field.default, "label": page.label} | about | props
    if field.annotation is bool:
        return gr.Checkbox(**given)
    if get_origin(field.annotation) is Literal:
        choices = get_args(field.annotation)
        named = list(zip(page.options or choices, choices, strict=True))
        return gr.Radio(named, **given) if len(named) < 3 else gr.Dropdown(named, **given)
    least, most = _bounds(field)
    if typed or page.most is None:
        number: dict[str, Any] = {"minimum": least, "maximum": most}
        return gr.Number(**number | ({"precision": 0} if field.annotation is int else {}) | given)
    slider: dict[str, Any] = {"minimum": least if page.least is None else page.least, "maximum": page.most}
    return gr.Slider(**slider | {"step": page.step} | given)


def info(name: str) -> str | None:
    """What the page says of a setting that has a control of its own."""
    page = on_page(FIELDS[name])
    return page.info or None if page else None


def _bounds(field: FieldInfo) -> tuple[Any, Any]:
    """The smallest and the largest value that a number may have."""
    above = [each.ge if isinstance(each, Ge) else each.gt for each in field.metadata if isinstance(each, (Ge, Gt))]
    below = [each.le for each in field.metadata if isinstance(each, Le)]
    return next(iter(above), None), next(iter(below), None)
