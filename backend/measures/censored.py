"""Lengths of which some are known only from below, because a cap cut the answer: Kaplan and Meier's estimator.

The curve and its bounds are those of scipy.stats.ecdf on censored data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from backend.measures.bootstrap import Bounded


def survival(lengths: ArrayLike, ended: ArrayLike) -> Any:
    """The share of answers longer than a length, by length. ended: whether each length is the answer's own."""
    found, whole = np.asarray(lengths, dtype=float), np.asarray(ended, dtype=bool)
    return stats.ecdf(stats.CensoredData(uncensored=found[whole], right=found[~whole])).sf


def median(lengths: ArrayLike, ended: ArrayLike) -> Bounded:
    """The length that half of the answers exceed; None where more than half were cut before it is known.

    Its bounds are the lengths at which those of the curve (95 %, log-log) come to a half; high None: beyond the cap.
    """
    curve = survival(lengths, ended)
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = curve.confidence_interval(method="log-log")
    half = [_reaches_half(curve.quantiles, each) for each in (curve.probabilities, *_heights(bounds))]
    return Bounded(*half)


def restricted_mean(lengths: ArrayLike, ended: ArrayLike, horizon: float) -> float:
    """The mean of lengths of which none counts more than the horizon: the area under the curve up to there."""
    curve = survival(lengths, ended)
    inside = curve.quantiles < horizon
    edges = np.concatenate([[0.0], curve.quantiles[inside], [horizon]])
    heights = np.concatenate([[1.0], curve.probabilities[inside]])
    return float(np.diff(edges) @ heights)


def _heights(bounds: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Of the lower and the upper curve; where scipy has none, all answers ended or none did."""
    low, high = bounds.low.probabilities, bounds.high.probabilities
    return np.nan_to_num(low, nan=0.0), np.nan_to_num(high, nan=1.0)


def _reaches_half(lengths: NDArray[Any], heights: NDArray[Any]) -> float | None:
    # The curve is a product of fractions: a half may come out a rounding above it.
    below = np.flatnonzero(heights <= 0.5 + 1e-9)
    return float(lengths[below[0]]) if len(below) else None
