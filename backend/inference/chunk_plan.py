"""What a cache does with the next rows, planned before any layer runs: which keys they see, from which frames, and
which keys change theirs.

The keys to rotate are the difference between what is seen before the rows and what they see. A writer reads one token
at a time, so the steps of the next tokens are planned together: for one of them hardly anything is left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from backend.inference.kernels.flash import serves
from backend.positions import PositionPolicy, Span
from backend.positions.base import FloatArray
from backend.positions.rope import Rope

if TYPE_CHECKING:
    from backend.inference.kv_cache import Shape

STRIDE = 64
# Steps of single tokens that are planned together.
STEPS = 64

# Cosines and signed sines [2, n, rotary width].
Phases = Tensor
# First key and end.
Range = tuple[int, int]
# Ranges by group.
Ranges = dict[str, list[Range]]


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
    """Keys of slots lo ≤ slot < hi that change to another frame."""

    lo: int
    hi: int
    phases: Phases


class Wide(NamedTuple):
    """Phases of one token as kernels take them, in float32: of its key, born [2, rotary width], of its queries, turned
    [groups, 2, rotary width], and of the keys that change their frame, moved [keys, 2, rotary width]."""

    born: np.ndarray
    turned: np.ndarray
    moved: np.ndarray


@dataclass
class Chunk:
    """Everything about the rows being processed that all layers share.

    rows: their positions. write: slot of the first. born: phases of their keys; turned: of their queries, by group.
    scale [n, 1]: factors on the rotated queries, None: 1. groups: those whose queries differ, the rows' own first.
    pieces and moves: by group, to be used in the order of the policy's groups. attended: keys that the last row sees.
    unframed: a whole prompt under one frame, whose keys get their own frames afterwards. steps: among which a single
    token was planned.
    """

    rows: np.ndarray
    write: int
    born: Phases | None
    turned: dict[str, Phases]
    groups: list[str]
    pieces: dict[str, list[Piece]]
    moves: dict[str, list[Move]]
    attended: int
    scale: Tensor | None = None
    unframed: bool = False
    steps: Steps | None = None

    @property
    def wide(self) -> Wide:
        """Phases of the one row; groups and moves in their order."""
        if self.steps is not None:
            return self.steps.wide(int(self.rows[0]))
        assert self.born is not None
        born = by_row(self.born)
        return Wide(born[0], born, born[:0])


class Slots(NamedTuple):
    """Where tokens lie: the slot of a token, and the number of all slots."""

    of: Callable[[int], int]
    total: int


class Planner:
    """Plans for one cache. rope None: no rotation (ALiBi)."""

    def __init__(self, policy: PositionPolicy, rope: Rope | None, shape: Shape):
        self.policy, self.rope, self.shape = policy, rope, shape
        self._steps: Steps | None = None

    def plan(self, first: int, n: int, slots: Slots) -> Chunk:
        """The rows first … first + n − 1, after all before them."""
        return self._token(first, slots) if n == 1 else self._rows(np.arange(first, first + n), slots)

    def whole_prompt(self, frames: FloatArray) -> Chunk:
        """A whole prompt in these frames, each row of which sees all before it."""
        n, own = len(frames), self.policy.groups[0]
        phases, piece = self.phases(frames), Piece(0, n, 0, causal=True)
        return Chunk(np.arange(n), 0, phases, {own: phases}, [own], {own: [piece]}, {}, n, unframed=True)

    def phases(self, frames: FloatArray) -> Phases:
        """Of frames [n]."""
        assert self.rope is not None
        return self.rope.phases(frames, self.shape.dtype, self.shape.device)

    def seen(self, t: int) -> Ranges:
        """The tokens that token t sees, by group; none before the first one."""
        return _seen(self.policy.spans(np.array([t])), 0) if t >= 0 else {}

    def turned(self, rows: np.ndarray, groups: Sequence[str]) -> tuple[Phases | None, dict[str, Phases]]:
        """Phases of the rows' keys, and of their queries for some groups."""
        if self.rope is None:
            return None, {}
        own = self.policy.key_frame(rows, self.policy.groups[0])
        queries = {group: self.policy.query_frame(rows, group) for group in groups}
        others = {group: frames for group, frames in queries.items() if not np.array_equal(own, frames)}
        born, *turned = self.phases(np.concatenate([own, *others.values()])).split(len(rows), 1)
        found = dict(zip(others, turned, strict=True))
        return born, {group: found.get(group, born) for group in groups}

    def scale(self, rows: np.ndarray) -> Tensor | None:
        """Factors on the rows' queries [n, 1]."""
        factors = self.policy.logit_scale(rows, self.rope.trained) if self.rope is not None else None
        return None if factors is None else torch.from_numpy(factors)[:, None].to(self.shape.device, self.shape.dtype)

    def entering(self, group: str, seen: Iterable[Range], before: Sequence[Range]) -> Iterator[Range]:
        """Of what is seen of a group, the keys that were not in it and may change their frame."""
        end = self.policy.rerotated
        for lo, hi in _without(seen, before):
            hi = hi if end is None else min(hi, end)
            if lo < hi:
                yield lo, hi

    def changes(self, group: str, ranges: Sequence[Range]) -> list[Phases | None]:
        """Phases of the keys that enter a group, of each range; None where all stand in their frames already."""
        tokens = np.concatenate([np.arange(*each) for each in ranges])
        frames = self.policy.key_frame(tokens, group)
        groups = self.policy.groups
        earlier = [self.policy.key_frame(tokens, other) for other in groups[: groups.index(group)]]
        changed = np.any([frames != other for other in earlier], 0)
        sizes = [hi - lo for lo, hi in ranges]
        parts = zip(self.phases(frames).split(sizes, 1), np.split(changed, np.cumsum(sizes)[:-1]), strict=True)
        return [phases if some.any() else None for phases, some in parts]

    def _token(self, t: int, slots: Slots) -> Chunk:
        if self._steps is None or not 0 <= t - self._steps.first < STEPS:
            self._steps = Steps(self, t)
        return self._steps.chunk(t, slots)

    def _rows(self, rows: np.ndarray, slots: Slots) -> Chunk:
        spans = self.policy.spans(rows)
        pieces: dict[str, list[Piece]] = {}
        for lo, hi, group in spans:
            if found := self._pieces(rows, lo, hi, slots):
                pieces.setdefault(group, []).extend(found)
        pieces = {group: _joined(found) for group, found in pieces.items()}
        groups = _met(self.policy, pieces)
        moves = self._moves(spans, self.seen(int(rows[0]) - 1), slots)
        attended = sum(max(0, int(hi[-1] - lo[-1])) for lo, hi, _ in spans)
        born, turned = self.turned(rows, groups)
        write = slots.of(int(rows[0]))
        return Chunk(rows, write, born, turned, groups, pieces, moves, attended, self.scale(rows))

    def _moves(self, spans: Sequence[Span], before: Ranges, slots: Slots) -> dict[str, list[Move]]:
        """Keys that enter a group in some row of a chunk."""
        moves: dict[str, list[Move]] = {}
        for group in self.policy.groups[1:] if self.rope is not None else ():
            whole = [each for span in spans if span.group == group and (each := _union(span))]
            ranges = [*self.entering(group, _merged(whole), before.get(group, ()))]
            if ranges:
                found = zip(ranges, self.changes(group, ranges), strict=True)
                moves[group] = [_move(each, phases, slots) for each, phases in found if phases is not None]
        return moves

    def _pieces(self, rows: np.ndarray, lo: np.ndarray, hi: np.ndarray, slots: Slots) -> list[Piece]:
        """A span of all rows as pieces: a core every row sees, and the edges that some see."""
        seen = hi > lo
        if not seen.any():
            return []
        first, last = int(lo[seen].min()), int(hi[seen].max())
        if not seen.all():
            return [_edge(first, last, lo, hi, slots)]
        inner, outer = int(lo.max()), int(hi.min())
        grows = bool((hi == rows + 1).all())
        outer = int(rows[0]) if grows else outer
        if inner > outer:
            return [_edge(first, last, lo, hi, slots)]
        found = []
        if first < inner:
            found.append(_edge(first, inner, lo, hi, slots))
        if inner < outer:
            found.append(_piece(inner, outer, slots))
        if outer < last:
            right = _piece(outer, last, slots)._replace(causal=True) if grows else _edge(outer, last, lo, hi, slots)
            found.append(right)
        # Without biases, whose kernel is another, the rows' spans do as well as pieces.
        whole = self.rope is not None and serves(self.shape.dtype, self.shape.device, self.shape.width)
        return [_edge(first, last, lo, hi, slots)] if whole and len(found) > 1 else found


class Steps:
    """The plans of the STEPS tokens from `first` on, read one at a time."""

    def __init__(self, planner: Planner, first: int):
        self.first = first
        self._rows = np.arange(first, first + STEPS)
        self._groups = planner.policy.groups
        spans = [Span(lo.tolist(), hi.tolist(), group) for lo, hi, group in planner.policy.spans(self._rows)]
        self._seen = [_seen(spans, step) for step in range(STEPS)]
        self._met = [_met(planner.policy, seen) for seen in self._seen]
        self._born, self._turned = planner.turned(self._rows, planner.policy.groups)
        self._scale = planner.scale(self._rows)
        self._moves: list[list[tuple[str, Range, Phases]]] = [[] for _ in range(STEPS)]
        if planner.rope is not None:
            self._plan_moves(planner)

    def _plan_moves(self, planner: Planner) -> None:
        states = [planner.seen(self.first - 1), *self._seen]
        for group in self._groups[1:]:
            found = [
                (step, each)
                for step, (before, seen) in enumerate(pairwise(states))
                for each in planner.entering(group, seen.get(group, ()), before.get(group, ()))
            ]
            if not found:
                continue
            for (step, each), phases in zip(found, planner.changes(group, [each for _, each in found]), strict=True):
                if phases is not None:
                    self._moves[step].append((group, each, phases))

    def chunk(self, t: int, slots: Slots) -> Chunk:
        """The plan of one token."""
        step = t - self.first
        one = slice(step, step + 1)
        pieces = {group: _single(ranges, slots) for group, ranges in self._seen[step].items()}
        moves: dict[str, list[Move]] = {}
        for group, each, phases in self._moves[step]:
            moves.setdefault(group, []).append(_move(each, phases, slots))
        met = self._met[step]
        turned = {group: self._turned[group][:, one] for group in met} if self._turned else {}
        attended = sum(hi - lo for ranges in self._seen[step].values() for lo, hi in ranges)
        born = None if self._born is None else self._born[:, one]
        scale = None if self._scale is None else self._scale[one]
        write = slots.of(t)
        return Chunk(self._rows[one], write, born, turned, met, pieces, moves, attended, scale, steps=self)

    def wide(self, t: int) -> Wide:
        """The phases of one token."""
        return self._wide[t - self.first]

    @cached_property
    def _wide(self) -> list[Wide]:
        assert self._born is not None
        born = by_row(self._born)
        turned = np.stack([by_row(self._turned[group], self._scale) for group in self._groups], 1)
        each = [[phases for _, _, phases in moves] for moves in self._moves]
        moved = by_row(torch.cat([self._born[:, :0], *(phases for step in each for phases in step)], 1))
        ends = np.cumsum([sum(phases.shape[1] for phases in step) for step in each])
        met = [[self._groups.index(group) for group in groups] for groups in self._met]
        parts = zip(born, turned, met, np.split(moved, ends[:-1]), strict=True)
        return [Wide(key, queries[groups], keys) for key, queries, groups, keys in parts]


def by_row(phases: Phases, scale: Tensor | None = None) -> np.ndarray:
    """Phases [n, 2, rotary width] in float32, times factors [n, 1]."""
    found = phases.transpose(0, 1).float()
    return (found if scale is None else found * scale.float()[..., None]).contiguous().numpy()


def _seen(spans: Sequence[Span], row: int) -> Ranges:
    """The spans of one of their rows that are not empty, by group."""
    found: Ranges = {}
    for lo, hi, group in spans:
        if lo[row] < hi[row]:
            found.setdefault(group, []).append((int(lo[row]), int(hi[row])))
    return found


def _met(policy: PositionPolicy, seen: Iterable[str]) -> list[str]:
    """The groups whose queries differ: the rows' own, then the others seen."""
    seen = set(seen)
    return [policy.groups[0], *(group for group in policy.groups[1:] if group in seen)]


def _union(span: Span) -> Range | None:
    """From the first key of a span that some row sees to the last."""
    some = span.hi > span.lo
    return (int(span.lo[some].min()), int(span.hi[some].max())) if some.any() else None


def _merged(ranges: Iterable[Range]) -> list[Range]:
    """Ranges in order, those that meet as one."""
    found: list[Range] = []
    for lo, hi in sorted(ranges):
        if found and lo <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], hi)
        else:
            found.append((lo, hi))
    return found


def _without(ranges: Iterable[Range], others: Sequence[Range]) -> Iterator[Range]:
    """What of the ranges lies in none of the others, which are in order."""
    for lo, hi in ranges:
        for first, end in others:
            if first < hi and lo < end:
                if lo < first:
                    yield lo, first
                lo = end
        if lo < hi:
            yield lo, hi


def _move(each: Range, phases: Phases, slots: Slots) -> Move:
    slot = slots.of(each[0])
    return Move(slot, slot + each[1] - each[0], phases)


def _single(ranges: Iterable[Range], slots: Slots) -> list[Piece]:
    """Ranges as one row sees them, neighbours as one piece."""
    found: list[Piece] = []
    for lo, hi in ranges:
        slot = slots.of(lo)
        reach = min(slot + whole(hi - lo), slots.total)
        last = found[-1] if found else None
        if last is not None and last.hi == slot and last.first + last.hi - last.lo == lo:
            found[-1] = Piece(last.lo, slot + hi - lo, last.first, None, False, reach)
        else:
            found.append(Piece(slot, slot + hi - lo, lo, None, False, reach))
    return found


def _piece(first: int, last: int, slots: Slots) -> Piece:
    slot = slots.of(first)
    return Piece(slot, slot + last - first, first)


def _edge(first: int, last: int, lo: np.ndarray, hi: np.ndarray, slots: Slots) -> Piece:
    spans = np.stack([lo, hi], 1).clip(first, last) - first
    return _piece(first, last, slots)._replace(spans=spans)


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Neighbouring pieces that all rows see, as one."""
    out = [pieces[0]]
    for piece in pieces[1:]:
        last = out[-1]
        contiguous = last.hi == piece.lo and last.first + last.hi - last.lo == piece.first
        if contiguous and last.spans is None and piece.spans is None and not last.causal and not piece.causal:
            out[-1] = last._replace(hi=piece.hi)
        else:
            out.append(piece)
    return out


def whole(tokens: int) -> int:
    """Rounded up to whole strides."""
    return -(-tokens // STRIDE) * STRIDE
