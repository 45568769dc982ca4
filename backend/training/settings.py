"""The settings of a training run, and named sets of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, get_args

from backend.methods import methods
from backend.methods.shifts import MntSettings
from backend.methods.signal import Scale, SignalMethod
from backend.models.adapters import LongformSettings
from backend.models.headlines import SOURCE_TOKENS, TargetTokens
from backend.refused import Refused
from backend.settings import Method
from backend.training.curriculum import EVEN, LIMITS, LONG, SENTENCES, SHORT_FIRST, WHOLE, Stage

CURRICULA = {
    "short-first": SHORT_FIRST, "long": LONG, "even": EVEN, "whole": WHOLE, "sentences": SENTENCES, "limits": LIMITS,
}  # fmt: skip


@dataclass(frozen=True)
class TrainSettings:
    """Everything that decides a training run.

    samples: responses to train on, in all. budget: tokens of a batch, padding included; accumulate: batches of an
    optimiser step. gain: strength of the signal beside the token embeddings. scale: whose norm that is measured by,
    'table' (of all tokens, the lab's own) or 'sequence' (of each prompt, 000 eq. 5). longest_prompt, longest: tokens
    kept.
    match: share of the text's loss that is its KL divergence from the base model, the rest being the texts' own.
    curriculum: 'short-first', 'long', 'even', 'limits', 'sentences' or 'whole'. targets: modules with a LoRA,
    'all-linear' or names by commas.
    ended: answers that did not end by themselves are left out. said: share of samples whose prompt says the length too,
    as `in_prompt` does in a run.
    shortest: responses of fewer tokens are left out where answers are trained on whole (PIC-SFT), with batches of one.
    ratio, initial, recent: of the compressed positions there; segment: tokens that share them (004 §3.2).
    start: an adapter to go on from. mnt_sigma, mnt_most: Max New Tokens++'s largest scale and shift, in tokens;
    seconds: of an encoder-decoder's training, after which it ends, with fewer samples if need be; 0: no such end;
    beside: an encoder-decoder's own positions stay beside the signal (001's "+PE"); left_out: lengths of texts that it
    is not trained on.
    mnt_nearest: shifts are rounded to the nearest number (000 eq. 7), not up (the lab's own).
    """

    method: Method
    model: str = "embedded"
    samples: int = 12_000
    budget: int = 600
    accumulate: int = 1
    gain: float = 0.5
    scale: Scale = "table"
    rank: int = 6
    alpha: float = 12
    dropout: float = 0.0
    targets: str = "all-linear"
    rate: float = 1e-3
    match: float = 0.0
    betas: tuple[float, float] = (0.9, 0.99)
    longest_prompt: int = 300
    longest: int = 224
    curriculum: str = "short-first"
    ended: bool = False
    said: float = 0.0
    shortest: int = 1
    ratio: float = 4.0
    initial: int = 10
    recent: int = 600
    segment: int = 128
    mnt_sigma: float = 64.0
    mnt_most: int = 256
    mnt_nearest: bool = False
    beside: bool = False
    left_out: tuple[int, ...] = ()
    start: str | None = None
    seconds: float = 0.0
    load_in_4bit: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.curriculum not in CURRICULA:
            raise Refused(f"there is no curriculum {self.curriculum!r}: choose one of {', '.join(CURRICULA)}")
        if self.scale not in get_args(Scale):
            raise Refused(f"there is no scale {self.scale!r}: choose one of {', '.join(get_args(Scale))}")
        counts = ("samples", "budget", "accumulate", "rank", "longest_prompt", "longest", "mnt_most")
        for name in (*counts, "shortest", "recent", "segment"):
            if getattr(self, name) < 1:
                raise Refused(f"{name.replace('_', ' ')} is {getattr(self, name)}: give at least 1")
        if not 0 <= self.gain < math.inf:
            raise Refused(f"gain is {self.gain}: give a number from 0")
        for name in ("initial", "seconds"):
            if not 0 <= getattr(self, name) < math.inf:
                raise Refused(f"{name} is {getattr(self, name)}: give a number from 0")
        for name in ("alpha", "rate", "ratio", "mnt_sigma"):
            if not 0 < getattr(self, name) < math.inf:
                raise Refused(f"{name.replace('_', ' ')} is {getattr(self, name)}: give a number above 0")
        for name in ("match", "said"):
            if not 0 <= getattr(self, name) <= 1:
                raise Refused(f"{name} is {getattr(self, name)}: give a share from 0 to 1")
        if not 0 <= self.dropout < 1 or not all(0 <= beta < 1 for beta in self.betas):
            raise Refused("dropout and betas go from 0 to below 1")

    @property
    def longform(self) -> LongformSettings | None:
        """The positions that PIC-SFT trains under; NTK's factor is on the RoPE base."""
        if (kind := methods[self.method].compression) is None:
            return None
        return LongformSettings(kind, self.ratio if kind != "none" else 1.0, self.initial, self.recent)

    @property
    def slack(self) -> bool:
        """Whether each answer is given a target that it meets, drawn anew each time, in the place of its own length."""
        method = methods[self.method]
        return isinstance(method, SignalMethod) and method.slack

    @property
    def mnt(self) -> MntSettings | None:
        """How far countdowns are lengthened, where the target is a limit."""
        if methods[self.method].bound != "limit":
            return None
        return MntSettings(0.1, self.mnt_sigma, self.mnt_most, self.mnt_nearest)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return CURRICULA[self.curriculum]


@dataclass(frozen=True)
class HeadlineSettings:
    """How the headline model is trained: 001's recipe, on fewer and narrower layers.

    steps: of `batch` pairs each. seconds: of training, after which it ends, the rate falling to 0 over them; 0: no such
    end. schedule: of the rate, as transformers names it. width, layers: of each side. smoothing: of labels.
    longest_source: tokens of a source, which is cut. longest: characters of a headline, which is left out where it is
    longer. source_tokens: subwords of sources. target_tokens: what a headline is written in; bpe are the source's own
    subwords, with one table of embeddings. copies: whether a stretch of the source stands in for its headline, as a
    first lesson. averaged: last checkpoints, of every 50 steps or 24th of the seconds, whose mean is kept (001 §3.2).
    start: a headline model to go on from, in its own shape and target tokens; None for nothing.
    """

    steps: int = 12_000
    seconds: float = 0.0
    batch: int = 128
    rate: float = 1e-3
    schedule: str = "inverse_sqrt"
    warmup: int = 400
    width: int = 192
    layers: int = 3
    dropout: float = 0.1
    smoothing: float = 0.1
    longest_source: int = 96
    longest: int = 96
    source_tokens: int = SOURCE_TOKENS
    target_tokens: TargetTokens = "characters"
    copies: bool = False
    averaged: int = 10
    start: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class SharpenSettings:
    """How an adapter practises on its own answers.

    start: the adapter. seconds: until it ends; rounds: at most, 0 for any number. learning: share of the time that is
    given to the base model's own whole answers, at the rate `learning_rate`. prompts: of a round; answers: to each;
    steps: of the optimiser a round; questions: sampled of each kind. shortest, longest: targets in tokens. match:
    weight of the KL divergence from the base model. said: share of prompts that say the length too. budget: tokens of
    a batch, padding included. look: seconds between two looks at the validation prompts. workers: processes that judge
    answers.
    """

    start: str
    seconds: float = 400
    rounds: int = 0
    learning: float = 0.25
    learning_rate: float = 6e-4
    rate: float = 3e-4
    prompts: int = 256
    answers: int = 8
    steps: int = 2
    questions: int = 2048
    shortest: int = 8
    longest: int = 240
    temperature: float = 0.9
    match: float = 0.1
    said: float = 0.5
    budget: int = 24_000
    look: float = 25
    workers: int = 4
    seed: int = 0


PRESETS: dict[str, dict[str, Any]] = {
    # 000 §4: batches of one sequence, five of them to a step, the signal as strong as each prompt's embeddings (eq. 5),
    # shifts to the nearest number.
    "butcher": {
        "samples": 110_000, "budget": 1, "accumulate": 5, "gain": 1.0, "scale": "sequence", "rank": 16,
        "alpha": 32, "dropout": 0.05, "rate": 3e-4, "longest_prompt": 2048, "longest": 2048, "curriculum": "whole",
        "mnt_sigma": 2048.0, "mnt_most": 4096, "mnt_nearest": True,
    },
    # 004 §4.1: three epochs of its data, whole; there with all weights at a rate of 5e-5, here with a LoRA's.
    "long": {"samples": 840, "longest_prompt": 300, "longest": 3584, "shortest": 1500, "curriculum": "even"},
    "smoke": {"samples": 200, "longest": 40},
}  # fmt: skip
