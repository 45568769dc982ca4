"""Recorded runs that paint before the model is loaded.

`python -m app.presets` records them anew from the embedded model, into assets/presets/; with names, those alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from app.scenes import scenes
from backend.inference.control import Control
from backend.record.trace import Trace
from backend.settings import LANDING, RunSettings, Watch

FOLDER = Path(__file__).parents[1] / "assets" / "presets"
TRAVEL = "Why do people like to travel?"
STORY = "Write a short story about a lighthouse keeper who collects clouds."
MORNING = "Describe a quiet morning in a few sentences."
READING = "Why is it good to read every day?"


@dataclass(frozen=True)
class Preset:
    """A recorded run with a name. moves: other targets, by how many tokens were written before. file: its trace,
    gzipped JSON."""

    title: str
    words: str
    settings: RunSettings
    moves: Mapping[int, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of its file."""
        return self.title.lower().replace("λ", "lambda").replace("×", "x").replace(" ", "-")

    @property
    def file(self) -> Path:
        return file_of(self.name)

    def record(self, lab: Any) -> Trace:
        """The run, written now."""
        trace, control = Trace(self.settings, asdict(lab.capabilities())), Control()
        for event in lab.stream(self.settings, control):
            trace.append(event)
            if goal := self.moves.get(len(trace.steps)):
                control.retarget(goal)
        return trace


def file_of(name: str) -> Path:
    """The file of a recorded run."""
    return FOLDER / f"{name}.json.gz"


WATCH = Watch(layer=12, head=0)
# The first is what the page opens on: an answer of the length asked for, which ends as one.
PRESETS = (
    Preset(
        "60 tokens",
        "counts down to 60 tokens and ends a sentence there",
        RunSettings(prompt=READING, method="ldpe", target=60, landing=LANDING, in_prompt=True, watch=WATCH),
    ),
    Preset(
        "Λ window 48",
        "sees 48 tokens and 10 sinks",
        RunSettings(prompt=MORNING, window=48, sinks=10, max_new_tokens=160, watch=WATCH),
    ),
    Preset(
        "Dynamic × 4",
        "the middle compressed by four",
        RunSettings(
            prompt=TRAVEL, pic="dynamic", ratio=4, initial=4, recent=64, max_new_tokens=300, watch=WATCH
        ),
    ),
)
# What the page opens on: a length asked for in the prompt, and steered.
OPENING = (
    Preset("asked", "asks for 60 tokens", RunSettings(prompt=READING, method="prompted", target=60, watch=WATCH)),
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


def of_scenes() -> Iterator[Preset]:
    """The runs that scenes alone show."""
    for scene in scenes().values():
        for lane in scene.lanes:
            if lane.settings:
                yield Preset(lane.run, scene.title, lane.settings, lane.moves)


def main() -> None:
    from backend import Lab

    known = {preset.name: preset for preset in (OPENING[0], *PRESETS, *of_scenes())}
    if unknown := sorted({*sys.argv[1:]} - known.keys()):
        raise SystemExit(f"{', '.join(unknown)}: no recorded run has such a name. There are {', '.join(known)}.")
    lab = Lab()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for preset in [known[name] for name in sys.argv[1:]] or known.values():
        trace = preset.record(lab)
        trace.save(preset.file)
        print(f"{preset.file.name}: {len(trace.steps)} tokens, {preset.file.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
