"""Negative log-likelihood of a text against position, under any position policy (002 fig. 3, table 1)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from backend.engine import Lab
from backend.inference.chunks import CHUNK
from backend.inference.control import Control
from backend.inference.kv_cache import FramedCache
from backend.positions import policy_of
from backend.refused import Refused
from backend.settings import RunSettings
from backend.steps import Logits

STATES = 64


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one chunk of a text showed.

    position: tokens read so far. nll [k]: nats of each token of the chunk that had one before it. seconds: of
    computing in this call. tokens_per_second: of this chunk. cache_bytes: memory of the cache. entropy [layers, heads]:
    attention entropy in nats of the chunk's last row, which saw `attended` keys; sink_share
    [layers]: share of its attention on the text's first tokens, mean over heads, None where these are those of a
    stretch; logits: of that row.
    states [s, width]: first-layer outputs (float16) at state_positions [s].
    """

    position: int
    nll: np.ndarray
    seconds: float
    tokens_per_second: float
    cache_bytes: int
    entropy: np.ndarray
    attended: int
    logits: Logits
    states: np.ndarray
    state_positions: np.ndarray
    sink_share: np.ndarray | None = None


@dataclass
class Stand:
    """How far a text was read: the cache of its tokens, and the logits [1, vocabulary] of the last one."""

    cache: FramedCache
    last: torch.Tensor | None = None


def begin(lab: Lab, settings: RunSettings, room: int) -> Stand:
    """Before the first token of a text, with room for that many."""
    return Stand(lab.runner(settings).cache(policy_of(settings), room))


def tokenise(lab: Lab, text: str, settings: RunSettings, most: int) -> torch.Tensor:
    """The first `most` token ids [n] of a text, without a chat template. Raises ValueError for fewer than two."""
    loaded = lab.models.load(settings.model, settings.precision)
    # A token is at least one character, and hardly ever more than 16 on average.
    ids = loaded.tokenizer(text[: 16 * most], add_special_tokens=False, verbose=False)["input_ids"][:most]
    if len(ids) < 2:
        raise Refused("the text has fewer than two tokens: paste or upload a longer one")
    return torch.tensor(ids)


def read(
    lab: Lab,
    token_ids: torch.Tensor,
    settings: RunSettings,
    control: Control | None = None,
    chunk: int = CHUNK,
    stand: Stand | None = None,
) -> Iterator[Chunk]:
    """Read a text of token ids [n] chunk by chunk; its prompt, method and sampling settings do not matter.

    Memory is that of the policy's cache and one chunk. Ends early, without an error, when the control is stopped.
    stand: where to go on from in the text; it is kept up to date.
    """
    control = control or Control()
    settings = settings.model_copy(update={"method": "none"})
    runner = lab.runner(settings)
    stand = stand or begin(lab, settings, len(token_ids))
    cache, probe, spent = stand.cache, runner.probe(settings.watch), 0.0
    for ids in token_ids[cache.length :].split(chunk):
        if control.stopped:
            return
        started, first = time.perf_counter(), cache.length
        logits = runner.read(ids, cache, probe, every_row=True)
        before = stand.last
        nll = _nll(logits if before is None else torch.cat((before, logits)), ids if before is not None else ids[1:])
        # A copy: a view would hold the whole chunk's logits.
        stand.last = logits[-1:].clone()
        seconds = time.perf_counter() - started
        spent += seconds
        entropy, attended = probe.prefilled()
        rows = np.unique(np.linspace(0, len(ids) - 1, min(STATES, len(ids))).astype(int))
        yield Chunk(
            position=cache.length,
            nll=nll,
            seconds=spent,
            tokens_per_second=len(ids) / seconds,
            cache_bytes=cache.bytes,
            entropy=entropy[-1],
            attended=int(attended[-1]),
            logits=probe.logits(cache, *control.watched(settings.watch)),
            states=probe.states(rows.tolist()),
            state_positions=rows + first,
            sink_share=probe.sink_share(cache),
        )


def read_truncated(
    lab: Lab,
    token_ids: torch.Tensor,
    settings: RunSettings,
    window: int,
    control: Control | None = None,
    chunk: int = CHUNK,
    first: int = 0,
) -> Iterator[Chunk]:
    """The same by truncation (002 figure 4): chunks of at most a window, each read anew from `truncation_start`.

    first: the token that the first chunk begins with.
    """
    control, spent, chunk = control or Control(), 0.0, min(chunk, window)
    for place in range(first, len(token_ids), chunk):
        start, stop = truncation_start(place, chunk, window), min(place + chunk, len(token_ids))
        anew = list(read(lab, token_ids[start:stop], settings, control, chunk))
        if not anew or start + anew[-1].position < stop:
            return
        last, nll = anew[-1], np.concatenate([part.nll for part in anew])
        spent += last.seconds
        yield replace(
            last,
            position=stop,
            nll=nll[-(stop - place) :],
            seconds=spent,
            tokens_per_second=(stop - place) / last.seconds,
            state_positions=last.state_positions + start,
            sink_share=None,
        )


def truncation_start(first: int, count: int, window: int) -> int:
    """Where a text is to begin for `count` tokens from token `first` on, so that they see `window` before them on
    average: the first of them half of `count` less, the last as many more. At least one token comes before them."""
    return max(0, first - max(1, window - count // 2))


def _nll(logits: torch.Tensor, tokens: torch.Tensor) -> np.ndarray:
    """Nats [k] of tokens [k] under the rows [≥ k, vocabulary] before them."""
    wanted = tokens.to(logits.device)
    return torch.nn.functional.cross_entropy(logits[: len(tokens)], wanted, reduction="none").cpu().numpy()
