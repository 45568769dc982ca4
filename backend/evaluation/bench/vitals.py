"""What it takes a visitor to open the page and to watch a run, as tables."""

from __future__ import annotations

from backend.evaluation.experiment import Result
from backend.evaluation.markdown import figure, table

# The runway by the name of its frames, frames a second wanted of it and of each other chart, and milliseconds to the
# first frame of each.
RUNWAY, FLUENT, LIVE, FIRST = "try", 10, 3, 500
# Bytes on the wire until the page stands still.
MOST = 1_600_000
# As the page calls them.
CALLED = {
    "length": "Length", "entropy": "Attention entropy", "entropy_map": "Entropy by layer", "p_eos": "Chance to end",
    "logits": "Attention logits", "sinks": "Attention sinks", "states": "First-layer states", RUNWAY: "Runway",
    "signal": "Signal", "heads": "All heads of the layer", "cross_attention": "Where it looks",
}  # fmt: skip
OPENED = (("first picture, ms", "paint_ms", 1500), ("Write reacts, ms", "use_ms", 3000))
WORDS = (
    "A headless Chromium on the same cores opens the page and watches runs; medians over {} rounds, without intervals. "
    "Frames a second are counted from a run's first token to its last."
)


def vitals(result: Result) -> str:
    """The tables, with the goals."""
    opening, speed = result["opening"], result["speed"]
    rows = [[name, figure(opening[key]), f"at most {goal:,}"] for name, key, goal in OPENED]
    rows += [
        ["on the wire, kB", f"{opening['total_bytes'] / 1000:,.0f}", f"at most {MOST / 1000:,.0f}"],
        ["of it Plotly, kB", f"{opening['bytes']['Plotly'] / 1000:,.0f}", "–"],
        ["tasks above 50 ms, in all ms", figure(opening["long_tasks"]["ms"]), "–"],
        ["requests to other hosts", str(len(opening["foreign"])), "0"],
        ["tokens a second behind the page, lost of the engine's, %", figure(100 * speed["cost"]["page"]), "at most 15"],
    ]
    frames = [
        [where, CALLED[name.removeprefix("t-")], figure(seen["frames_per_second"]), _goal(name),
         figure(seen["first_ms"])]
        for where, parts in (("Lab", result["frames"]["lab"]), ("Try it", result["frames"]["try"]))
        for name, seen in parts.items()
    ]
    return "\n\n".join([
        WORDS.format(result["rounds"]),
        table(["the page", "measured", "goal"], rows),
        table(["tab", "chart", "frames a second", "goal", "ms to its first frame"], frames),
        f"The goal for a first frame is {FIRST} ms.",
    ])  # fmt: skip


def _goal(name: str) -> str:
    return f"at least {FLUENT if name == RUNWAY else LIVE}"
