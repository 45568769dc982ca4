"""How far each earlier token seems from the last one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from app.charts.base import POINTS, Chart, axes, line, note, rounded, table_rows
from app.series import sample
from backend.positions import PositionPolicy, policy_of
from backend.settings import RunSettings


def positions(settings: RunSettings, tokens: int) -> Chart:
    """(e) The distance at which the last of `tokens` tokens perceives each earlier one, against the true distance."""
    policy = policy_of(settings)
    true = np.unique(np.concatenate([sample(tokens, POINTS), np.arange(min(tokens, 24))]))
    perceived = policy.distance(np.array([tokens - 1]), tokens - 1 - true)[0]
    hidden = np.isnan(perceived)
    layout = axes("true distance in tokens", "perceived distance")
    layout["xaxis"]["range"] = [0, tokens * 1.02]
    layout["yaxis"]["rangemode"] = "tozero"
    for low, high in _runs_of(true[hidden], true):
        layout["shapes"].append(_band(low, high, "@ink/0.06"))
        layout["annotations"].append(note((low + high) / 2, 0.5, "not seen", "center", xref="x"))
    data = [
        line(np.array([0, tokens]), np.array([0, tokens]), "@muted", "as it is", width=1, dash="dot"),
        line(true, rounded(perceived, 2), "@c1", "perceived", width=2.6),
    ]
    if math.isfinite(policy.limit):
        layout["shapes"].append(_level(policy.limit, "@c2"))
        layout["annotations"].append(note(0.99, policy.limit, f"cap {policy.limit:,.0f}", "right", yref="y"))
    summary = _sentence(policy, tokens)
    return Chart(data, layout, summary, ("true distance", "perceived distance"), table_rows(true, perceived))


def preview_tokens(settings: RunSettings) -> int:
    """A context length to preview: the prompt (about 4 characters a token) and what it may write, or the window."""
    prompt = len(settings.prompt) // 4 + 32
    wanted = prompt + settings.max_new_tokens
    if settings.window is not None:
        wanted = max(wanted, int(1.5 * (settings.window + settings.sinks)))
    return int(np.clip(wanted, 64, 200_000))


def _level(y: float, colour: str) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": "paper",
        "yref": "y",
        "x0": 0,
        "x1": 1,
        "y0": y,
        "y1": y,
        "line": {"color": colour, "width": 1.2, "dash": "dot"},
    }


def _band(low: float, high: float, colour: str) -> dict[str, Any]:
    return {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": low,
        "x1": high,
        "y0": 0,
        "y1": 1,
        "fillcolor": colour,
        "line": {"width": 0},
        "layer": "below",
    }


def _runs_of(chosen: np.ndarray, among: np.ndarray) -> list[tuple[int, int]]:
    """First and last of every unbroken stretch of `chosen` within the sorted `among`."""
    if not len(chosen):
        return []
    places = np.searchsorted(among, chosen)
    breaks = np.flatnonzero(np.diff(places) > 1) + 1
    return [(int(part[0]), int(part[-1])) for part in np.split(chosen, breaks)]


def _sentence(policy: PositionPolicy, tokens: int) -> str:
    """What the policy does, how many tokens the last one sees, and how far away the first one seems."""
    seen = int(np.sum(~np.isnan(policy.distance(np.array([tokens - 1]), np.arange(tokens)))))
    view = f"the last of {tokens:,} tokens sees {seen:,} of them"
    first = float(policy.distance(np.array([tokens - 1]), np.array([0]))[0, 0])
    same = math.isnan(first) or round(first) == tokens - 1
    lag = "" if same else f"; the first token, {tokens - 1:,} behind it, seems {first:,.0f} behind"
    return f"{policy.describe(tokens)}; {view}{lag}."
