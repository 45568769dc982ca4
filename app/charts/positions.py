"""How far each earlier token seems from the last one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from app.charts import drawing
from app.charts.base import SLOW, Chart, LiveChart, alone
from app.series import RunSeries, sample
from backend.positions import PositionPolicy, policy_of
from backend.settings import RunSettings

HINT = "How far each earlier token seems from the last one"


class Positions(LiveChart):
    """The distance at which the last token perceives each earlier one, against the true distance."""

    name = "positions"
    title = "Perceived positions"
    tabs = {"generate": HINT, "compare": HINT}
    order = 90
    period = SLOW
    preview = True

    def draw(self, runs: Sequence[RunSeries]) -> Chart:
        tokens = max(map(context_length, runs), default=64)
        run = alone(runs)
        return _together(runs, tokens) if run is None else _alone(run.settings, tokens)

    def follows(self, run: RunSeries) -> bool:
        return len(run) > 0 and (run.settings.pic != "none" or run.settings.window is not None)


def context_length(run: RunSeries) -> int:
    """Tokens read so far; before anything runs, the prompt and the messages before it (about 4 characters a token) and
    what it may write, or more than the window."""
    if len(run):
        return run.read
    settings = run.settings
    characters = len(settings.prompt) + sum(len(turn.content) for turn in settings.earlier)
    wanted = characters // 4 + 32 + settings.max_new_tokens
    if settings.window is not None:
        wanted = max(wanted, int(1.5 * (settings.window + settings.sinks)))
    return int(np.clip(wanted, 64, 200_000))


def _alone(settings: RunSettings, tokens: int) -> Chart:
    """The distance at which the last of `tokens` tokens perceives each earlier one, against the true distance."""
    policy = policy_of(settings)
    true = np.unique(np.concatenate([sample(tokens, drawing.POINTS), np.arange(min(tokens, 24))]))
    perceived = policy.distance(np.array([tokens - 1]), tokens - 1 - true)[0]
    hidden = np.isnan(perceived)
    layout = drawing.axes("true distance in tokens", "perceived distance")
    layout["xaxis"]["range"] = [0, tokens * 1.02]
    layout["yaxis"]["rangemode"] = "tozero"
    for low, high in _runs_of(true[hidden], true):
        layout["shapes"].append(drawing.area(low, high, "@ink/0.06"))
        layout["annotations"].append(drawing.note((low + high) / 2, 0.5, "not seen", "center", xref="x"))
    data = [
        drawing.line(np.array([0, tokens]), np.array([0, tokens]), "@muted", "as it is", width=1, dash="dot"),
        drawing.line(true, drawing.rounded(perceived, 2), "@c1", "perceived", width=2.6),
    ]
    if math.isfinite(policy.limit):
        layout["shapes"].append(drawing.dotted("@c2", y=policy.limit))
        layout["annotations"].append(drawing.note(0.99, policy.limit, f"cap {policy.limit:,.0f}", "right", yref="y"))
    summary = _sentence(policy, tokens)
    return Chart(data, layout, summary, ("true distance", "perceived distance"), drawing.table_rows(true, perceived))


def _together(runs: Sequence[RunSeries], tokens: int) -> Chart:
    """The same under the settings of every run, at one number of tokens."""
    layout = drawing.axes("true distance in tokens", "perceived distance")
    layout["yaxis"]["rangemode"] = "tozero"
    true = sample(tokens, drawing.FEWER)

    def draw(colour: str, run: RunSeries) -> drawing.Drawn:
        every = policy_of(run.settings).distance(np.array([tokens - 1]), np.arange(tokens))[0][::-1]
        row = [run.label, int(np.sum(~np.isnan(every))), drawing.cell(np.nanmax(every))]
        return [drawing.line(true, drawing.rounded(every[true], 2), colour, run.name, width=2.2)], row

    data, rows = drawing.overlaid(runs, draw)
    return drawing.together(
        runs, layout, data, rows, ("tokens seen", "largest perceived distance"),
        lambda name, seen, far: f"{name} {_view(seen, far, tokens)}",
    )  # fmt: skip


def _view(seen: int, far: float, tokens: int) -> str:
    """How many of the tokens are seen, and how far the farthest of them seems where that is not what it is."""
    words = f"sees all {tokens:,} tokens" if seen == tokens else f"sees {seen:,} of {tokens:,} tokens"
    return words if round(far) == tokens - 1 else f"{words}, the farthest as if {far:,.0f} away"


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
