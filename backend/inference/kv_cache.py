"""The framed key/value cache: every key stands rotated in one frame, and changes it at most as its group changes.

A sequence's tokens lie in slots of preallocated buffers, sinks first. Without a window a token's slot is its
position; with one, tokens that no query will see again are dropped now and then, so that memory is constant in
length, while `length` goes on counting. Keys that may change group are kept unrotated too, and always change from
that raw value. Per decoded token and layer a constant number of keys is rotated, where 004's Algorithm 1 rotates all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backend.inference.chunk_plan import Chunk, Planner, Slots, whole
from backend.inference.pages import zeros
from backend.models.lora import Lora
from backend.positions import PositionPolicy
from backend.positions.rope import Rope
from backend.refused import Refused

SLACK = 256


@dataclass(frozen=True)
class Shape:
    """Of one sequence's cache: layers, key/value heads, head width; element type and device."""

    layers: int
    heads: int
    width: int
    dtype: torch.dtype
    device: torch.device


class Stopped(Exception):
    """Raised by the attention of a chunk, layer by layer, once its cache's `stopped` says so."""


def _never() -> bool:
    return False


class FramedCache:
    """Keys and values of one sequence under one position policy.

    Use: `begin(n)`, then for each layer `write(layer, k, v)` and, in the order of the groups, `move(layer, group)`
    before the keys of that group are read, then `end()`. rope None: no rotation (ALiBi).
    lora: the adapter whose keys and values these are. rotations: number of key rotations per layer so far. chunk: the
    one under way, or the last one. stopped: whether the chunk under way is to be given up, which leaves the cache of no
    use. room: tokens that are expected, which a window's buffers hold no more than unless more come.
    """

    def __init__(self, shape: Shape, policy: PositionPolicy, rope: Rope | None, room: int = 256):
        self.shape, self.policy, self.rope = shape, policy, rope
        self.lora: Lora | None = None
        self.length = 0
        self.rotations = 0
        self.stopped: Callable[[], bool] = _never
        self._dropped = 0
        self.chunk: Chunk | None = None
        self._planner = Planner(policy, rope, shape)
        self.slots, self._room = 0, room
        self._keys = self._values = self._raw = self._empty(0)
        self._allocate(room if policy.window is None else min(room, policy.sinks + policy.window + SLACK))

    # ---- storage

    def _allocate(self, slots: int) -> None:
        """Buffers for at least `slots` tokens, old contents kept."""
        slots = whole(slots)
        self._keys = self._grown(self._keys, slots)
        self._values = self._grown(self._values, slots)
        if self.rope is not None and self.policy.rerotated != 0:
            self._raw = self._grown(self._raw, self.policy.rerotated or slots)
        self.slots = slots

    def _empty(self, slots: int) -> Tensor:
        s = self.shape
        return zeros((s.layers, s.heads, slots, s.width), s.dtype, s.device)

    def _grown(self, old: Tensor, slots: int) -> Tensor:
        if old.shape[2] == slots:
            return old
        new = self._empty(slots)
        new[:, :, : old.shape[2]] = old
        return new

    @property
    def bytes(self) -> int:
        """Memory held, in bytes."""
        return sum(t.nbytes for t in self.buffers)

    @property
    def buffers(self) -> tuple[Tensor, Tensor, Tensor]:
        """Keys in their frames, values, and unrotated keys of the first slots (of none, where no key changes its
        frame), each [layers, heads, slots, width]."""
        return self._keys, self._values, self._raw

    @property
    def attended(self) -> int:
        """Keys that the last token read saw."""
        return self.chunk.attended if self.chunk else 0

    def state(self) -> dict[str, Any]:
        """What `restore` needs to go on from here, as numbers and tensors."""
        used = self._slot(self.length)
        return {
            "length": self.length,
            "rotations": self.rotations,
            "dropped": self._dropped,
            "slots": self.slots,
            "buffers": [buffer[:, :, :used].clone() for buffer in self.buffers],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take the `state` of a cache of the same shape and policy. This one must be empty."""
        self.length, self.rotations, self._dropped = state["length"], state["rotations"], state["dropped"]
        self._allocate(max(self.slots, state["slots"]))
        for mine, kept in zip(self.buffers, state["buffers"], strict=True):
            mine[:, :, : kept.shape[2]] = kept

    def _slot(self, token: int) -> int:
        return token if token < self.policy.sinks else token - self._dropped

    def _make_room(self, n: int) -> None:
        """Room for n more tokens: drop what no later query sees, then grow if that is not enough."""
        used = self._slot(self.length)
        if used + n <= self.slots:
            return
        window, sinks = self.policy.window, self.policy.sinks
        if window is not None:
            oldest = max(self.length + 1 - window, sinks + self._dropped)
            fall = oldest - sinks - self._dropped
            if fall > 0:
                for buffer in self.buffers:
                    if buffer.shape[2] > sinks:
                        for layer in buffer:
                            layer[:, sinks : used - fall] = layer[:, sinks + fall : used].clone()
                self._dropped += fall
                used -= fall
        if used + n > self.slots:
            left = self._room - self.length - n
            slack = SLACK if left < 0 else min(SLACK, left)
            self._allocate(used + n + slack if window is not None else max(used + n, 2 * self.slots))

    # ---- one chunk of rows

    def begin(self, n: int, whole_prompt: bool = False) -> Chunk:
        """Plan the next n rows. whole_prompt: they are a whole prompt under one frame (004's own prefill)."""
        self._make_room(n)
        frames = self.policy.prompt_frame(np.arange(n), n) if whole_prompt else None
        if frames is None:
            self.chunk = self._planner.plan(self.length, n, Slots(self._slot, self.slots))
        elif self.length:
            raise Refused("a whole prompt under one frame must be read first and at once: prefill it in one chunk")
        else:
            self.chunk = self._planner.whole_prompt(frames)
        return self.chunk

    def write(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Store the chunk's unrotated keys k and values v [heads, n, width] of one layer."""
        chunk = self.chunk
        assert chunk is not None
        lo, hi = chunk.write, chunk.write + k.shape[1]
        self._values[layer][:, lo:hi] = v
        top = min(hi, self._raw.shape[2])
        if lo < top:
            self._raw[layer][:, lo:top] = k[:, : top - lo]
        if self.rope is not None and chunk.born is not None:
            k = self.rope.rotate(k, chunk.born)
        self._keys[layer][:, lo:hi] = k

    def move(self, layer: int, group: str) -> None:
        """Bring the keys that enter a group in this chunk into its frame."""
        assert self.chunk is not None
        for lo, hi, phases in self.chunk.moves.get(group, ()):
            assert self.rope is not None
            self._keys[layer][:, lo:hi] = self.rope.rotate(self._raw[layer][:, lo:hi], phases)

    def keys(self, layer: int, lo: int = 0, hi: int | None = None) -> Tensor:
        """Stored keys [heads, hi − lo, width] of a layer, as they stand in their frames."""
        return self._keys[layer][:, lo:hi]

    def values(self, layer: int, lo: int = 0, hi: int | None = None) -> Tensor:
        """Stored values [heads, hi − lo, width] of a layer."""
        return self._values[layer][:, lo:hi]

    def end(self) -> None:
        """Close the chunk: its tokens count from now on."""
        chunk = self.chunk
        assert chunk is not None
        n = len(chunk.rows)
        self.rotations += n + sum(m.hi - m.lo for moves in chunk.moves.values() for m in moves)
        self.length += n
        if chunk.unframed:
            self._reframe(n)

    def _reframe(self, n: int) -> None:
        """After a whole-prompt prefill: from the raw keys, the frames that the next query expects."""
        frames = np.empty(n)
        for group, ranges in self._planner.seen(n - 1).items():
            for lo, hi in ranges:
                frames[lo:hi] = self.policy.key_frame(np.arange(lo, hi), group)
        phases = self._planner.phases(frames)
        assert self.rope is not None
        for layer in range(self.shape.layers):
            self._keys[layer][:, :n] = self.rope.rotate(self._raw[layer][:, :n], phases)
        self.rotations += n
