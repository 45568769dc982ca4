"""Beam search, a step at a time: what each beam has written, so that a page can show it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from backend.encoder_decoder.signal import DecoderSignal


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One text for one source. tokens: without start and EOS. score: nats of all, EOS included, over their number.
    ended: whether it drew EOS; else the cap cut it."""

    tokens: list[int]
    score: float
    ended: bool


@dataclass(frozen=True, slots=True)
class Beams:
    """One step of the search. tokens [sources, beams, written]: likeliest first. parents [sources, beams]: which beam
    of the step before each goes on from. scores [sources, beams]: nats. ended: hypotheses of each source that have
    drawn EOS so far."""

    tokens: Tensor
    parents: Tensor
    scores: Tensor
    ended: list[list[Hypothesis]]


@torch.inference_mode()
def beam_search(
    model: PreTrainedModel,
    sources: Tensor,
    beams: int = 5,
    cap: int = 128,
    signal: DecoderSignal | None = None,
    targets: Tensor | None = None,
    penalty: float = 1.0,
) -> Iterator[Beams]:
    """Search as transformers' `generate` does with `num_beams`, `length_penalty` and `early_stopping=False`.

    sources [b, n]: token ids, padded with the model's own. cap: most tokens, EOS included. targets [b]: wanted lengths,
    where a signal is given. penalty: exponent of the length that scores are divided by. Yields after each token; the
    last `Beams` has all hypotheses, at most `beams` for each source, best first.
    """
    config, count = model.config, len(sources)
    end = config.eos_token_id
    mask = (sources != config.pad_token_id).long()
    encoded = model.get_encoder()(input_ids=sources, attention_mask=mask).last_hidden_state
    state = BaseModelOutput(last_hidden_state=encoded.repeat_interleave(beams, 0))
    mask = mask.repeat_interleave(beams, 0)
    cache = EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))
    tokens = torch.full((count * beams, 1), config.decoder_start_token_id)
    scores = torch.full((count, beams), -torch.inf)
    scores[:, 0] = 0
    ended: list[list[Hypothesis]] = [[] for _ in range(count)]
    open_: list[bool] = [True] * count
    if signal is not None:
        signal.targets = None if targets is None else targets.repeat_interleave(beams)
    for length in range(1, cap + 1):
        out = model(
            encoder_outputs=state, attention_mask=mask, decoder_input_ids=tokens[:, -1:], past_key_values=cache
        )
        logs = out.logits[:, -1].float().log_softmax(-1).view(count, beams, -1)
        total = scores[..., None] + logs
        best, flat = total.flatten(1).topk(2 * beams)
        parents, drawn = flat // logs.shape[-1], flat % logs.shape[-1]
        best, parents, drawn = _kept(best, parents, drawn, end, beams, ended, open_, tokens, length, penalty)
        scores = best
        rows = (parents + torch.arange(count)[:, None] * beams).flatten()
        tokens = torch.cat((tokens[rows], drawn.view(-1, 1)), dim=1)
        cache.reorder_cache(rows)
        for source in range(count):
            if open_[source]:
                open_[source] = _goes_on(ended[source], float(scores[source, 0]), beams, length, penalty)
        last = length == cap or not any(open_)
        if last:
            _cut(ended, open_, tokens.view(count, beams, -1), scores, beams, length, penalty)
        yield Beams(tokens.view(count, beams, -1)[..., 1:], parents, scores, ended)
        if last:
            return


def _kept(
    best: Tensor,
    parents: Tensor,
    drawn: Tensor,
    end: int,
    beams: int,
    ended: list[list[Hypothesis]],
    open_: list[bool],
    tokens: Tensor,
    length: int,
    penalty: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The `beams` best candidates [sources, beams] that go on; those among the first that end become hypotheses."""
    is_end = drawn == end
    for source, rank in is_end[:, :beams].nonzero().tolist():
        if open_[source]:
            text = tokens[source * beams + int(parents[source, rank]), 1:].tolist()
            _add(ended[source], Hypothesis(text, float(best[source, rank]) / length**penalty, True), beams)
    order = is_end.long().argsort(dim=1, stable=True)[:, :beams]
    return best.gather(1, order), parents.gather(1, order), drawn.gather(1, order)


def _goes_on(found: list[Hypothesis], best: float, beams: int, length: int, penalty: float) -> bool:
    """Whether a beam that is still open may yet be better than the worst that has ended."""
    return len(found) < beams or best / length**penalty > found[-1].score


def _cut(
    ended: list[list[Hypothesis]],
    open_: list[bool],
    tokens: Tensor,
    scores: Tensor,
    beams: int,
    length: int,
    penalty: float,
) -> None:
    for source, goes_on in enumerate(open_):
        for beam in range(beams if goes_on else 0):
            text = tokens[source, beam, 1:].tolist()
            _add(ended[source], Hypothesis(text, float(scores[source, beam]) / length**penalty, False), beams)


def _add(found: list[Hypothesis], one: Hypothesis, most: int) -> None:
    found.append(one)
    found.sort(key=lambda each: -each.score)
    del found[most:]
