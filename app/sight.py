"""What the token that is written next still sees of a text that was read, and what its way of reading has lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from app.plans import Plan
from backend.positions import policy_of

# Tokens of a stretch that the page shows from its start and to its end; what lies between is left out.
EDGE = 200
LEFT_OUT = " […] "


@dataclass(frozen=True)
class Sight:
    """A text as one way of reading leaves it. pieces: [text, whether it is seen], in order; lost: tokens, of `read`."""

    name: str
    pieces: list[tuple[str, bool]]
    lost: int
    read: int


def sight(tokenizer: Any, tokens: Tensor, plan: Plan) -> Sight:
    """Of the tokens [n] read so far, at least one."""
    seen = _seen(plan, len(tokens))
    starts = np.flatnonzero(np.diff(seen, prepend=not seen[0]))
    pieces = [
        (_shown(tokenizer, tokens[start:stop]), bool(seen[start]))
        for start, stop in zip(starts, [*starts[1:], len(seen)], strict=True)
    ]
    return Sight(plan.name, pieces, int((~seen).sum()), len(tokens))


def _seen(plan: Plan, read: int) -> NDArray[np.bool_]:
    """[read], of the query of the last token; truncation keeps the last tokens alone."""
    places = np.arange(read)
    if plan.kept is not None:
        return places >= read - plan.kept
    return ~np.isnan(policy_of(plan.settings).distance(places[-1:], places)[0])


def _shown(tokenizer: Any, tokens: Tensor) -> str:
    ids = tokens.tolist()
    ends = [ids] if len(ids) <= 2 * EDGE else [ids[:EDGE], ids[-EDGE:]]
    # A stretch may begin or end amid a character of several tokens.
    return LEFT_OUT.join(tokenizer.decode(end).strip("\ufffd") for end in ends)
