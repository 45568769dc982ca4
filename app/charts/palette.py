"""Colours by name ("@c1", "@ink/0.2"), which `resolve` or the page turns into the light or the dark palette, so that
one chart serves both themes: Okabe–Ito for series, viridis and cividis for scales.
"""

from __future__ import annotations

from typing import Any

VIRIDIS = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")
CIVIDIS = ("#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838")

PALETTES: dict[str, dict[str, str]] = {
    "light": {
        "ink": "#1b2430",
        "muted": "#66717f",
        "grid": "#e6eaef",
        "paper": "#ffffff",
        "none": "#f4f6f8",
        "c1": "#0072b2",
        "c2": "#d55e00",
        "c3": "#009e73",
        "c4": "#b4568a",
        "c5": "#a07800",
        "c6": "#6b4fc8",
        "old": "#98a2ae",
    },
    "dark": {
        "ink": "#e8edf3",
        "muted": "#93a0ae",
        "grid": "#29323d",
        "paper": "#151b23",
        "none": "#1c242e",
        "c1": "#56b4e9",
        "c2": "#e69f00",
        "c3": "#2fc79a",
        "c4": "#dd92bb",
        "c5": "#d8d04a",
        "c6": "#a996f2",
        "old": "#6c7885",
    },
}
# The darkest steps of a scale vanish on a dark page, the lightest on a light one.
for _theme, _skip in (("light", 0), ("dark", 2)):
    PALETTES[_theme] |= {f"layer{i}": colour for i, colour in enumerate(VIRIDIS[_skip : _skip + 7])}
    PALETTES[_theme] |= {f"place{i}": colour for i, colour in enumerate(CIVIDIS[_skip : _skip + 8])}
SERIES_COLOURS = ("@c1", "@c2", "@c3", "@c4", "@muted", "@c5", "@c6")
SYMBOLS = ("circle", "diamond", "square", "cross", "triangle-up", "x", "star")
LAYER_SCALE: list[list[Any]] = [[i / 6, f"@layer{i}"] for i in range(7)]
PLACE_SCALE: list[list[Any]] = [[i / 7, f"@place{i}"] for i in range(8)]


def resolve(value: Any, theme: str) -> Any:
    """`value` with every colour name replaced by the theme's colour; "@ink/0.2" is the colour at 20 % opacity."""
    if isinstance(value, str) and value.startswith("@"):
        name, _, opacity = value[1:].partition("/")
        colour = PALETTES[theme][name]
        if not opacity:
            return colour
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red},{green},{blue},{opacity})"
    if isinstance(value, dict):
        return {key: resolve(item, theme) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolve(item, theme) for item in value]
    return value
