"""Where a length signal meets the model: a hook on its input embeddings that acts inside `signalling` alone.

>>> attach(model)
>>> context = SignalContext(settings, prompts=[12], targets=[100])
>>> with signalling(context):
...     model.generate(ids, ...)
"""
from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from backend.inference.signal import shown, signal_rows
from backend.methods.signal import SignalSettings
from backend.refused import Refused


class SignalContext:
    """What one call of a model needs to know about the length of its rows. Belongs to one call, on one thread.

    settings: the signal. prompts: tokens of each row's prompt, padding not counted. targets: wanted response tokens
    of each row; `retarget` changes them at any time, and the next columns show it. pads: padding tokens left of
    each row's prompt. offset: columns of the batch that were embedded before, padding included. norms [b, 1]: of the
    prompts' embeddings, where the signal is scaled by its sequence (`prompt_norms`). ValueError where the rows' numbers
    do not fit together.
    """

    def __init__(
        self,
        settings: SignalSettings,
        prompts: Sequence[int],
        targets: Sequence[int],
        pads: Sequence[int] | None = None,
        offset: int = 0,
        norms: Tensor | None = None,
    ) -> None:
        pads = pads or [0] * len(prompts)
        if not prompts or not len(prompts) == len(targets) == len(pads):
            raise Refused(
                f"one prompt length, target and padding a row: got {len(prompts)}, {len(targets)} and {len(pads)}"
            )
        if min(prompts) < 0 or min(pads) < 0 or min(targets) < 1 or offset < 0:
            raise Refused("prompt lengths, padding and offset start at 0, targets at 1")
        if settings.scale == "sequence" and (norms is None or norms.shape != (len(prompts), 1)):
            raise Refused("a signal scaled by its sequence needs the norm of each row's prompt: give prompt_norms")
        self.settings = settings
        self.offset = offset
        self._prompts, self._pads = torch.tensor(prompts)[:, None], torch.tensor(pads)[:, None]
        self._targets = torch.tensor([shown(settings, target) for target in targets])[:, None]
        self._padding = max(pads)
        self._norms = norms

    @property
    def batch(self) -> int:
        """Number of rows."""
        return len(self._targets)

    def postpone(self) -> None:
        """Let the response begin after the next embedded column."""
        self._prompts.fill_(self.offset + 1)

    def retarget(self, target: int, row: int = 0) -> None:
        """Another target, in tokens, for one row, from the next embedded column on."""
        self.end_at(shown(self.settings, target), row)

    def end_at(self, length: int, row: int = 0) -> None:
        """The same for an end that has no slack: the count is 1 at that very token."""
        if length < 1:
            raise Refused("a target starts at 1 token")
        targets = self._targets.clone()
        targets[row] = length
        self._targets = targets

    def rows(self, columns: int, width: int, device: torch.device) -> Tensor:
        """[b, columns, width] in float32: the signal of the next `columns` columns, zero on padding."""
        place = torch.arange(self.offset, self.offset + columns)[None] - self._pads
        norms = None if self._norms is None else self._norms.to(device)
        rows = signal_rows(
            self.settings, place.to(device), self._prompts.to(device), self._targets.to(device), width, norms
        )
        if self.offset < self._padding:
            rows.masked_fill_((place < 0)[..., None].to(device), 0)
        return rows


_current: ContextVar[SignalContext | None] = ContextVar("length_signal", default=None)
_attaching = threading.Lock()


@contextmanager
def signalling(context: SignalContext) -> Iterator[SignalContext]:
    """Inside, every model with the hook adds the context's signal, on this thread alone.

    Enter it around calls of the model, never across a `yield`: a generator would leave it switched on for its caller.
    """
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)


def attach(model: Any) -> None:
    """Give a transformers model its hook, once; without `signalling` the hook does nothing. Safe from many threads."""
    embedding: nn.Module = model.get_input_embeddings()
    with _attaching:
        if not any(hook is _signal for hook in embedding._forward_hooks.values()):
            embedding.register_forward_hook(_signal)


def add_signal(embeddings: Tensor, context: SignalContext) -> Tensor:
    """Token embeddings [b, n, d] of the columns from context.offset on, with the signal added.

    The sum is taken in float32 (float64 for a float64 model) and cast to the embeddings' type last, because bf16
    angles are wrong from count 256 on. The offset stays: a caller that embeds by itself moves it. Gain 0 returns
    the embeddings as they are. ValueError where the context has another number of rows than the batch.
    """
    batch, columns, width = embeddings.shape
    if batch != context.batch:
        raise Refused(f"the length signal was set up for {context.batch} rows, the batch has {batch}")
    if context.settings.constant == 0:
        return embeddings
    return (embeddings + context.rows(columns, width, embeddings.device)).to(embeddings.dtype)


def _signal(_module: nn.Module, _inputs: tuple[Any, ...], embeddings: Tensor) -> Tensor | None:
    context = _current.get()
    if context is None:
        return None
    signalled = add_signal(embeddings, context)
    context.offset += embeddings.shape[1]
    return signalled
