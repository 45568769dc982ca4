"""Whether the end of a response can be read from its length signal alone: what an adapter has to learn, at the least.

    python -m backend evaluate eos_probe

A small reader is trained to tell the last input position of a response from those
before it by what a model gets there: the token embedding plus the signal, in bf16 or in fp32. Half of the lengths train
it, the others measure it. A model sees all positions so far, but in each no more than the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from backend.evaluation import markdown
from backend.evaluation.card import Card
from backend.evaluation.experiment import Case, Experiment, ModelFlags, Plan, Results, Row, Say
from backend.evaluation.markdown import estimate, percent
from backend.inference.signal import constant, signal_rows
from backend.measures.bootstrap import Bounded, share
from backend.methods.signal import SignalSettings, signal_methods
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


def measured(
    table: Tensor, kind: str, gain: float, seed: int, parts: Sequence[list[int]], generator: torch.Generator, say: Say
) -> Iterator[Row]:
    """What each reader finds in a signal. table: token embeddings; parts: lengths to train on, and to measure with."""
    held = parts[1]
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(seed)
        given, other = (shown(kind, part, table.to(dtype), gain, generator) for part in parts)
        for name in READERS:
            found = stops(trained(name, given), other, held)
            say(f"{kind} {dtype} {name}: {found['found']:.0%} found, {found['never']:.0%} never ended")
            say(counted(f"{kind} {dtype} {name}", "lengths", len(held), len(held), ""))
            yield {"signal": kind, "numbers": str(dtype).removeprefix("torch."), "reader": name} | found


class EosProbe(Experiment):
    name = "eos_probe"
    title = "Whether a signal tells where to end"
    question = "How often does a small reader find where a response ends in its length signal alone?"
    order = 70
    files = ("endmark.json",)

    class Options(ModelFlags):
        gain: float = Field(0.5, gt=0, allow_inf_nan=False, description="strength of the signals")
        seed: int = 0

    def plan(self, options: Options, say: Say) -> Plan:
        table = options.lab().models.load(options.model).model.get_input_embeddings().weight.detach()
        generator = torch.Generator().manual_seed(options.seed)
        order = (torch.randperm(LENGTHS[1] - LENGTHS[0] + 1, generator=generator) + LENGTHS[0]).tolist()
        parts = order[::2], order[1::2]
        common = {"model": options.model, "gain": options.gain, "lengths": len(parts[1])}
        kinds = dict.fromkeys(method.kind for method in signal_methods())
        given = (options.gain, options.seed, parts, generator, say)
        return Plan(common, [Case(kind, partial(measured, table, kind, *given)) for kind in kinds])

    def card(self, results: Results) -> Card:
        (result,) = results.values()
        held = result["lengths"]
        rows = [
            [
                row["signal"], row["numbers"], row["reader"],
                estimate(share(round(row["found"] * held), held), held, "lengths", percent),
            ]
            for row in result["rows"]
        ]
        words = (
            "A small reader, trained alike on every signal, sees one position of a response, its token and its signal, "
            f"and is to say whether the response ends there. Shown: of {held} held-out lengths those found within one "
            f"token. Writing is not measured: the model itself may do better or worse. {_least(result)}"
        )
        best = ", ".join(
            f"`{signal}` {estimate(found, held, 'lengths', percent)}" for signal, found in best_readers(result).items()
        )
        return Card(
            f"{words}\n\n{markdown.table(['signal', 'numbers', 'reader', 'found'], rows)}",
            headlines=[("Ends that the best of four small readers finds in a length signal alone", best)],
        )


def best_readers(result: Mapping[str, Any]) -> dict[str, Bounded]:
    """By signal the share that its best reader finds."""
    best: dict[str, float] = {}
    for row in result["rows"]:
        best[row["signal"]] = max(best.get(row["signal"], 0.0), row["found"])
    held = result["lengths"]
    return {signal: share(round(found * held), held) for signal, found in best.items()}


def _least(result: Mapping[str, Any]) -> str:
    """Which signal is found less often than every other, where the intervals say so."""
    best = best_readers(result)
    for signal, found in best.items():
        others = [other for name, other in best.items() if name != signal]
        if all((found.high or 1) < (other.low or 0) for other in others):
            return f"`{signal}` tells least: {estimate(found, result['lengths'], 'lengths', percent)} at best."
    return "No signal is distinguished from every other."
