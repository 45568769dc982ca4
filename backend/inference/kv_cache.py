"""The framed key/value cache: every key stands rotated in one frame, and changes it at most as its group changes.

A sequence's tokens lie in slots of preallocated buffers, sinks first. Without a window a token's slot is its
position; with one, tokens that no query will see again are dropped now and then, so that memory is constant in
length, while `length` goes on counting. Keys that may change group are kept unrotated too, and always change from
that raw value. Per decoded token and layer a constant number of keys is rotated, where 004's Algorithm 1 rotates all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from backend.inference.kernels.flash import serves
from backend.models.lora import Lora
from backend.positions import CLIPPED, COMPRESSED, NEAR, Policy, Rope
from backend.refused import Refused

Phases = tuple[Tensor, Tensor]

SLACK = 256
STRIDE = 64


class Piece(NamedTuple):
    """Keys of slots lo ≤ slot < hi, all in one group's frame, as the rows of a chunk see them.

    first: position of the token in slot lo. spans [rows, 2]: first and end of those each row sees, counted from lo;
    None: every row sees them all. causal: row r sees the first r + 1 of them. reach: a single query's products run to
    this slot, so that their shapes, for which kernels are made, change only now and then.
    """

    lo: int
    hi: int
    first: int
    spans: np.ndarray | None = None
    causal: bool = False
    reach: int = 0


class Move(NamedTuple):
    """Keys of slots lo ≤ slot < hi that change to another frame; phases None: to the unrotated one."""

    lo: int
    hi: int
    phases: Phases | None


@dataclass
class Chunk:
    """Everything about the rows being processed that all layers share.

    rows: their positions. write: slot of the first. born: phases of their keys; turned: of their queries, by group
    (a token's own key and query stand in the same near frame).
    pieces and moves: by group, to be used in the order NEAR, COMPRESSED, CLIPPED. unframed: a whole prompt under one
    frame, whose keys get their own frames afterwards.
    """

    rows: np.ndarray
    write: int
    born: Phases | None
    turned: dict[int, Phases]
    pieces: dict[int, list[Piece]]
    moves: dict[int, list[Move]]
    unframed: bool = False

    @property
    def groups(self) -> list[int]:
        """The groups whose queries differ: the token's own, then the others seen."""
        return [NEAR, *(group for group in (COMPRESSED, CLIPPED) if group in self.pieces)]


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
    use.
    """

    def __init__(self, shape: Shape, policy: Policy, rope: Rope | None, room: int = 256):
        self.shape, self.policy, self.rope = shape, policy, rope
        self.lora: Lora | None = None
        self.length = 0
        self.rotations = 0
        self.stopped: Callable[[], bool] = _never
        self._dropped = 0
        self.chunk: Chunk | None = None
        self.slots = 0
        self._keys = self._values = self._raw = self._empty(0)
        self._allocate(room if policy.window is None else policy.sinks + policy.window + SLACK)

    # ---- storage

    def _allocate(self, slots: int) -> None:
        """Buffers for at least `slots` tokens, old contents kept."""
        slots = _whole(slots)
        self._keys = self._grown(self._keys, slots)
        self._values = self._grown(self._values, slots)
        if self.policy.moves and self.rope is not None:
            self._raw = self._grown(self._raw, self.policy.sinks if self._only_sinks_move else slots)
        self.slots = slots

    def _empty(self, slots: int) -> Tensor:
        s = self.shape
        return torch.zeros(s.layers, s.heads, slots, s.width, dtype=s.dtype, device=s.device)

    def _grown(self, old: Tensor, slots: int) -> Tensor:
        new = self._empty(slots)
        new[:, :, : old.shape[2]] = old
        return new

    @property
    def _only_sinks_move(self) -> bool:
        """Whether the distance limit reaches no key of the local branch, so that only sinks are ever clipped."""
        p = self.policy
        if p.kind == "dynamic" or p.window is None:
            return False
        return p.limit * (p.ratio if p.kind == "naive" else 1.0) >= p.window

    @property
    def bytes(self) -> int:
        """Memory held, in bytes."""
        return sum(t.nbytes for t in self.buffers)

    @property
    def buffers(self) -> tuple[Tensor, Tensor, Tensor]:
        """Keys in their frames, values, and unrotated keys of the first slots (of none, where no key changes its
        frame), each [layers, heads, slots, width]."""
        return self._keys, self._values, self._raw

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
            self._allocate(used + n + SLACK if window is not None else max(used + n, 2 * self.slots))

    # ---- one chunk of rows

    def begin(self, n: int, whole_prompt: bool = False) -> Chunk:
        """Plan the next n rows. whole_prompt: they are a whole prompt under one frame (004's own prefill)."""
        self._make_room(n)
        rows = np.arange(self.length, self.length + n)
        if whole_prompt and self.policy.kind == "dynamic":
            self.chunk = self._begin_whole_prompt(rows)
            return self.chunk
        pieces: dict[int, list[Piece]] = {}
        for lo, hi, group in self.policy.segments(rows):
            found = self._pieces(rows, lo, hi)
            if found:
                pieces.setdefault(group, []).extend(found)
        pieces = {group: self._joined(found) for group, found in pieces.items()}
        born = self._phases(self.policy.key_frame(rows, NEAR)) if self.rope else None
        turned = {g: self._phases(self.policy.query_frame(rows, g)) for g in pieces if g != NEAR} if self.rope else {}
        if born is not None:
            turned[NEAR] = born
        self.chunk = Chunk(rows, self._slot(self.length), born, turned, pieces, self._moves(rows))
        return self.chunk

    def _begin_whole_prompt(self, rows: np.ndarray) -> Chunk:
        if self.length:
            raise Refused("a whole prompt under one frame must be read first and at once: prefill it in one chunk")
        phases = self._phases(self.policy.whole_prompt_frame(rows, len(rows)))
        piece = Piece(0, len(rows), 0, causal=True)
        return Chunk(rows, 0, phases, {NEAR: phases}, {NEAR: [piece]}, {}, unframed=True)

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

    def move(self, layer: int, group: int) -> None:
        """Bring the keys that enter a group in this chunk into its frame."""
        assert self.chunk is not None
        for lo, hi, phases in self.chunk.moves.get(group, ()):
            raw = self._raw[layer][:, lo:hi]
            self._keys[layer][:, lo:hi] = raw if phases is None or self.rope is None else self.rope.rotate(raw, phases)

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
        rows = np.arange(n)
        near = int(self.policy.near_start(n - 1))
        frames = np.where(rows < near, self.policy.key_frame(rows, COMPRESSED), self.policy.key_frame(rows, NEAR))
        phases = self._phases(frames)
        assert self.rope is not None
        for layer in range(self.shape.layers):
            self._keys[layer][:, :n] = self.rope.rotate(self._raw[layer][:, :n], phases)
        self.rotations += n

    # ---- planning

    def _phases(self, frames: np.ndarray) -> Phases:
        assert self.rope is not None
        return self.rope.phases(frames, self.shape.dtype, self.shape.device)

    def _pieces(self, rows: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> list[Piece]:
        """A segment of all rows as pieces: a core every row sees, and the edges that some see."""
        seen = hi > lo
        if not seen.any():
            return []
        first, last = int(lo[seen].min()), int(hi[seen].max())
        if len(rows) == 1:
            piece = self._piece(first, last)
            return [piece._replace(reach=min(piece.lo + _whole(piece.hi - piece.lo), self.slots))]
        if not seen.all():
            return [self._edge(first, last, lo, hi)]
        inner, outer = int(lo.max()), int(hi.min())
        grows = bool((hi == rows + 1).all())
        outer = int(rows[0]) if grows else outer
        if inner > outer:
            return [self._edge(first, last, lo, hi)]
        found = []
        if first < inner:
            found.append(self._edge(first, inner, lo, hi))
        if inner < outer:
            found.append(self._piece(inner, outer))
        if outer < last:
            right = self._piece(outer, last)._replace(causal=True) if grows else self._edge(outer, last, lo, hi)
            found.append(right)
        # Without biases, whose kernel is another, the rows' spans do as well as pieces.
        whole = self.rope is not None and serves(self.shape.dtype, self.shape.device, self.shape.width)
        return [self._edge(first, last, lo, hi)] if whole and len(found) > 1 else found

    def _piece(self, first: int, last: int) -> Piece:
        slot = self._slot(first)
        return Piece(slot, slot + last - first, first)

    def _edge(self, first: int, last: int, lo: np.ndarray, hi: np.ndarray) -> Piece:
        spans = np.stack([lo, hi], 1).clip(first, last) - first
        return self._piece(first, last)._replace(spans=spans)

    @staticmethod
    def _joined(pieces: list[Piece]) -> list[Piece]:
        """Neighbouring pieces that all rows see, as one."""
        out = [pieces[0]]
        for piece in pieces[1:]:
            last = out[-1]
            contiguous = last.hi == piece.lo and last.first + last.hi - last.lo == piece.first
            if contiguous and last.spans is None and piece.spans is None and not last.causal and not piece.causal:
                out[-1] = last._replace(hi=piece.hi, reach=piece.reach)
            else:
                out.append(piece)
        return out

    def _moves(self, rows: np.ndarray) -> dict[int, list[Move]]:
        """Keys whose group changes between the row before the chunk and its last row."""
        if not self.policy.moves or self.rope is None:
            return {}
        start = int(rows[0])
        before, after = self.policy.bounds(max(start - 1, 0)), self.policy.bounds(int(rows[-1]))
        moves: dict[int, list[Move]] = {}
        if self.policy.kind == "dynamic":
            self._plan(moves, COMPRESSED, int(before.near), int(after.near), start)
        if math.isfinite(self.policy.limit):
            clipped = [
                (before.head, after.head),
                (before.middle, after.middle),
                (max(before.tail, after.near), after.tail),
            ]
            for lo, hi in clipped:
                self._plan(moves, CLIPPED, int(lo), int(hi), start)
        return moves

    def _plan(self, moves: dict[int, list[Move]], group: int, lo: int, hi: int, t: int) -> None:
        """Add the move of tokens lo ≤ j < hi that query t or a later one can see."""
        sinks = self.policy.sinks
        local = sinks if self.policy.window is None else max(sinks, t + 1 - self.policy.window)
        local = hi if group == CLIPPED and self._only_sinks_move else local
        for first, last in ((lo, min(hi, sinks)), (max(lo, local), hi)):
            if first < last:
                slot = self._slot(first)
                tokens = np.arange(first, last)
                phases = None if group == CLIPPED else self._phases(self.policy.key_frame(tokens, group))
                moves.setdefault(group, []).append(Move(slot, slot + last - first, phases))


def _whole(tokens: int) -> int:
    """Rounded up to whole strides."""
    return -(-tokens // STRIDE) * STRIDE
