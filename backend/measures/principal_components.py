"""Principal components of first-layer states (002 figure 1c)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from sklearn.decomposition import PCA


def components(vectors: np.ndarray) -> PCA:
    """The two principal components of vectors [k ≥ 3, d], fitted in a few milliseconds whatever d is."""
    from sklearn.decomposition import PCA

    return PCA(n_components=2, svd_solver="randomized", random_state=0).fit(vectors)
