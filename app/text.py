"""The streamed text as the page receives it: pieces that only become more, so that only the new ones travel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.series import RunSeries


def pieces(series: RunSeries, before: Sequence[Any] = ()) -> tuple[Any, ...]:
    """`before` (this function's last value for the same run) and one piece for each token since.

    The first piece is the run's number; each other one is [text, p, the model's own p or null, spread in nats,
    remaining or null, whether it is thinking, whether a person chose it, the likeliest tokens there as [id, text, the
    model's own p, whether it ends the response, p as drawn with]].
    """
    known = before or (series.run,)
    return (*known, *(_piece(series, i) for i in range(len(known) - 1, len(series))))


def _piece(series: RunSeries, i: int) -> list[Any]:
    own = series.p_model[i]
    return [
        series.text[i],
        round(series.p[i], 4),
        None if own is None else round(own, 4),
        round(series.spread[i], 3),
        series.remaining[i],
        series.thinking[i],
        series.chosen[i],
        [
            [each.token, each.text, round(each.p_model, 4), each.ends, round(each.p, 4)]
            for each in series.alternatives[i]
        ],
    ]
