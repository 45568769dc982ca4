"""A plane of first-layer states, fixed on a long text, so that each run is drawn where others were (002 fig. 1c)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from backend.measures.principal_components import components

FOLDER = Path(__file__).parents[2] / "assets" / "planes"
# States of the text that are kept as its cloud.
CLOUD = 240
COLUMNS = ("mean", "axes", "position", "cloud")


@dataclass(frozen=True)
class Plane:
    """Two principal components of a text's first-layer states.

    mean [d], axes [2, d]. explained: the shares of the text's variance that the two hold. by_position: the share of
    log(1 + position)'s variance that a state's two coordinates explain, 0 where they say nothing of it. tokens: of the
    text; position [k], cloud [k, 2]: some of its states.
    """

    mean: np.ndarray
    axes: np.ndarray
    explained: tuple[float, float]
    by_position: float
    tokens: int
    position: np.ndarray
    cloud: np.ndarray

    def transform(self, states: np.ndarray) -> np.ndarray:
        """The coordinates [k, 2] of states [k, d]."""
        return (states - self.mean) @ self.axes.T

    def share(self, states: np.ndarray) -> float:
        """How much of the variance of states [k ≥ 2, d], around their own mean, lies in the plane."""
        away = states - states.mean(0)
        return float(np.square(away @ self.axes.T).sum() / max(np.square(away).sum(), 1e-12))


def fixed(states: np.ndarray) -> Plane:
    """The plane of a text's states [n ≥ 3, d], one of each of its tokens."""
    found, positions = components(states), np.arange(len(states))
    plane, log = found.transform(states), np.log1p(positions)
    known = np.column_stack([plane, np.ones(len(plane))])
    left = log - known @ np.linalg.lstsq(known, log, rcond=None)[0]
    kept = np.linspace(0, len(states) - 1, min(CLOUD, len(states))).round().astype(int)
    first, second = found.explained_variance_ratio_
    return Plane(
        found.mean_, found.components_, (float(first), float(second)), float(1 - left.var() / log.var()), len(states),
        positions[kept], plane[kept],
    )  # fmt: skip


def save(plane: Plane, model: str, about: dict[str, Any]) -> Path:
    """Writes the plane of a model; about: how it was made."""
    columns = {name: getattr(plane, name).astype(float).round(5).tolist() for name in COLUMNS}
    shares = {"explained": [round(each, 4) for each in plane.explained], "by_position": round(plane.by_position, 4)}
    file = FOLDER / f"{model}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(orjson.dumps(about | {"tokens": plane.tokens} | shares | columns) + b"\n")
    return file


def plane_of(model: str) -> Plane | None:
    """The plane that ships for a model, or None."""
    return _planes().get(model)


@cache
def _planes() -> dict[str, Plane]:
    return {file.stem: _plane(orjson.loads(file.read_bytes())) for file in FOLDER.glob("*.json")}


def _plane(kept: dict[str, Any]) -> Plane:
    mean, axes, position, cloud = (np.array(kept[name]) for name in COLUMNS)
    first, second = kept["explained"]
    return Plane(mean, axes, (first, second), kept["by_position"], kept["tokens"], position, cloud)
