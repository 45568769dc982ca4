"""Position policies: which keys a query sees, and at which perceived distance. One file a policy."""

from __future__ import annotations

import math
from typing import Literal, Protocol

from backend.positions.base import PositionPolicy, Span
from backend.positions.lambda_window import LambdaWindow
from backend.positions.plain import Plain
from backend.registry import Registry

__all__ = ["LambdaWindow", "Plain", "PositionPolicy", "Span", "heeds_limit", "policies", "policy_of"]

policies = Registry("backend.positions", PositionPolicy)


class Asked(Protocol):
    """What of a run's settings every policy heeds; each heeds its own fields besides."""

    @property
    def pic(self) -> str: ...
    @property
    def window(self) -> int | None: ...
    @property
    def sinks(self) -> int: ...
    @property
    def distance_limit(self) -> int | Literal["window", "off"]: ...


def policy_of(settings: Asked) -> PositionPolicy:
    """The policy that a run's settings ask for; one that divides by a ratio of 1 is plain, if it does not scale
    logits."""
    chosen: PositionPolicy = policies[settings.pic].of(settings)
    scaled = type(chosen).logit_scale is not PositionPolicy.logit_scale
    if getattr(chosen, "ratio", None) == 1 and not scaled:
        chosen = Plain()
    if settings.window is None or chosen.window is not None:
        return chosen
    asked = settings.distance_limit if chosen.limitable else "off"
    limit = float({"window": settings.window, "off": math.inf}[asked] if isinstance(asked, str) else asked)
    return LambdaWindow(chosen.beside(settings.sinks), settings.window, settings.sinks, limit)


def heeds_limit(settings: Asked) -> bool:
    """Whether the distance limit acts on a run: policies that bound distances themselves have none."""
    return isinstance(policy_of(settings), LambdaWindow) and policies[settings.pic].limitable
