"""What a comparison has of the Lab's settings beside its own boxes: all of its columns run with them.

The page holds them as the text of a box out of sight: so the browser keeps them, and a link holds them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape
from typing import Any, get_args

import orjson

from app.setting import FIELDS
from app.share import PLACEHOLDER, flat, settings_of
from backend.positions import policies
from backend.settings import RunSettings, counted
from backend.settings.on_page import on_page

# What the page calls settings that have no control of their own name.
LABELS = {"distance_limit": "Distance limit"}
TITLE = "Also from the Lab, in every column"


def packed(settings: RunSettings, boxes: Collection[str], alone: Mapping[str, Any]) -> str:
    """Settings without a box that are not what a column has by itself; "" where there are none.

    boxes: names of those that have one. alone: what a column has by itself where that is not the default.
    """
    plain, heeded = flat(RunSettings(prompt=PLACEHOLDER)), policies[settings.pic].heeds()
    found = {
        name: value
        for name, value in flat(settings).items()
        if name not in boxes and value != alone.get(name, plain[name]) and (value != plain[name] or name in heeded)
    }
    return orjson.dumps(found).decode() if found else ""


def read(text: str, boxes: Collection[str]) -> dict[str, Any]:
    """The inverse of `packed`, of whatever a page hands over: what is damaged has none."""
    try:
        given = orjson.loads(text or "{}")
        names = [name for name in given if name in FIELDS and name not in boxes] if isinstance(given, dict) else []
        whole = flat(settings_of({"prompt": PLACEHOLDER} | {name: given[name] for name in names}))
        return {name: whole[name] for name in names}
    except (ValueError, KeyError):
        return {}


def shown(text: str, boxes: Collection[str]) -> str:
    """A line of HTML that names each of the settings with its value; "" for none."""
    said = ", ".join(_marked(*each) for each in _named(read(text, boxes)))
    return f'<p role="status"><span>{TITLE}</span>: {said}</p>' if said else ""


def _marked(label: str, value: str) -> str:
    """Each an element of its own, so that the page can say each in its language."""
    return f"<b>{escape(label)}</b>" + (f"<span> {escape(value)}</span>" if value else "")


def _named(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the page calls each setting, and its value, or nothing where the name says all."""
    for name, value in settings.items():
        page = on_page(FIELDS[name])
        if name == "earlier":
            yield from _said_before([turn["role"] for turn in value])
        elif isinstance(value, bool):
            yield page.label if page else name, ""
        else:
            yield page.label if page else LABELS.get(name, name), _written(name, value)


def _said_before(roles: Sequence[str]) -> Iterator[tuple[str, str]]:
    if "system" in roles:
        yield "System prompt", ""
    if turns := roles.count("user"):
        yield "Conversation", f"({counted(turns, 'turns')})"


def _written(name: str, value: Any) -> str:
    page, choices = on_page(FIELDS[name]), get_args(FIELDS[name].annotation)
    if page and page.options and value in choices:
        return page.options[choices.index(value)]
    return value if isinstance(value, str) else f"{value:,}"
