"""Many texts at once, as experiments want them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from backend.encoder_decoder.beam_search import Hypothesis, beam_search
from backend.encoder_decoder.model import Writer
from backend.encoder_decoder.pairs import padded

ROWS = 160


def search(
    writer: Writer, sources: Sequence[str], targets: Sequence[int] | None, beams: int, cap: int, longest: int
) -> list[list[Hypothesis]]:
    """The hypotheses of each source, best first.

    targets: wanted lengths, None without a target. cap: most tokens, EOS included. longest: tokens that a source
    is cut to.
    """
    ids = [writer.tokenizers.read(source, longest) for source in sources]
    found: list[list[Hypothesis]] = [[] for _ in sources]
    for places in _alike(ids, max(1, ROWS // beams)):
        batch = padded([ids[place] for place in places], writer.model.config.pad_token_id)
        wanted = None if targets is None else torch.tensor([targets[place] for place in places])
        *_, last = beam_search(writer.model, batch, beams, cap, writer.signal, wanted)
        for place, hypotheses in zip(places, last.ended, strict=True):
            found[place] = list(hypotheses)
    return found


@torch.inference_mode()
def end_chances(writer: Writer, sources: Sequence[str], texts: Sequence[list[int]], longest: int) -> list[float]:
    """The chance of EOS after each text, in tokens, of each source; without any signal."""
    config = writer.model.config
    ids = [writer.tokenizers.read(source, longest) for source in sources]
    found = [0.0] * len(ids)
    if writer.signal is not None:
        writer.signal.targets = None
    for places in _alike(ids, ROWS // 2):
        batch = padded([ids[place] for place in places], config.pad_token_id)
        inputs = padded([[config.decoder_start_token_id, *texts[place]] for place in places], config.pad_token_id)
        mask = (batch != config.pad_token_id).long()
        logs = writer.model(input_ids=batch, attention_mask=mask, decoder_input_ids=inputs).logits
        for row, place in enumerate(places):
            found[place] = float(logs[row, len(texts[place])].float().softmax(-1)[config.eos_token_id])
    return found


def _alike(ids: Sequence[Sequence[int]], most: int) -> Iterator[list[int]]:
    """Places of sources of about one length, at most so many together."""
    order = sorted(range(len(ids)), key=lambda place: len(ids[place]))
    for begins in range(0, len(order), most):
        yield order[begins : begins + most]
