"""Runs and policies as charts: pure functions to Plotly data and layout, the same facts in words and in a table."""

from app.charts.base import (
    Chart,
    Drawn,
    axes,
    cell,
    distance_axis,
    empty,
    encode,
    figure,
    grows,
    legend,
    line,
    mark_x,
    overlaid,
    room,
    rounded,
    signed,
)
from app.charts.entropy import entropy, entropy_table, layer_colour, layer_scale
from app.charts.length import P_END_RANGE, P_END_TICKS, Past, length
from app.charts.logits import head_logits, logits
from app.charts.mask import mask
from app.charts.palette import PALETTES, SERIES_COLOURS, resolve
from app.charts.positions import positions, preview_tokens
from app.charts.states import points, states, states_table

__all__ = [
    "PALETTES", "P_END_RANGE", "P_END_TICKS", "SERIES_COLOURS", "Chart", "Drawn", "Past", "axes", "cell",
    "distance_axis", "empty", "encode", "entropy", "entropy_table", "figure", "grows", "head_logits",
    "layer_colour", "layer_scale", "legend", "length", "line", "logits", "mark_x", "mask", "overlaid", "points",
    "positions", "preview_tokens", "resolve", "room", "rounded", "signed", "states", "states_table",
]
