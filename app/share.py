"""Settings as a readable link, and back: every parameter is validated, and what is wrong is said and left out."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from pydantic import ValidationError

from backend.refused import Refused
from backend.settings import MAX_PROMPT_CHARS, RunSettings, Turn, Watch, cap_for

PLACEHOLDER = "…"
WATCHED = tuple(Watch.model_fields)
# What no parameter of a link holds as readable text.
UNWRITTEN = {"watch", "earlier"}
PACKED, EARLIER, ABOUT = "packed", "earlier", "about"
# Signs of a readable link: proxies take lines of 8 KiB. A longer prompt is packed; so many characters of any script
# then take at most 24,000 signs, and the server takes 64,000.
MAX_READABLE = 6000
MAX_CHARACTERS = 6000
# Bytes of that many characters of messages as JSON, where each is written as six and there are as many as may be.
MAX_EARLIER = 50_000
DAMAGED = "the link is cut or changed, so copy it again and whole"


def to_query(settings: RunSettings, about: Sequence[str] = ()) -> str:
    """The settings that differ from the defaults as a query string; ValueError where the prompt and the messages before
    it are too long for it. about: what is said of each of the answers before the prompt."""
    characters = len(settings.prompt) + sum(len(turn.content) for turn in settings.earlier)
    if characters > MAX_CHARACTERS:
        what = "conversation" if settings.earlier else "prompt"
        raise Refused(
            f"the {what} is too long for a link ({characters:,} characters, at most {MAX_CHARACTERS:,} fit): "
            "save the run as JSON instead and share the file"
        )
    plain = RunSettings(prompt=PLACEHOLDER).model_dump(exclude={"earlier"})
    chosen = settings.model_dump(exclude={"earlier"})
    watch, plain_watch = chosen.pop("watch"), plain.pop("watch")
    # A cap that only follows the target is left to follow it.
    plain["max_new_tokens"] = cap_for(settings.method, settings.target, settings.limit, settings.unit)
    fields = {name: value for name, value in chosen.items() if name == "prompt" or value != plain[name]}
    fields |= {name: watch[name] for name in WATCHED if watch[name] != plain_watch[name]}
    if settings.earlier:
        turns = [[turn.role, turn.content] for turn in settings.earlier]
        fields[EARLIER] = _packed(json.dumps(turns, ensure_ascii=False))
    if about:
        fields[ABOUT] = _packed(json.dumps([*about], ensure_ascii=False))
    query = urlencode({name: _written(value) for name, value in fields.items()})
    if len(query) <= MAX_READABLE:
        return query
    fields = {name: value for name, value in fields.items() if name != "prompt"} | {PACKED: _packed(settings.prompt)}
    return urlencode({name: _written(value) for name, value in fields.items()})


def from_query(query: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Valid settings by field name (layer, head, every among them), and a sentence for each parameter left out.

    Parameters that are no setting (Gradio's own begin with "__") are ignored.
    """
    values: dict[str, Any] = {}
    problems = []
    if PACKED in query:
        try:
            query = {**query, "prompt": _unpacked(query[PACKED], 4 * MAX_PROMPT_CHARS)}
        except ValueError as error:
            problems.append(f"The link's prompt was left out: {error}")
    if EARLIER in query:
        try:
            values[EARLIER] = _conversation(query[EARLIER])
        except ValueError as error:
            problems.append(f"The link's earlier messages were left out: {explain(error)}")
    known = [name for name in (*RunSettings.model_fields, *WATCHED) if name not in UNWRITTEN and name in query]
    for name in known:
        try:
            values[name] = _checked(name, query[name], values)
        except ValueError as error:
            problems.append(f"The link's {name} was left out: {explain(error)}")
    return values, problems


def about_of(query: Mapping[str, str]) -> list[str]:
    """What a link says of each of the answers before the prompt; nothing where that cannot be read."""
    try:
        found = json.loads(_unpacked(query.get(ABOUT, ""), MAX_EARLIER))
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) and all(isinstance(each, str) for each in found) else []


def settings_of(values: Mapping[str, Any]) -> RunSettings:
    """RunSettings of flat values, where layer, head and every stand beside the rest. Raises ValueError."""
    plain = {name: value for name, value in values.items() if name not in WATCHED}
    watch = {name: values[name] for name in WATCHED if name in values}
    return RunSettings(**plain, watch=Watch(**watch))


def flat(settings: RunSettings) -> dict[str, Any]:
    """The inverse of `settings_of`."""
    values = settings.model_dump()
    watch = values.pop("watch")
    return values | {name: watch[name] for name in WATCHED}


def explain(error: ValueError, names: Mapping[str, str] = MappingProxyType({})) -> str:
    """A validation error as one sentence without pydantic's wording around it.

    names: what fields are called where the values come from; the others have their own names there.
    """
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    words = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    field = str(first["loc"][0]) if first["loc"] else ""
    place = f"“{names.get(field, field)}”"
    if first["type"] == "int_from_float":
        return f"{place} is {first['input']:g}: give a whole number"
    return words if first["type"] == "value_error" or not field else f"{place} {words[0].lower()}{words[1:]}"


def _checked(name: str, text: str, values: Mapping[str, Any]) -> Any:
    trial = {"prompt": PLACEHOLDER, **values, name: None if text == "none" and name == "window" else text}
    settings = settings_of(trial)
    return getattr(settings.watch if name in WATCHED else settings, name)


def _written(value: Any) -> str:
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return "none" if value is None else str(value)


def _packed(text: str) -> str:
    """A text as a parameter that is no longer to be read."""
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).rstrip(b"=").decode()


def _unpacked(text: str, most: int) -> str:
    """The inverse of `_packed`, of at most so many bytes. Raises ValueError with a sentence."""
    try:
        unpacking = zlib.decompressobj()
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        found = unpacking.decompress(packed, most).decode()
        if unpacking.eof:
            return found
    except (ValueError, zlib.error):
        pass
    raise Refused(DAMAGED)


def _conversation(text: str) -> tuple[Turn, ...]:
    """The messages that a link holds. Raises ValueError with a sentence."""
    try:
        turns = [{"role": role, "content": content} for role, content in json.loads(_unpacked(text, MAX_EARLIER))]
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused(DAMAGED) from error
    return RunSettings(prompt=PLACEHOLDER, earlier=tuple(turns)).earlier
