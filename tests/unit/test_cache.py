"""The framed cache: keys stand in the right frames, are rotated a constant number of times, and memory stays."""
from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from conftest import FAMILIES
from hypothesis import given, settings
from hypothesis import strategies as st
from policies import POLICIES, asking
from reading import run
from torch import Tensor

from backend.inference.kv_cache import SLACK, FramedCache, Shape
from backend.positions import Plain, policy_of
from backend.positions.rope import Rope
from backend.settings import RunSettings

CPU = torch.device("cpu")
HEADS, WIDTH = 2, 16
THETA = 10_000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)


@dataclass(frozen=True)
class CountingRope(Rope):
    """Counts the vectors it rotates."""

    rotated: list[int] = field(default_factory=list)

    def rotate(self, x: Tensor, phases: tuple[Tensor, Tensor]) -> Tensor:
        self.rotated.append(x.shape[-2])
        return super().rotate(x, phases)


@dataclass
class Filled:
    """A cache of one layer with the unrotated keys and the values that went into it, by position."""

    cache: FramedCache
    raw: Tensor
    values: Tensor

    def read(self, n: int, whole_prompt: bool = False) -> None:
        """Read n more tokens the way attention does."""
        start = self.cache.length
        self.cache.begin(n, whole_prompt)
        self.cache.write(0, self.raw[:, start : start + n], self.values[:, start : start + n])
        for group in self.cache.policy.groups:
            self.cache.move(0, group)
        self.cache.end()

    def seen(self) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
        """By piece that the last token sees: group, its positions, its stored keys and values."""
        assert self.cache.chunk is not None
        for group, pieces in self.cache.chunk.pieces.items():
            for piece in pieces:
                positions = torch.arange(piece.first, piece.first + piece.hi - piece.lo)
                keys, values = self.cache.keys(0, piece.lo, piece.hi), self.cache.values(0, piece.lo, piece.hi)
                yield group, positions, keys, values


def filled(asked: RunSettings, tokens: int, dtype: torch.dtype = torch.bfloat16, room: int = 16) -> Filled:
    """An empty cache, and random keys and values for that many tokens."""
    generator = torch.Generator().manual_seed(1)
    raw, values = (torch.randn(HEADS, tokens, WIDTH, generator=generator).to(dtype) for _ in range(2))
    rope = CountingRope(THETA, trained=256)
    return Filled(FramedCache(Shape(1, HEADS, WIDTH, dtype, CPU), policy_of(asked), rope, room), raw, values)


def check_frames(state: Filled) -> None:
    """Every key the last token sees equals, bit for bit, its raw value rotated once to the frame it should stand in."""
    cache, seen = state.cache, []
    assert cache.rope is not None
    for group, positions, keys, values in state.seen():
        frames = cache.policy.key_frame(positions.numpy(), group)
        fresh = cache.rope.rotate(state.raw[:, positions], cache.rope.phases(frames, state.raw.dtype, CPU))
        assert torch.equal(keys, fresh)
        assert torch.equal(values, state.values[:, positions])
        seen += positions.tolist()
    last = cache.length - 1
    expected = ~np.isnan(cache.policy.distance(np.array([last]), np.arange(cache.length))[0])
    assert sorted(seen) == np.flatnonzero(expected).tolist()


@pytest.mark.parametrize("name", POLICIES)
def test_keys_are_never_rotated_twice(name: str):
    state = filled(POLICIES[name], 520)
    state.read(20)
    for token in range(500):
        state.read(1)
        if token % 20 == 0 or token == 499:
            check_frames(state)


@pytest.mark.parametrize("name", [name for name, asked in POLICIES.items() if asked.window is None])
def test_after_a_prompt_under_one_frame_keys_come_from_their_raw_values(name: str):
    state = filled(POLICIES[name], 60)
    state.read(40, whole_prompt=True)
    for _ in range(20):
        state.read(1)
        check_frames(state)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(POLICIES)), chunks=st.lists(st.integers(1, 90), min_size=1, max_size=8)
)
def test_keys_stand_in_their_frames_after_any_chunks(name: str, chunks: list[int]):
    state = filled(POLICIES[name], sum(chunks) + 1)
    for n in [*chunks, 1]:
        state.read(n)
    check_frames(state)


@pytest.mark.parametrize("name", POLICIES)
def test_rotations_of_a_token_do_not_grow_with_the_text(name: str):
    asked = POLICIES[name]
    state = filled(asked, 500)
    rope = state.cache.rope
    assert isinstance(rope, CountingRope)
    state.read(100)
    counts = []
    for _ in range(400):
        before = sum(rope.rotated)
        state.read(1)
        counts.append(sum(rope.rotated) - before)
    early, late = counts[100:200], counts[300:]
    # A key is born in one frame and can enter two others; the sinks of a window are few.
    assert max(late) <= 3 and sum(late) == sum(early)
    assert state.cache.rotations >= sum(rope.rotated)


# ---- memory


@pytest.mark.parametrize("name", [name for name, asked in POLICIES.items() if asked.window is not None])
def test_a_window_keeps_memory_constant(name: str):
    asked = POLICIES[name]
    state = filled(asked, 1200, torch.float32)
    size, slots = state.cache.bytes, state.cache.slots
    for _ in range(1200):
        state.read(1)
    check_frames(state)
    assert asked.window is not None
    assert (state.cache.bytes, state.cache.slots, state.cache.length) == (size, slots, 1200)
    assert slots <= asked.window + asked.sinks + SLACK + 64


def resident() -> int:
    """Memory of this process, in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.scale
@pytest.mark.parametrize(("pic", "steps"), [("none", 20_000), ("dynamic", 3_000)])
def test_many_steps_in_constant_memory(pic: str, steps: int, tiny):
    runner = run(tiny("llama", num_hidden_layers=1))
    cache = runner.cache(policy_of(asking(window=32, sinks=4, pic=pic, ratio=4.0)))
    tokens = torch.randint(3, 100, (steps, 1), generator=torch.Generator().manual_seed(0))
    sizes, memory = set(), []
    for step, token in enumerate(tokens):
        logits = runner.read(token, cache)
        if step % 500 == 499:
            sizes.add((cache.bytes, cache.slots))
            memory.append(resident())
    assert len(sizes) == 1 and cache.length == steps
    assert memory[-1] - memory[1] < 8 * 2**20
    assert torch.isfinite(logits).all()


def test_growth_keeps_what_was_read(tiny):
    tokens = torch.randint(3, 100, (700,), generator=torch.Generator().manual_seed(0))
    for family in ("llama", "gpt_neox", "mpt"):
        layers = {"mpt": {"n_layers": 1, "max_seq_len": 1024}}.get(family, {"num_hidden_layers": 1})
        runner = run(tiny(family, **layers))
        small, large = runner.cache(Plain(), 1), runner.cache(Plain(), 1000)
        grown = {small.slots}
        for part in tokens.split(50):
            a, b = runner.read(part, small), runner.read(part, large)
            grown.add(small.slots)
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
        assert len(grown) > 3 and large.slots < 1100 and small.length == 700
        for layer in range(1):
            assert torch.equal(small.keys(layer, 0, 700), large.keys(layer, 0, 700))
            assert torch.equal(small.values(layer, 0, 700), large.values(layer, 0, 700))


def test_growth_keeps_raw_keys_and_a_window_can_take_a_chunk_larger_than_itself():
    for name in ("dynamic", "window, near limit", "dynamic + window"):
        state = filled(POLICIES[name], 1500)
        for n in (3, 700, 1, 1, 600, 1):
            state.read(n)
        check_frames(state)


def test_a_prompt_under_one_frame_comes_first():
    state = filled(POLICIES["dynamic"], 50)
    state.read(5)
    with pytest.raises(ValueError, match="in one chunk"):
        state.read(20, whole_prompt=True)


def test_families_are_all_counted(tiny):
    for family in FAMILIES:
        runner = run(tiny(family))
        asked = asking(window=8, sinks=2) if family == "mpt" else POLICIES["dynamic + window"]
        cache = runner.cache(policy_of(asked))
        runner.read(torch.arange(3, 23), cache)
        before = cache.rotations
        runner.read(torch.tensor([5]), cache)
        assert cache.length == 21 and cache.rotations - before <= 3
