"""What a run yields: one `Step` a token, then one `Finish`; and, where that is asked for, how near the first one is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

Reason = Literal["eos", "cap", "stopped", "error"]
# A text's first tokens, on which attention rests that finds nothing else (Xiao et al. 2023, StreamingLLM: four).
SINKS = 4


@dataclass(frozen=True, slots=True)
class Waiting:
    """The run waits for memory, or for one of those that write to end. before: runs that waited before it."""

    before: int


@dataclass(frozen=True, slots=True)
class Prefilling:
    """The prompt is being read. read, total: of how many of its tokens."""

    read: int
    total: int


@dataclass(frozen=True, slots=True)
class Searching:
    """A search is under way. texts: what each beam has written, the likeliest first."""

    texts: tuple[str, ...]


Progress = Waiting | Prefilling | Searching


@dataclass(frozen=True, slots=True)
class Reading:
    """What prefill saw; rides on the first step.

    tokens: prompt length n. seconds: prefill time.
    positions [r]: sampled prompt positions. entropy [r, layers, heads]: nats, at those positions.
    attended [r]: number of keys each sampled row saw. states [r, d]: first-layer outputs (float16).
    """

    tokens: int
    seconds: float
    positions: np.ndarray
    entropy: np.ndarray
    attended: np.ndarray
    states: np.ndarray


@dataclass(frozen=True, slots=True)
class Logits:
    """Pre-softmax attention logits of one head, binned by perceived distance (002 fig. 1a).

    distance [bins]: mean perceived distance of the keys in each non-empty bin; mean/low/high [bins]: logits.
    heads [heads, bins]: the mean logits of every head of the layer; None in a trace that was saved before this was
    recorded.
    """

    layer: int
    head: int
    distance: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    heads: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that a step might have written: what it says by itself; its probability as drawn with, and the model's
    own; whether it ends the response."""

    token: int
    text: str
    p: float
    p_model: float
    ends: bool = False


@dataclass(frozen=True, slots=True)
class TriedEnding:
    """An end of the answer that landing tried.

    text: what leads there from the token before. length: of the whole answer then, in the settings' unit; near: within
    the tolerance of the target. own: whether the model drew EOS there. p_end, p_eos: probability by the base model that
    the sentence, and that the answer ends there. nats: of the text under the base model; all three None where it was
    not asked. chosen: whether it is written.
    """

    text: str
    length: int
    near: bool
    own: bool
    p_end: float | None
    p_eos: float | None
    nats: float | None
    chosen: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One generated token.

    index: 1-based response position. text: what the token added to the decoded text (may be "").
    p: its probability; p_eos: probability of ending instead. Both are drawn with: after repetition penalty, decay,
    temperature, top-k and top-p, or, where the likeliest token is taken, after repetition penalty and decay alone.
    p_model, p_eos_model: the model's own, before all of these. A trace saved before that has None there, and the
    model's own in p and p_eos. spread: entropy (nats) of the model's own next-token distribution.
    context: tokens the model had read when it chose this one. attended: keys the query saw.
    goal: the target in force, in tokens (re-estimated for words and characters; None without a target).
    remaining: goal − tokens of the answer, what a countdown without slack shows after this token. seconds: since
    decoding began.
    entropy [layers, heads]: attention entropy in nats, or None without probes.
    sink_share [layers]: share of attention on the text's first SINKS tokens, mean over heads; None without probes, and
    in a trace that was saved before this was recorded.
    state [d]: first layer's output (float16), or None. logits: or None (recorded every `watch.every` tokens).
    wanted: the target in force, in the settings' unit; None without a target.
    thinking: whether the token belongs to the model's thinking, which no target steers: goal and remaining are None.
    alternatives: the tokens that the model finds likeliest there, the one that was written among them or not; None
    without probes. chosen: whether a person chose it in their place.
    looked [n]: how the attention that chose the token spread over a source's n tokens, mean over layers and heads; None
    for a model without an encoder. source: what those n tokens say; rides on the first step.
    tried: the endings that landing tried before it wrote this token, which may be none; None where it tried nothing.
    """

    index: int
    token: int
    text: str
    p: float
    p_eos: float
    spread: float
    context: int
    attended: int
    goal: int | None
    remaining: int | None
    seconds: float
    entropy: np.ndarray | None = None
    state: np.ndarray | None = None
    logits: Logits | None = None
    reading: Reading | None = None
    wanted: int | None = None
    p_model: float | None = None
    p_eos_model: float | None = None
    thinking: bool = False
    looked: np.ndarray | None = None
    source: tuple[str, ...] | None = None
    alternatives: tuple[Alternative, ...] | None = None
    chosen: bool = False
    sink_share: np.ndarray | None = None
    tried: tuple[TriedEnding, ...] | None = None


class Written(NamedTuple):
    """A token that a run wrote, and the target that was in force, in the settings' unit."""

    token: int
    wanted: int | None = None


@dataclass(frozen=True, slots=True)
class Resumed:
    """What a run wrote before it was cut off, or is to be continued in another way. seconds: since decoding began.
    exact: whether it is read again token by token, as it was written; in chunks it goes faster and rounds otherwise, so
    that another token may follow. then: the token that a person chose to follow, if any."""

    written: tuple[Written, ...] = ()
    seconds: float = 0.0
    exact: bool = True
    then: int | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """Why and how a run ended.

    text: the answer. tokens: of the answer, EOS not counted. words, characters: of `text`.
    error: signed, produced − target, in the settings' unit; None without a target.
    decode_seconds: first to last token; tokens_per_second: of decoding alone, thinking included.
    p_eos: probability of EOS where it was chosen, and p_eos_model the model's own, both as in a `Step`; None
    where the run ended in another way.
    message: for reason 'error', a sentence that says what to do.
    thinking: what the model thought before it answered; thinking_tokens: how many tokens that took, marks included.
    landed: whether landing chose the end. own_end: whether the model drew EOS by itself, landing or not; False where a
    search put the end. tried: the endings that landing tried before the end, as in a `Step`.
    """

    reason: Reason
    text: str
    tokens: int
    words: int
    characters: int
    error: int | None = None
    prompt_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    tokens_per_second: float = 0.0
    cache_bytes: int = 0
    p_eos: float | None = None
    message: str = ""
    notes: tuple[str, ...] = field(default=())
    landed: bool = False
    own_end: bool = False
    p_eos_model: float | None = None
    thinking: str = ""
    thinking_tokens: int = 0
    tried: tuple[TriedEnding, ...] | None = None
