"""What an experiment shows of its results: words and tables as Markdown, figures as data, and what makes a headline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

# How many prompts make a headline.
PROMPTS = 100
# Why figures of some trained adapters are withdrawn.
UNEQUAL = "methods were trained on unequal numbers of texts and from unequal starts"


class Axis(NamedTuple):
    """ticks: labels by their places; ends: from where to where it reaches; both by themselves where they are not given.
    zero: whether it begins there."""

    title: str
    log: bool = False
    ticks: Mapping[float, str] | None = None
    ends: tuple[float, float] | None = None
    zero: bool = False


class Curve(NamedTuple):
    """One line or group of points of a figure; one without points keeps its colour for other figures.

    depth: of a layer, 0 to 1, in the colours of layers. shades: of each point, on the figure's scale. ceiling: of the
    curve before it, drawn dashed in its colour.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    mode: Literal["lines", "markers", "lines+markers"] = "lines"
    depth: float | None = None
    shades: Sequence[float] = ()
    ceiling: bool = False


class Figure(NamedTuple):
    """words, columns, rows: the same in a sentence and as a table. scale: ticks of what the shades stand for. mark: a
    place on x and what stands there."""

    title: str
    hint: str
    x: Axis
    y: Axis
    curves: Sequence[Curve]
    words: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    scale: Mapping[float, str] | None = None
    mark: tuple[float, str] | None = None


class Evidence(NamedTuple):
    """The first thing to know of a question. order: its place among all of them. theme: what it is about.

    finding: one sentence. paper: its number; published: what it states, and where. ours: the same of this model. short:
    where that falls short, or why it is withdrawn; every finding has a limit.
    """

    order: int
    theme: str
    finding: str
    figure: Figure
    paper: str
    published: str
    ours: str
    short: str


@dataclass(frozen=True)
class Card:
    """text: Markdown. headlines: what was measured and how much it is, of at least 100 prompts, or six long texts or
    rounds of a timing. few: in words, what rests on fewer."""

    text: str
    figures: Sequence[Figure] = ()
    headlines: Sequence[tuple[str, str]] = ()
    few: str = ""
    evidence: Sequence[Evidence] = ()
