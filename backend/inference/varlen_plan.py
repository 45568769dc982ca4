"""One step of several sequences as calls of variable-length attention, planned before any layer runs.

`chunk_plan` says of each sequence which slots its rows see, piece by piece. Here neighbouring rows that see a piece in
one shape become a run: queries and keys each in a row, every key seen or a window that ends at the last one, which is
what a call of `torch.nn.attention.varlen.varlen_attn` can say. Runs of one shape share a call, whichever sequence,
policy and group they are of: a step of single tokens is one call. What a row saw in several runs is merged by their
log-sum-exps.

A run says its keys by the slot of the first and their number (`cu_seq_k`, `seqused_k`), not by a block table: torch's
own kernels take blocks of 256 slots or multiples, a run begins within one where a window does, and what lies before it
in its block could be hidden only by the window size, which is one number a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import accumulate, zip_longest
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from backend.inference.chunk_plan import Chunk, Move, Phases, Piece
from backend.inference.kv_cache import FramedCache
from backend.refused import Refused

Planned = TypeVar("Planned")
# Keys before and behind the one at a query's own end that it sees, as torch counts them; −1: all.
Window = tuple[int, int]


class Member(NamedTuple):
    """The chunk of one sequence in a step.

    groups: its policy's. slot: of the cache's first in the buffers that the step reads. raw: the first slots whose keys
    are kept unrotated.
    """

    chunk: Chunk
    groups: Sequence[str]
    slot: int = 0
    raw: int = 0

    @classmethod
    def of(cls, cache: FramedCache, slot: int = 0) -> Member:
        """A cache that has begun its chunk."""
        assert cache.chunk is not None
        return cls(cache.chunk, cache.policy.groups, slot, cache.buffers[2].shape[2])


@dataclass(frozen=True)
class Call:
    """One call of variable-length attention, of s runs with n queries in all.

    rows [n]: the step's queries, run by run; phases [2, n, rotary width] and factors [n, 1] (None: 1) turn them. From
    lo to hi: the slots whose keys it takes. cu_seq_q, cu_seq_k [s + 1], seqused_k [s]: int32, where each run's queries
    and keys begin among these, and how many keys it has. max_q, max_k: the most of a run. window: of each query.
    """

    rows: Tensor
    phases: Phases
    factors: Tensor | None
    lo: int
    hi: int
    cu_seq_q: Tensor
    cu_seq_k: Tensor
    seqused_k: Tensor
    max_q: int
    max_k: int
    window: Window


@dataclass(frozen=True)
class Stage:
    """Keys that change their frames, then calls that read them there.

    moved [m]: slots; phases [2, m, rotary width].
    """

    moved: Tensor
    phases: Phases
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class VarlenStep:
    """Everything about the n rows of a step that all layers share.

    write [n]: slots of their keys and values; born [2, n, rotary width]: phases of their keys. kept: those of the rows
    whose keys are kept unrotated too. stages: in their order. parts [p, n]: of each row the places of its results among
    those of all calls, one behind the other; their number where there are no more.
    """

    write: Tensor
    born: Phases
    kept: Tensor
    stages: tuple[Stage, ...]
    parts: Tensor

    def to(self, device: torch.device) -> VarlenStep:
        """The same on a device."""
        return _placed(self, device)


class _Run(NamedTuple):
    """So many queries, rows of the step from `first` on, that see so many keys, from `slot` on."""

    first: int
    queries: int
    slot: int
    keys: int
    window: Window
    phases: Phases
    factors: Tensor | None


def planned(members: Sequence[Member]) -> VarlenStep:
    """The step of some sequences, whose rows follow each other in it. The slots of no two of them overlap.

    Raises Refused for a sequence whose keys are not rotated.
    """
    borns = [member.chunk.born for member in members]
    if any(born is None for born in borns):
        raise Refused("variable-length attention takes no biases, which ALiBi needs: choose a model with RoPE")
    counts = [len(member.chunk.rows) for member in members]
    firsts = [0, *accumulate(counts)]
    write = np.concatenate(
        [member.slot + member.chunk.write + np.arange(n) for member, n in zip(members, counts, strict=True)]
    )
    ends = np.repeat([member.slot + member.raw for member in members], counts)
    stages = [_stage(parts) for parts in zip_longest(*map(_ordered, members, firsts), fillvalue=((), ()))]
    rows = [call.rows.numpy() for stage in stages for call in stage.calls]
    return VarlenStep(
        torch.from_numpy(write),
        torch.cat([born for born in borns if born is not None], 1),
        torch.from_numpy(np.flatnonzero(write < ends)),
        tuple(stages),
        torch.from_numpy(_parts(np.concatenate(rows), len(write))),
    )


def _ordered(member: Member, first: int) -> Iterator[tuple[Sequence[Move], Sequence[_Run]]]:
    """What a sequence moves and reads in each stage; first: its first row in the step.

    A key of a chunk may be seen in one group by an early row and in the next by a later one, so that each group has its
    stage. A single row sees each key once.
    """
    found = [([*_moves(member, group)], [*_runs(member, group, first)]) for group in member.groups]
    if len(member.chunk.rows) > 1:
        yield from found
    else:
        yield [move for moves, _ in found for move in moves], [run for _, runs in found for run in runs]


def _moves(member: Member, group: str) -> Iterator[Move]:
    """The keys that enter a group, by their slots in the step's buffers."""
    for lo, hi, phases in member.chunk.moves.get(group, ()):
        yield Move(member.slot + lo, member.slot + hi, phases)


def _runs(member: Member, group: str, first: int) -> Iterator[_Run]:
    """The keys of a group as a sequence's rows see them."""
    chunk = member.chunk
    for lo, hi in _spans(chunk.pieces.get(group, ()), len(chunk.rows)):
        for start, stop in _shapes(lo, hi):
            queries, keys = stop - start, int(hi[stop - 1] - lo[start])
            left = keys - queries if lo[stop - 1] > lo[start] else -1
            right = 0 if hi[stop - 1] > hi[start] else -1
            rows = slice(start, stop)
            factors = None if chunk.scale is None else chunk.scale[rows]
            slot, phases = member.slot + int(lo[start]), chunk.turned[group][:, rows]
            yield _Run(first + start, queries, slot, keys, (left, right), phases, factors)


def _spans(pieces: Iterable[Piece], rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """First slot and end [rows] of what each row sees in pieces, those that meet in every row as one."""
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for piece in pieces:
        ends = np.arange(1, rows + 1) if piece.causal else np.full(rows, piece.hi - piece.lo)
        lo, hi = (np.zeros_like(ends), ends) if piece.spans is None else piece.spans.T
        before = found.pop() if found and (found[-1][1] == piece.lo + lo).all() else (piece.lo + lo,)
        found.append((before[0], piece.lo + hi))
    return found


def _shapes(lo: np.ndarray, hi: np.ndarray) -> Iterator[tuple[int, int]]:
    """Neighbouring rows that all see keys and whose bounds each stay, or go on by one a row; first row and end."""
    seen, steps = hi > lo, np.stack([np.diff(lo), np.diff(hi)], 1)
    even = seen[:-1] & seen[1:] & ((steps == 0) | (steps == 1)).all(1)
    start = 0
    while start < len(lo):
        stop = start + 1
        if start < len(even) and even[start]:
            alike = even[start:] & (steps[start:] == steps[start]).all(1)
            stop += len(alike) if alike.all() else int(alike.argmin())
        if seen[start]:
            yield start, stop
        start = stop


def _stage(parts: Iterable[tuple[Sequence[Move], Sequence[_Run]]]) -> Stage:
    """What all sequences move and read in one stage."""
    moves, runs = ([each for part in side for each in part] for side in zip(*parts, strict=True))
    slots = np.concatenate([np.arange(0), *(np.arange(move.lo, move.hi) for move in moves)])
    phases = torch.cat([move.phases for move in moves], 1) if moves else torch.empty(2, 0, 0)
    windows = sorted({run.window for run in runs})
    calls = [_call(row) for window in windows for row in _in_a_row([run for run in runs if run.window == window])]
    return Stage(torch.from_numpy(slots), phases, tuple(calls))


def _in_a_row(runs: Iterable[_Run]) -> list[list[_Run]]:
    """Runs by the calls that they share: the keys of each lie behind those of the run before, as `cu_seq_k` has it."""
    calls: list[list[_Run]] = []
    for run in sorted(runs, key=lambda run: run.slot):
        free = (call for call in calls if call[-1].slot + call[-1].keys <= run.slot)
        call = next(free, None)
        if call is None:
            calls.append(call := [])
        call.append(run)
    return calls


def _call(runs: Sequence[_Run]) -> Call:
    counts, keys = [run.queries for run in runs], [run.keys for run in runs]
    lo, hi = runs[0].slot, runs[-1].slot + runs[-1].keys
    factors = [run.phases.new_ones(run.queries, 1) if run.factors is None else run.factors for run in runs]
    return Call(
        torch.from_numpy(np.concatenate([np.arange(run.first, run.first + run.queries) for run in runs])),
        torch.cat([run.phases for run in runs], 1),
        torch.cat(factors) if any(run.factors is not None for run in runs) else None,
        lo,
        hi,
        torch.tensor([0, *accumulate(counts)], dtype=torch.int32),
        torch.tensor([*(run.slot - lo for run in runs), hi - lo], dtype=torch.int32),
        torch.tensor(keys, dtype=torch.int32),
        max(counts),
        max(keys),
        runs[0].window,
    )


def _parts(rows: np.ndarray, count: int) -> np.ndarray:
    """Of `rows`, the row of each result, for each of `count` rows the places of its own [p, count]."""
    order, numbers = np.argsort(rows, kind="stable"), np.bincount(rows, minlength=count)
    found = np.full((numbers.max(), count), len(rows))
    which = np.arange(len(rows)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    found[which, rows[order]] = order
    return found


def _placed(value: Planned, device: torch.device) -> Planned:
    """A plan with its tensors on a device."""
    found: Any = value
    if isinstance(value, Tensor):
        found = value.to(device)
    elif isinstance(value, tuple):
        found = tuple(_placed(each, device) for each in value)
    elif is_dataclass(value) and not isinstance(value, type):
        found = replace(value, **{each.name: _placed(getattr(value, each.name), device) for each in fields(value)})
    return found
