"""Recorded runs that paint before the model is loaded.

`python -m app.presets` records them anew from the embedded model, into assets/presets/.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from backend.record.trace import Trace
from backend.settings import RunSettings, Watch

FOLDER = Path(__file__).parents[1] / "assets" / "presets"
SKY = "Why is the sky blue, and why does it turn red in the evening?"
STORY = "Write a short story about a lighthouse keeper who collects clouds."


@dataclass(frozen=True)
class Preset:
    """A recorded run with a name. file: its trace, gzipped JSON."""

    title: str
    words: str
    settings: RunSettings

    @property
    def file(self) -> Path:
        return FOLDER / (self.title.lower().replace("λ", "lambda").replace("×", "x").replace(" ", "-") + ".json.gz")


LANDING = 8
WATCH = Watch(layer=12)
# The first is what the page opens on: an answer of the length asked for, which ends as one.
PRESETS = (
    Preset(
        "60 tokens",
        "counts down to 60 tokens and ends a sentence there",
        RunSettings(prompt=STORY, method="ldpe", target=60, landing=LANDING, watch=WATCH),
    ),
    Preset(
        "Λ window 48",
        "sees 48 tokens and 10 sinks",
        RunSettings(prompt=SKY, window=48, sinks=10, max_new_tokens=160, watch=WATCH),
    ),
    Preset(
        "Dynamic × 4",
        "the middle compressed by four",
        RunSettings(
            prompt=STORY, pic="dynamic", ratio=4, initial=4, recent=64, max_new_tokens=200, watch=WATCH
        ),
    ),
)
# What the page opens on: a length asked for in the prompt, and steered.
OPENING = (
    Preset("asked", "asks for 60 tokens", RunSettings(prompt=STORY, method="prompted", target=60, watch=WATCH)),
    PRESETS[0],
)


@cache
def opening() -> tuple[Trace, ...]:
    """The pair that the page opens on, or nothing where one of them is not there."""
    return tuple(Trace.load(preset.file) for preset in OPENING) if all(p.file.exists() for p in OPENING) else ()


@cache
def recorded() -> dict[str, Trace]:
    """The traces at hand, by title; presets without one are left out."""
    return {preset.title: Trace.load(preset.file) for preset in PRESETS if preset.file.exists()}


def main() -> None:
    from backend import Lab

    lab = Lab()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for preset in (*OPENING, *PRESETS):
        trace = Trace(preset.settings, asdict(lab.capabilities()))
        for event in lab.stream(preset.settings):
            trace.append(event)
        trace.save(preset.file)
        print(f"{preset.file.name}: {len(trace.steps)} tokens, {preset.file.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
