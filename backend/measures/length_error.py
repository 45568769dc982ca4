"""How well lengths keep to their targets: the measures of the field, over pairs (produced, target).

Both numbers of a pair are in one unit, whichever it is; a target is at least 1. ValueError for no pairs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

Pair = tuple[int, int]
Control = Literal["equal to", "at most", "at least"]

OUTLIER = 20
# Ruler, table 1: upper end of a target's class, tolerances of the precise and of the flexible match.
CLASSES = (
    (20, 10, 10),
    (40, 10, 10),
    (60, 10, 10),
    (100, 10, 20),
    (200, 20, 50),
    (400, 20, 100),
    (600, 50, 100),
    (800, 70, 100),
)
OPEN = CLASSES[-1][0]


def mae(pairs: Sequence[Pair]) -> float:
    """Mean absolute error: mean |produced − target| (000 fig. 3, 003 §4.3)."""
    return statistics.fmean(map(_absolute, pairs))


def sd(pairs: Sequence[Pair]) -> float:
    """Standard deviation of |produced − target| over all pairs, divided by n, not n − 1 (003 table 1: 'MAE SD')."""
    return statistics.pstdev(map(_absolute, pairs))


def bias(pairs: Sequence[Pair]) -> float:
    """Mean signed error: mean (produced − target); positive is too long."""
    return statistics.fmean(produced - target for produced, target in pairs)


def variance(pairs: Sequence[Pair]) -> float:
    """001 eq. 8: mean (produced − target)², the mean squared error; Liu et al. 2018 report 0.001 times it."""
    return statistics.fmean((produced - target) ** 2 for produced, target in pairs)


def outliers(pairs: Sequence[Pair], beyond: int = OUTLIER) -> float:
    """Share of pairs with |produced − target| > beyond (003 §6 and table 3: more than 20 tokens)."""
    return statistics.fmean(_absolute(pair) > beyond for pair in pairs)


def over(pairs: Sequence[Pair]) -> float:
    """Share of pairs that produced more than their target, read as a limit (000 §3.4, MNT++)."""
    return statistics.fmean(produced > target for produced, target in pairs)


def precise_match(pairs: Sequence[Pair]) -> float:
    """PM of Ruler (Li et al. 2024, eq. 1 and table 1): share with target − tolerance < produced ≤ target + tolerance.

    Ruler asks for nine word counts: 10, 30, 50, 80 (tolerance 10), 150, 300 (20), 500 (50), 700 (70) and 'more than
    800'. Their flexible ranges, 0–20–40–60–100–200–400–600–800–∞, leave no gap, so any other target takes the
    tolerance of the range it lies in (lower end excluded). One above 800 is met by more than 800, as in Ruler: do not
    read that as precise.
    """
    return statistics.fmean(_matches(pair, flexible=False) for pair in pairs)


def flexible_match(pairs: Sequence[Pair]) -> float:
    """FM of Ruler (Li et al. 2024, eq. 2 and table 1): precise_match with wider tolerances.

    10 for targets up to 60, 20 up to 100, 50 up to 200, 100 up to 800; Ruler's own ranges at its nine targets.
    """
    return statistics.fmean(_matches(pair, flexible=True) for pair in pairs)


def length_deviation(pairs: Sequence[Pair]) -> float:
    """LD of LIFEBench (Zhang et al. 2025): mean |produced − target| / target, as a share; they print it in percent."""
    return statistics.fmean(abs(_deviation(pair)) for pair in pairs)


def length_score(pairs: Sequence[Pair], control: Control = "equal to") -> float:
    """LS of LIFEBench (Zhang et al. 2025), 0 to 100: mean of 100·e^(5·d) where d < 0, else of 100·e^(−2·d).

    d = (produced − target) / target. 'at most' gives 100 to what is not longer, 'at least' to what is not shorter.
    Constants and cases are those of their published code. It passes d in percent, though, where 1 % too long would
    already score 14; here d is a share, for which alone the constants 5 and 2 give a scale.
    """
    return statistics.fmean(_length_score(_deviation(pair), control) for pair in pairs)


def s_l(pairs: Sequence[Pair]) -> float:
    """S_l of LongBench-Write (Bai et al. 2024, LongWriter; used in 004 §4.1), 0 to 100: piecewise linear in the ratio.

    Mean of 100·max(0, 1 − (produced/target − 1)/3) for what is longer than asked, of
    100·max(0, 1 − (target/produced − 1)/2) for the rest; nothing produced scores 0.
    """
    return statistics.fmean(map(_s_l, pairs))


MEASURES: dict[str, Callable[[Sequence[Pair]], float]] = {
    measure.__name__: measure
    for measure in (
        mae,
        sd,
        bias,
        variance,
        outliers,
        over,
        precise_match,
        flexible_match,
        length_deviation,
        length_score,
        s_l,
    )
}


def summary(pairs: Iterable[Pair]) -> dict[str, float]:
    """Every measure by its name."""
    found = list(pairs)
    return {name: measure(found) for name, measure in MEASURES.items()}


def _absolute(pair: Pair) -> int:
    return abs(pair[0] - pair[1])


def _deviation(pair: Pair) -> float:
    produced, target = pair
    return (produced - target) / target


def _matches(pair: Pair, flexible: bool) -> bool:
    produced, target = pair
    if target > OPEN:
        return produced > OPEN
    tolerance = next(row[1 + flexible] for row in CLASSES if target <= row[0])
    return target - tolerance < produced <= target + tolerance


def _length_score(deviation: float, control: Control) -> float:
    if (control == "at most" and deviation <= 0) or (control == "at least" and deviation >= 0):
        return 100.0
    return 100 * math.exp(5 * deviation if deviation < 0 else -2 * deviation)


def _s_l(pair: Pair) -> float:
    produced, target = pair
    if produced > target:
        return 100 * max(0.0, 1 - (produced / target - 1) / 3)
    return 100 * max(0.0, 1 - (target / produced - 1) / 2) if produced else 0.0
