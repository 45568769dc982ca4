"""Pictures of the page that are committed, and how far a new one is from its own."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
from PIL import Image, ImageChops

KEPT, FOUND = Path(__file__).parent / "pictures", Path(__file__).parents[1] / "test-results"
ANEW = "LENGTH_LAB_PICTURES"
HOW = f"look at both in {FOUND.name}/; if the new one is right: {ANEW}=new make test-ui ARGS=tests/test_pictures.py"
# Colours are kept to the nearest of these steps, which makes the files a quarter smaller.
STEP = 4
# Of 255 in one of the three colours: less is rounding, or the smoothing of a letter's edge.
SLIGHT = 48
# The share of a tile's pixels that may differ by more, and how large a tile is: of a whole page a button is nothing.
MOST, TILE = 0.02, 64


def small(screenshot: bytes) -> Image.Image:
    """As it is kept: of fewer colours."""
    image = Image.open(io.BytesIO(screenshot)).convert("RGB")
    return image.point(lambda value: min(255, (value + STEP // 2) // STEP * STEP))


def moved(before: bytes, after: bytes) -> tuple[int, int, int, int] | None:
    """The box within which two screenshots of one size differ, or None."""
    return ImageChops.difference(*(Image.open(io.BytesIO(each)).convert("RGB") for each in (before, after))).getbbox()


def differing(one: Image.Image, other: Image.Image) -> np.ndarray:
    """[height, width], whether pixels of pictures of one size differ."""
    apart = np.asarray(one, dtype=np.int16) - np.asarray(other, dtype=np.int16)
    return np.abs(apart).max(axis=2) > SLIGHT


def worst(apart: np.ndarray) -> float:
    """The share that differs in the tile that has most of it."""
    height, width = (-(-size // TILE) * TILE for size in apart.shape)
    whole = np.zeros((height, width), dtype=bool)
    whole[: apart.shape[0], : apart.shape[1]] = apart
    return float(whole.reshape(height // TILE, TILE, width // TILE, TILE).mean(axis=(1, 3)).max())


def marked(picture: Image.Image, apart: np.ndarray) -> Image.Image:
    """The picture, pale, and orange where it differs."""
    pale = Image.blend(picture, Image.new("RGB", picture.size, "white"), 0.6)
    pale.paste("#d55e00", mask=Image.fromarray(apart))
    return pale


def wrong(name: str, screenshot: bytes) -> str:
    """What is wrong with a picture beside the one that is kept under its name, or ""; both are then in FOUND. Keeps it
    instead where the environment asks for new ones."""
    new, path = small(screenshot), KEPT / f"{name}.webp"
    if ANEW in os.environ:
        path.parent.mkdir(exist_ok=True)
        new.save(path, lossless=True, method=6)
        return ""
    FOUND.mkdir(exist_ok=True)
    new.save(FOUND / f"{name}.png")
    if not path.exists():
        return f"{name} is new: {HOW}"
    old = Image.open(path).convert("RGB")
    if old.size != new.size:
        return f"{name} is {new.width} x {new.height} and was {old.width} x {old.height}: {HOW}"
    apart = differing(new, old)
    if (share := worst(apart)) <= MOST:
        (FOUND / f"{name}.png").unlink()
        return ""
    marked(new, apart).save(FOUND / f"{name}-difference.png")
    return f"{name} differs in {apart.mean():.2%} of its pixels, {share:.0%} of one tile: {HOW}"
