"""Position policies for the tests: named ones that together reach every rule, and a strategy for all of them."""
from __future__ import annotations

from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from backend.positions import policies
from backend.settings import RunSettings


def asking(prompt: str = "Say something.", **changes: Any) -> RunSettings:
    """Settings with short initial and recent parts, so that short texts reach all of a policy's parts."""
    return RunSettings(prompt=prompt, **({"initial": 3, "recent": 6} | changes))


PIC: dict[str, dict[str, Any]] = {
    "plain": {},
    "naive": {"pic": "naive", "ratio": 2.5},
    "naive, stretching": {"pic": "naive", "ratio": 0.5},
    "ntk": {"pic": "ntk", "ratio": 16},
    "dynamic": {"pic": "dynamic", "ratio": 4},
    "dynamic, stretching": {"pic": "dynamic", "ratio": 0.25},
    "dynamic, literal": {"pic": "dynamic", "ratio": 4, "reading": "literal"},
    "dynamic, literal, stretching": {"pic": "dynamic", "ratio": 0.25, "reading": "literal"},
    "dynamic, no initial, one recent": {"pic": "dynamic", "ratio": 3, "initial": 0, "recent": 1},
}
LAMBDA: dict[str, dict[str, Any]] = {
    "window": {"window": 12, "sinks": 2},
    "window, no sinks": {"window": 12, "sinks": 0},
    "window, sinks beyond initial": {"window": 10, "sinks": 5},
    "window, no limit": {"window": 12, "sinks": 2, "distance_limit": "off"},
    "window, near limit": {"window": 12, "sinks": 2, "distance_limit": 5},
    "window, nearest limit": {"window": 12, "sinks": 2, "distance_limit": 1},
    "window, far limit": {"window": 12, "sinks": 2, "distance_limit": 20},
}
# Policies that training does not know.
FURTHER: dict[str, dict[str, Any]] = {
    "streaming llm": {"pic": "streaming_llm"},
    "rerope": {"pic": "rerope"},
    "leaky rerope": {"pic": "leaky_rerope", "ratio": 3},
    "self-extend": {"pic": "self_extend", "ratio": 4},
    "self-extend, uneven": {"pic": "self_extend", "ratio": 2.5, "recent": 7},
    "yarn": {"pic": "yarn", "ratio": 8},
    "dual chunk": {"pic": "dual_chunk", "recent": 3},
}
# Whatever else there is a file of.
FURTHER |= {
    policy.name: {"pic": policy.name, "ratio": 3}
    for policy in policies
    if policy.name not in {parts.get("pic", "none") for parts in (PIC | FURTHER).values()}
}
# ALiBi has no position ids to compress: it takes these alone.
WINDOWED: dict[str, RunSettings] = {"plain": asking()} | {
    name: asking(**parts) for name, parts in LAMBDA.items()
} | {"streaming llm + window": asking(**FURTHER["streaming llm"], **LAMBDA["window"])}
POLICIES: dict[str, RunSettings] = (
    {name: asking(**parts) for name, parts in (PIC | FURTHER).items()}
    | {name: asking(**parts) for name, parts in LAMBDA.items()}
    | {
        f"{pic} + {window}": asking(**PIC[pic], **LAMBDA[window])
        for pic in PIC
        for window in ("window", "window, sinks beyond initial", "window, near limit", "window, no limit")
        if pic != "plain" and (pic, window) != ("dynamic, literal, stretching", "window, near limit")
    }
    | {
        f"{name} + {window}": asking(**FURTHER[name], **LAMBDA[window])
        for name in FURTHER
        for window in ("window", "window, no sinks", "window, near limit")
    }
)



def comes_back(asked: RunSettings) -> bool:
    """Whether a token that reached the distance limit would come nearer again, which the lab refuses."""
    if asked.pic != "dynamic" or asked.reading == "contiguous" or asked.ratio >= 1 or asked.window is None:
        return False
    return isinstance(asked.distance_limit, int) and asked.distance_limit < min(asked.recent, asked.window)


RATIOS = (0.05, 0.25, 0.4, 0.75, 1.0, 1.5, 2.0, 4.0, 7.3, 16.0, 1024.0)


@st.composite
def any_policy(draw: st.DrawFn, longest: int = 48) -> RunSettings:
    """Any policy that the lab takes, its numbers from the smallest to beyond texts of `longest` tokens."""
    number = st.integers(1, longest + 2)
    window = draw(st.none() | number)
    asked = asking(
        pic=draw(st.sampled_from(policies.names())),
        ratio=draw(st.sampled_from(RATIOS)),
        initial=draw(st.integers(0, longest + 2)),
        recent=draw(number),
        reading=draw(st.sampled_from(("contiguous", "literal"))),
        window=window,
        sinks=draw(st.integers(0, longest + 2)),
        distance_limit=draw(st.sampled_from(("window", "off")) | number),
    )
    assume(not comes_back(asked))
    return asked
