"""The columns of a comparison: what its boxes hold, and the runs that they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app import carried, controls, model
from app.share import flat, settings_of
from backend.methods import methods
from backend.positions import policies
from backend.refused import Refused
from backend.settings import Method, RunSettings, Unit, cap_for, counted

NAMES = ("A", "B", "C", "D")
# The boxes that all columns share, and those of each; between them stand how many answers of each, how many columns,
# and what the Lab gave beside all these.
COMMON = (*model.NAMES, "prompt", "unit", "max_new_tokens")
OWN = ("method", "target", "landing", "in_prompt", "pic", "ratio", "window", "seed", "temperature")
BOXES = frozenset({*COMMON, *OWN, "limit"})


def asked(values: Sequence[Any]) -> list[RunSettings]:
    """The run of each column that shows. ValueError with a sentence where the values make none."""
    common = dict(zip(COMMON, values, strict=False))
    _, count, beside, *rest = values[len(COMMON) :]
    columns = [rest[i * len(OWN) : (i + 1) * len(OWN)] for i in range(int(count))]
    if any(value is None for value in [*common.values(), *(value for column in columns for value in column)]):
        raise Refused("a number is missing: fill in every box of the settings that are compared")
    more = carried.read(beside, BOXES)
    return [
        settings_of(common | _own(dict(zip(OWN, column, strict=True)), common["model"]) | more) for column in columns
    ]


def taken_over(settings: RunSettings) -> tuple[dict[str, Any], str]:
    """What makes the first column run the settings: the values of COMMON and OWN by name, and what is carried."""
    boxes = flat(settings) | {"target": settings.goal, "window": settings.window or 0}
    beside = carried.packed(settings, BOXES, _left_alone(settings.method, settings.model))
    return {name: boxes[name] for name in (*COMMON, *OWN)}, beside


def room(unit: Unit, count: int, *aims: Any) -> int:
    """The cap that leaves room for what each of so many columns aims at. aims: method and target of each in turn."""
    pairs = [*zip(aims[::2], aims[1::2], strict=True)][: int(count)]
    return max(cap_for(method, aim or 1, aim or 1, unit) for method, aim in pairs)


def _own(given: dict[str, Any], name: str) -> dict[str, Any]:
    """A column's fields of RunSettings."""
    method, kept = given["method"], {key: value for key, value in given.items() if key != "target"}
    aim = methods[method].bound or "target"
    return kept | {aim: given["target"], "window": given["window"] or None} | _left_alone(method, name)


def _left_alone(method: Method, name: str) -> dict[str, int]:
    """Initial and recent tokens that dynamic compression leaves alone: few, since answers are short, or as trained."""
    found = controls.trained_positions(method, name)
    return {"initial": found.initial, "recent": found.recent} if found else {"recent": 64}


def describe(settings: RunSettings) -> str:
    """A setting in a few words."""
    words = [] if settings.method == "none" else [methods[settings.method].label]
    if settings.steered:
        goal = settings.goal if settings.unit == "tokens" else counted(settings.goal, settings.unit)
        words = [f"{words[0]} {goal}"]
        if settings.lands:
            words.append(f"landing {settings.landing}")
        if settings.in_prompt and not methods[settings.method].asks:
            words.append("asked too")
    policy = policies[settings.pic]
    if policy.name != "none" and not ("ratio" in policy.heeds() and settings.ratio == 1):
        ratio = f" × {settings.ratio:g}" if "ratio" in policy.heeds() else ""
        kept = f", recent {settings.recent:,}" if "recent" in policy.heeds() else ""
        words.append(f"{policy.label}{ratio}{kept}")
    if settings.window is not None:
        words.append(f"Λ {settings.window:,}")
    return ", ".join(words) or "plain"
