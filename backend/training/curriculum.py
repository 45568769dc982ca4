"""What training changes while it goes on: how long answers are, how much their end weighs, the learning rate."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """until: share of training at which it ends. longest: longest response in tokens. end_weight: of EOS's
    loss beside another token's. anywhere: share of responses cut between any two tokens. whole: share left as long as
    they are, of those that ended by themselves. The rest is cut at sentence ends."""

    until: float
    longest: int
    end_weight: float
    anywhere: float = 0.0
    whole: float = 0.0


# Where every answer ends with a sentence, "a sentence has ended" foretells EOS well enough, and the count is
# not learnt (the end's loss rose from 0.01 to 2.3 as answers became longer). Cut anywhere, only the count tells.
SHORT_FIRST = (Stage(0.25, 40, 3.0, 0.7), Stage(0.5, 100, 2.0, 0.4), Stage(1.0, 10_000, 1.5, 0.2))
# For a model that counts already, and yet has to learn to end its sentences on the count.
LONG = (Stage(0.4, 10_000, 1.5, 0.2), Stage(1.0, 10_000, 1.5))
EVEN = (Stage(1.0, 10_000, 1.0),)
# The papers' way: responses as they are.
WHOLE = (Stage(1.0, 10_000, 1.0, whole=1.0),)
# With slack: where all answers were whole, the end of any sentence was taken for theirs.
SENTENCES = (Stage(1.0, 10_000, 1.0, whole=0.4),)
# For limits: where no response was left whole, a model that was given room ended after a sentence or two all the same;
# where none was cut amid a sentence, it passed the limit to end its own.
LIMITS = (Stage(1.0, 10_000, 1.5, anywhere=0.3, whole=0.4),)


def stage(stages: tuple[Stage, ...], progress: float) -> Stage:
    """The stage at a share of training from 0 to 1."""
    return next((found for found in stages if progress < found.until), stages[-1])


def learning_rate(peak: float, progress: float, warm_up: float = 0.02) -> float:
    """Linear rise over the first `warm_up` of training, then a linear fall to 0 (000 §4)."""
    if progress < warm_up:
        return peak * max(progress / warm_up, 0.05)
    return peak * max(0.0, (1 - progress) / (1 - warm_up))
