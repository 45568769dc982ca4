"""Whether the end of a response can be read from its length signal alone: what an adapter has to learn, at the least.

    python -m backend evaluate endmark

Writes assets/results/endmark.json. A small reader is trained to tell the last input position of a response from those
before it by what a model gets there: the token embedding plus the signal, in bf16 or in fp32. Half of the lengths train
it, the others measure it. A model sees all positions so far, but in each no more than the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from backend.inference.signal import constant, signal_rows
from backend.methods.signal import SignalSettings, signal_methods
from backend.models.pool import Models
from backend.record.provenance import provenance
from backend.record.results import counted

LENGTHS = (5, 224)
STEPS, BATCH = 2000, 1024
READERS: dict[str, Callable[[int], nn.Module]] = {
    "linear": lambda width: nn.Linear(width, 1),
    "one hidden layer": lambda width: nn.Sequential(nn.Linear(width, 256), nn.SiLU(), nn.Linear(256, 1)),
}
RATES = {"linear": 1e-2, "one hidden layer": 1e-3}


class Shown(NamedTuple):
    """Normalised inputs [n, width] of whole responses one after the other, and where each of these ends [n]."""

    inputs: Tensor
    last: Tensor


def shown(kind: str, lengths: list[int], embeddings: Tensor, gain: float, generator: torch.Generator) -> Shown:
    """What a model gets at every position of responses of these lengths, each of random tokens.

    embeddings [vocabulary, width]: in the type that the sum is rounded to.
    """
    settings = SignalSettings(kind, gain, constant(embeddings, gain), LENGTHS)
    width = embeddings.shape[1]
    rows = torch.cat([signal_rows(settings, torch.arange(n), 0, n, width) for n in lengths])
    tokens = embeddings[torch.randint(len(embeddings), (len(rows),), generator=generator)]
    last = torch.cat([torch.arange(1, n + 1) == n for n in lengths])
    summed = (tokens + rows.to(tokens.dtype)).float()
    return Shown(summed / summed.square().mean(-1, keepdim=True).sqrt(), last)


def trained(name: str, given: Shown) -> nn.Module:
    """A reader that tells the ends among `given`; drawn from torch's own generator."""
    reader = READERS[name](given.inputs.shape[1])
    optimizer = torch.optim.AdamW(reader.parameters(), RATES[name])
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, STEPS)
    for _ in range(STEPS):
        rows = torch.randint(len(given.last), (BATCH,))
        found = reader(given.inputs[rows]).squeeze(-1)
        loss = nn.functional.binary_cross_entropy_with_logits(found, given.last[rows].float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return reader


@torch.no_grad()
def stops(reader: nn.Module, given: Shown, lengths: list[int]) -> dict[str, Any]:
    """Where greedy writing would stop: at the first place that the reader calls the end.

    found: share of responses that end within a token of their length. never: share that do not end. loss: mean nats
    of the end where it is.
    """
    chances = torch.sigmoid(reader(given.inputs).squeeze(-1)).clamp_min(1e-12)
    firsts = [int(part.gt(0.5).float().argmax()) + 1 if part.gt(0.5).any() else None for part in chances.split(lengths)]
    near = [first is not None and abs(first - n) <= 1 for first, n in zip(firsts, lengths, strict=True)]
    return {
        "found": sum(near) / len(lengths),
        "never": firsts.count(None) / len(lengths),
        "loss": -float(chances[given.last].log().mean()),
    }


def evaluate(
    models: Models, model: str, gain: float, seed: int, report: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """The result document after each signal, the last one whole."""
    table = models.load(model).model.get_input_embeddings().weight.detach()
    generator = torch.Generator().manual_seed(seed)
    order = (torch.randperm(LENGTHS[1] - LENGTHS[0] + 1, generator=generator) + LENGTHS[0]).tolist()
    train, held = order[::2], order[1::2]
    rows: list[dict[str, Any]] = []
    for kind in dict.fromkeys(method.kind for method in signal_methods()):
        for dtype in (torch.float32, torch.bfloat16):
            torch.manual_seed(seed)
            given, other = (shown(kind, part, table.to(dtype), gain, generator) for part in (train, held))
            for name in READERS:
                found = stops(trained(name, given), other, held)
                rows.append({"signal": kind, "numbers": str(dtype).removeprefix("torch."), "reader": name} | found)
                report(f"{kind} {dtype} {name}: {found['found']:.0%} found, {found['never']:.0%} never ended")
                report(counted(f"{kind} {dtype} {name}", "lengths", len(held), len(held), ""))
        yield provenance(seed=seed) | {"model": model, "gain": gain, "lengths": len(held), "rows": rows}
