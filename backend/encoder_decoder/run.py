"""A run of an encoder-decoder: search, then its best text read once more for what the charts show."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from backend.encoder_decoder.beam_search import Beams, Hypothesis, beam_search
from backend.encoder_decoder.model import SharedWriter, Writer
from backend.failure import advice
from backend.inference.control import Control
from backend.refused import Refused
from backend.settings import RunSettings
from backend.steps import SINKS, Finish, Progress, Reason, Searching, Step
from backend.text.units import characters, in_tokens, words

log = logging.getLogger("length_lab")

BEAMS = 5
LONGEST_SOURCE = 512
# What bytes that are no whole character are decoded to.
PART = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class _Read:
    """What the model makes of a whole text, for each of its tokens and the end after it: p [n] of each token, p_end
    [n + 1], spread [n] in nats, entropy [n, layers, heads] of the decoder's attention and its sink_share [n, layers],
    state [n, d] after its first layer, looked [n, source] at the source's tokens where each token was chosen."""

    p: Tensor
    p_end: Tensor
    spread: Tensor
    entropy: np.ndarray
    sink_share: np.ndarray
    state: np.ndarray
    looked: np.ndarray


def written(
    shared: SharedWriter, settings: RunSettings, control: Control, progress: bool
) -> Iterator[Progress | Step | Finish]:
    """The same by a writer."""
    aimed = _aimed(shared.writer, settings)
    try:
        yield from _written(shared, settings, control, progress, aimed)
    except Exception as error:
        log.error("a run failed", exc_info=error)
        yield Finish("error", "", 0, 0, 0, message=advice(error, 0))


def _written(
    shared: SharedWriter, settings: RunSettings, control: Control, progress: bool, aimed: bool
) -> Iterator[Progress | Step | Finish]:
    writer, started = shared.writer, time.perf_counter()
    source = torch.tensor([writer.tokenizers.read(settings.prompt, LONGEST_SOURCE)])
    times, last = [], None
    for last in _search(shared, source, settings, control, aimed):
        times.append(time.perf_counter() - started)
        if progress:
            yield Searching(tuple(writer.text(row) for row in last.tokens[0].tolist()))
    stopped, target = control.stopped, control.goal(settings) if aimed else None
    best = _best(last, stopped)
    with shared.lock:
        read = _read(writer, source, best.tokens, target)
    yield from _steps(writer, settings, best, read, times, target, source[0].tolist())
    reason: Reason = "stopped" if stopped else "eos" if best.ended else "cap"
    yield _finish(writer, source, settings, best, read, reason, last, target, time.perf_counter() - started)


def _aimed(writer: Writer, settings: RunSettings) -> bool:
    """Whether a target acts on the run. ValueError for what an encoder-decoder cannot do."""
    if settings.steered and settings.unit == "words":
        raise Refused("an encoder-decoder counts what it writes in tokens: choose tokens or characters as the unit")
    if settings.steered and settings.unit == "characters" and not writer.tokenizers.in_characters:
        raise Refused("this model writes subwords, whose characters no target counts: choose tokens as the unit")
    if settings.steered and settings.unit == "tokens" and writer.tokenizers.characters:
        raise Refused("this model counts the characters of its subwords: choose characters as the unit")
    if settings.temperature > 0:
        raise Refused("an encoder-decoder searches for its likeliest text, and draws none: set the temperature to 0")
    return settings.steered


def _search(
    shared: SharedWriter, source: Tensor, settings: RunSettings, control: Control, aimed: bool
) -> Iterator[Beams]:
    """Steps of the search. What the model is shown is set for each of them, so that runs take turns at every step and
    none waits for another's reader."""
    writer, cap = shared.writer, settings.max_new_tokens + 1
    targets = torch.tensor([control.goal(settings)]) if aimed else None
    steps = beam_search(writer.model, source, BEAMS, cap, writer.signal, targets)
    while not control.stopped:
        with shared.lock:
            if writer.signal is not None:
                writer.signal.targets = torch.full((BEAMS,), control.goal(settings)) if aimed else None
            beams = next(steps, None)
        if beams is None:
            return
        yield beams


def _best(last: Beams | None, stopped: bool) -> Hypothesis:
    if last is None:
        return Hypothesis([], 0.0, False)
    if stopped or not last.ended[0]:
        return Hypothesis(last.tokens[0, 0].tolist(), float(last.scores[0, 0]), False)
    return last.ended[0][0]


@torch.inference_mode()
def _read(writer: Writer, source: Tensor, tokens: list[int], target: int | None) -> _Read:
    model, config = writer.model, writer.model.config
    if writer.signal is not None:
        writer.signal.targets = None if target is None else torch.tensor([target])
    inputs = torch.tensor([[config.decoder_start_token_id, *tokens]])
    out = model(
        input_ids=source, decoder_input_ids=inputs, output_attentions=True, output_hidden_states=True, use_cache=False
    )
    logs = out.logits[0].float().log_softmax(-1)
    attention = torch.stack(out.decoder_attentions)[:, 0].float()
    entropy = torch.special.entr(attention).sum(-1).permute(2, 0, 1)
    looked = torch.stack(out.cross_attentions)[:, 0].float().mean(dim=(0, 1))
    return _Read(
        p=logs[:-1].gather(1, inputs[0, 1:, None])[:, 0].exp(),
        p_end=logs[:, config.eos_token_id].exp(),
        spread=torch.special.entr(logs.exp()).sum(-1)[:-1],
        entropy=entropy[1:].numpy(),
        sink_share=attention[:, :, 1:, :SINKS].sum(-1).mean(1).T.numpy(),
        state=out.decoder_hidden_states[1][0, 1:].to(torch.float16).numpy(),
        looked=looked[:-1].numpy(),
    )


def _steps(
    writer: Writer,
    settings: RunSettings,
    best: Hypothesis,
    read: _Read,
    times: list[float],
    target: int | None,
    source: list[int],
) -> Iterator[Step]:
    text, watched = "", settings.watch.enabled
    for index, token in enumerate(best.tokens):
        begun = best.tokens[: index + 1]
        longer = writer.text(begun)
        if len(begun) < len(best.tokens):
            # A character whose bytes are not all there yet comes with the last of them.
            longer = longer.rstrip(PART)
        yield Step(
            index=index + 1,
            token=token,
            text=longer[len(text) :],
            p=float(read.p[index]),
            p_eos=float(read.p_end[index]),
            spread=float(read.spread[index]),
            context=index + 1,
            attended=index + 1,
            goal=None if target is None else _in_tokens(writer, target, longer, begun),
            remaining=None if target is None else target - writer.tokenizers.length(begun),
            seconds=times[index],
            entropy=read.entropy[index] if watched else None,
            sink_share=read.sink_share[index] if watched else None,
            state=read.state[index] if watched else None,
            looked=read.looked[index] if watched else None,
            source=writer.pieces(source) if watched and not index else None,
            wanted=target,
            p_model=float(read.p[index]),
            p_eos_model=float(read.p_end[index]),
        )
        text = longer


def _in_tokens(writer: Writer, target: int, text: str, tokens: Sequence[int]) -> int:
    """A target in tokens, by what was written so far."""
    return in_tokens(target, "characters", text, len(tokens)) if writer.tokenizers.characters else target


def _finish(
    writer: Writer,
    source: Tensor,
    settings: RunSettings,
    best: Hypothesis,
    read: _Read,
    reason: Reason,
    last: Beams | None,
    target: int | None,
    seconds: float,
) -> Finish:
    text, tokens = writer.text(best.tokens), len(best.tokens)
    ended = float(read.p_end[-1]) if reason == "eos" else None
    others = last.ended[0][1:] if last is not None and reason != "stopped" else []
    return Finish(
        reason=reason,
        text=text,
        tokens=tokens,
        words=words(text),
        characters=characters(text),
        error=None if target is None else writer.tokenizers.length(best.tokens) - target,
        prompt_tokens=source.shape[1],
        decode_seconds=seconds,
        tokens_per_second=tokens / seconds if seconds > 0 else 0.0,
        p_eos=ended,
        p_eos_model=ended,
        notes=(*_left_out(settings), *_listed(writer, others)),
        own_end=reason == "eos",
    )


def _left_out(settings: RunSettings) -> Iterator[str]:
    """What was asked for and does nothing here."""
    if settings.lands:
        yield "landing did nothing: a search tries ends already"
    if settings.steered and settings.in_prompt:
        yield "the length was not said in the source, which is not a question"


def _listed(writer: Writer, others: Sequence[Hypothesis]) -> Iterator[str]:
    unit = "characters" if writer.tokenizers.in_characters else "tokens"
    for rank, one in enumerate(others, 2):
        yield f"hypothesis {rank} of {writer.tokenizers.length(one.tokens)} {unit}: “{writer.text(one.tokens)}”."
