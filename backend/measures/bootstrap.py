"""Between what values a figure lies: the percentile bootstrap over prompts or texts (Efron, Tibshirani 1993).

The draws and percentiles are those of scipy.stats.bootstrap.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

# Draws of a bootstrap, fewer of a statistic that takes one at a time; and how many items it needs to tell anything.
DRAWS, SINGLE_DRAWS, LEAST = 9999, 2000, 6


class Bounded(NamedTuple):
    """A figure and between what values it lies in 95 % of draws; None where that is not known."""

    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def known(self) -> bool:
        """Whether it has bounds, without which it is not to be called a finding."""
        return None not in self

    def differs(self, same: float) -> bool:
        """Whether its bounds exclude the value that stands for no difference."""
        return self.low is not None and self.high is not None and not self.low <= same <= self.high

    def keys(self, name: str) -> dict[str, float | None]:
        """As a result file has it: `name`, `name_low`, `name_high`."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}

    @classmethod
    def of(cls, row: Any, name: str) -> Bounded:
        """What `keys` made; unknown where the row has no such key."""
        return cls(row.get(name), row.get(f"{name}_low"), row.get(f"{name}_high"))


def bounded(statistic: Callable[..., Any], *samples: ArrayLike, vectorized: bool = True) -> Bounded:
    """A statistic of samples that are drawn together, item by item. vectorized: whether it takes `axis`.

    Unknown where it is not finite; its bounds too where one draw is not, or for fewer than LEAST items.
    """
    data = [np.asarray(sample, dtype=float) for sample in samples]
    with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
        # Where every draw is alike, so are the bounds.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        value = float(statistic(*data, axis=-1) if vectorized else statistic(*data)) if len(data[0]) else np.nan
        if not np.isfinite(value):
            return Bounded(None)
        if len(data[0]) < LEAST:
            return Bounded(value)
        draws = DRAWS if vectorized else SINGLE_DRAWS
        drawn = stats.bootstrap(
            data, statistic, paired=True, vectorized=vectorized, method="percentile", n_resamples=draws, rng=0
        )
    low, high = map(float, drawn.confidence_interval)
    finite = bool(np.isfinite(drawn.bootstrap_distribution).all())
    return Bounded(value, low, high) if finite else Bounded(value)


def ratio(ours: ArrayLike, theirs: ArrayLike) -> Bounded:
    """The mean of one sample over that of another."""
    return bounded(lambda x, y, axis: np.mean(x, axis) / np.mean(y, axis), ours, theirs)


def difference(ours: ArrayLike, theirs: ArrayLike) -> Bounded:
    """The mean of one sample less that of another."""
    return bounded(lambda x, y, axis: np.mean(x, axis) - np.mean(y, axis), ours, theirs)


def geometric(ours: Sequence[float], theirs: Sequence[float]) -> Bounded:
    """e to the mean difference of nats: how many times one perplexity is the other."""
    return bounded(lambda x, y, axis: np.exp(np.mean(x - y, axis)), ours, theirs)


def share(count: int, total: int) -> Bounded:
    """A share and Wilson's interval of it, 95 %; unknown for none."""
    if not total:
        return Bounded(None)
    low, high = stats.binomtest(count, total).proportion_ci(method="wilson")
    return Bounded(count / total, float(low), float(high))
