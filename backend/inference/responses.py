"""Responses to given token ids, each a run of a model's scheduler: for what no page asks, as an empty turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from backend.inference.scheduler import Asks, Read
from backend.positions import Plain
from backend.text.sampling import Chooser

if TYPE_CHECKING:
    from backend.inference.model_runner import Runner
    from backend.settings import RunSettings


@dataclass(frozen=True)
class Response:
    """Tokens written, EOS not counted, and whether it came before the cap."""

    tokens: list[int]
    ended: bool


def respond(runner: Runner, ids: Tensor, settings: RunSettings, ends: list[int]) -> Response:
    """What the model writes after ids [n], sampled and capped as `settings` say. FloatingPointError where the logits
    are not finite."""
    [found] = runner.scheduler.stream(_written(runner, ids, settings, ends))
    return found


def _written(runner: Runner, ids: Tensor, settings: RunSettings, ends: list[int]) -> Asks:
    chooser, cache = Chooser(settings, len(ids), ends), runner.cache(Plain(), len(ids) + settings.max_new_tokens)
    read = ids.tolist()
    logits = yield Read(ids, cache)
    while True:
        token = chooser.choose(logits, read, None).token
        if token in ends:
            break
        read.append(token)
        if len(read) == len(ids) + settings.max_new_tokens:
            break
        logits = yield Read(torch.tensor([token]), cache)
    yield Response(read[len(ids) :], token in ends)
