"""Beam search, a step at a time: what each beam has written, so that a page can show it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

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
    """One step of the search. tokens [sources, beams, written]: likeliest first. scores [sources, beams]: nats. ended:
    hypotheses of each source so far, best first."""

    tokens: Tensor
    scores: Tensor
    ended: list[list[Hypothesis]]


@dataclass
class _Source:
    """What was found for one source. most: hypotheses that are kept. open: whether a better one may come."""

    most: int
    found: list[Hypothesis] = field(default_factory=list)
    open: bool = True

    def add(self, tokens: Tensor, nats: Tensor, length: int, ended: bool) -> None:
        """A text of one beam [start and tokens], of a summed score over `length` tokens, EOS included."""
        self.found.append(Hypothesis(tokens[1:].tolist(), float(nats) / length, ended))
        self.found.sort(key=lambda each: -each.score)
        del self.found[self.most :]

    def close_at(self, best: Tensor, length: int) -> None:
        """Close it where no beam that goes on can be better than the worst found. best: nats of the best of them."""
        self.open = self.open and (len(self.found) < self.most or float(best) / length > self.found[-1].score)


@torch.inference_mode()
def beam_search(
    model: PreTrainedModel,
    sources: Tensor,
    beams: int = 5,
    cap: int = 128,
    signal: DecoderSignal | None = None,
    targets: Tensor | None = None,
) -> Iterator[Beams]:
    """Search as transformers' `generate` does with `num_beams`, `length_penalty=1` and `early_stopping=False`.

    sources [b, n]: token ids, padded with the model's own. cap: most tokens, EOS included. targets [b]: wanted lengths,
    where a signal is given. Yields after each token; the last `Beams` has all hypotheses, at most `beams` for each
    source.
    """
    config, count = model.config, len(sources)
    mask = (sources != config.pad_token_id).long()
    encoded = model.get_encoder()(input_ids=sources, attention_mask=mask).last_hidden_state
    state = BaseModelOutput(last_hidden_state=encoded.repeat_interleave(beams, 0))
    mask = mask.repeat_interleave(beams, 0)
    cache = EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))
    tokens = torch.full((count, beams, 1), config.decoder_start_token_id)
    scores = torch.full((count, beams), -torch.inf)
    scores[:, 0] = 0
    all_found = [_Source(beams) for _ in range(count)]
    if signal is not None:
        signal.targets = None if targets is None else targets.repeat_interleave(beams)
    for length in range(1, cap + 1):
        last = tokens[..., -1:].flatten(0, 1)
        if signal is not None:
            signal.follow(tokens.flatten(0, 1))
        out = model(encoder_outputs=state, attention_mask=mask, decoder_input_ids=last, past_key_values=cache)
        logs = out.logits[:, -1].float().log_softmax(-1).view(count, beams, -1)
        best, flat = (scores[..., None] + logs).flatten(1).topk(2 * beams)
        parents, drawn = flat // logs.shape[-1], flat % logs.shape[-1]
        ends = drawn == config.eos_token_id
        for row, rank in ends[:, :beams].nonzero().tolist():
            if all_found[row].open:
                all_found[row].add(tokens[row, parents[row, rank]], best[row, rank], length, True)
        # The best that do not end go on, in their order.
        kept = ends.long().argsort(dim=1, stable=True)[:, :beams]
        scores, parents, drawn = (each.gather(1, kept) for each in (best, parents, drawn))
        rows = torch.arange(count)[:, None]
        tokens = torch.cat((tokens[rows, parents], drawn[..., None]), dim=-1)
        cache.reorder_cache((parents + rows * beams).flatten())
        for row, source in enumerate(all_found):
            source.close_at(scores[row, 0], length)
        done = length == cap or not any(source.open for source in all_found)
        for row, beam in product(range(count) if done else (), range(beams)):
            if all_found[row].open:
                all_found[row].add(tokens[row, beam], scores[row, beam], length, False)
        yield Beams(tokens[..., 1:], scores, [source.found for source in all_found])
        if done:
            return
