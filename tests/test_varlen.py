"""A step of several sequences as calls of variable-length attention: the same numbers as the engine's own attention."""
from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import settings as trying
from hypothesis import strategies as st
from policies import POLICIES, any_policy
from test_cache import CPU, THETA
from torch import Tensor
from torch.nn.attention.varlen import AuxRequest, varlen_attn

from backend.inference.attention import attend
from backend.inference.kv_cache import SLACK, FramedCache, Shape
from backend.inference.varlen_attention import Buffers, attended, dense
from backend.inference.varlen_plan import Member, VarlenStep, planned
from backend.positions import policy_of
from backend.positions.rope import Rope
from backend.refused import Refused
from backend.settings import RunSettings

HEADS, KV_HEADS, WIDTH, ROOM = 4, 2, 16, 400
SCALE = WIDTH**-0.5


def rope_of(asked: RunSettings) -> Rope:
    """Slower under policies that change the frequencies, so that rows of one step turn at different speeds."""
    return Rope(THETA / (asked.ratio if asked.pic in ("ntk", "yarn") else 1), trained=64)


class Together:
    """Sequences of one layer, each in a cache of its own, whose steps are read by the engine and, over buffers that all
    share, by a plan."""

    def __init__(self, asked: Sequence[RunSettings], dtype: torch.dtype = torch.float64, device: torch.device = CPU):
        shape = Shape(1, KV_HEADS, WIDTH, dtype, device)
        policies = [policy_of(each) for each in asked]
        ropes = [rope_of(each) for each in asked]
        self.alone, self.shared = (
            [FramedCache(shape, policy, rope, ROOM) for policy, rope in zip(policies, ropes, strict=True)] for _ in "ab"
        )
        sizes = [max(cache.slots, ROOM + SLACK) for cache in self.shared]
        buffers = [torch.zeros(1, KV_HEADS, sum(sizes), WIDTH, dtype=dtype, device=device) for _ in range(3)]
        self.buffers = Buffers(*(buffer[0] for buffer in buffers))
        self.first = [sum(sizes[:number]) for number in range(len(sizes))]
        for cache, first, size in zip(self.shared, self.first, sizes, strict=True):
            cache.slots = size
            cache._keys, cache._values = (buffer[:, :, first : first + size] for buffer in buffers[:2])
            cache._raw = buffers[2][:, :, first : first + cache._raw.shape[2]]
        self.random = [torch.Generator().manual_seed(number) for number in range(len(asked))]

    def _drawn(self, heads: int, counts: dict[int, int]) -> Tensor:
        shape = self.alone[0].shape
        drawn = [
            torch.randn(heads, count, WIDTH, generator=self.random[number], dtype=torch.float64)
            for number, count in counts.items()
        ]
        return torch.cat(drawn, 1).to(shape.device, shape.dtype)

    def step(self, counts: dict[int, int]) -> tuple[VarlenStep, Tensor, Tensor]:
        """So many rows of some sequences: their plan, its result [heads, n, width] and the engine's."""
        q, k, v = (self._drawn(heads, counts) for heads in (HEADS, KV_HEADS, KV_HEADS))
        parts = [[*counts], *(x.split([*counts.values()], 1) for x in (q, k, v))]
        expected = [self._alone(*part) for part in zip(*parts, strict=True)]
        for number, count in counts.items():
            self.shared[number].begin(count)
        plan = planned([Member.of(self.shared[number], self.first[number]) for number in counts])
        assert self.alone[0].rope is not None
        found = attended(plan.to(q.device), self.buffers, self.alone[0].rope, q, k, v, SCALE)
        for number in counts:
            self.shared[number].end()
        return plan, found, torch.cat(expected, 1)

    def _alone(self, number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        cache = self.alone[number]
        cache.begin(q.shape[1])
        out = attend(cache, 0, q, k, v, SCALE)
        cache.end()
        return out


def check(plan: VarlenStep) -> None:
    """Every call is one that torch's own description allows."""
    for stage in plan.stages:
        for call in stage.calls:
            queries, starts, used = call.cu_seq_q.tolist(), call.cu_seq_k.tolist(), call.seqused_k.tolist()
            assert (starts[0], starts[-1]) == (0, call.hi - call.lo) and queries[-1] == len(call.rows)
            assert all(0 < keys <= end - start for keys, (start, end) in zip(used, pairwise(starts), strict=True))
            assert max(used) == call.max_k and max(b - a for a, b in pairwise(queries)) == call.max_q
            assert {x.dtype for x in (call.cu_seq_q, call.cu_seq_k, call.seqused_k)} == {torch.int32}


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", POLICIES)
def test_a_plan_attends_as_the_engine_does(name: str):
    rows = Together([POLICIES[name]])
    for count in (13, 1, 1, 30, 1, 7, 1, 1, 1):
        plan, found, expected = rows.step({0: count})
        check(plan)
        same(found, expected)


@given(
    asked=st.lists(any_policy(), min_size=2, max_size=4),
    steps=st.lists(st.lists(st.sampled_from([0, 1, 1, 2, 5, 17]), min_size=4, max_size=4), min_size=1, max_size=6),
)
@trying(max_examples=150)
def test_a_step_of_mixed_rows_attends_as_each_does_alone(asked, steps):
    rows = Together(asked)
    for counts in steps:
        some = {number: count for number, count in enumerate(counts[: len(asked)]) if count}
        if some:
            plan, found, expected = rows.step(some)
            check(plan)
            same(found, expected)


def test_tokens_of_all_policies_are_read_by_one_call():
    rows = Together([*POLICIES.values()])
    every = dict.fromkeys(range(len(POLICIES)), 1)
    rows.step({number: 40 + number for number in every})
    for _ in range(20):
        plan, found, expected = rows.step(every)
        assert [len(stage.calls) for stage in plan.stages] == [1]
        assert plan.stages[0].calls[0].window == (-1, -1) and len(plan.parts) <= 4
        same(found, expected)


@pytest.mark.parametrize(
    ("name", "calls"),
    [("plain", [1]), ("window", [1, 1]), ("dynamic", [1, 1]), ("self-extend", [1, 1]), ("rerope", [1, 1])],
)
def test_a_chunk_far_into_a_text_takes_few_calls(name: str, calls: list[int]):
    rows = Together([POLICIES[name]] * 3)
    rows.step(dict.fromkeys(range(3), 60))
    plan, found, expected = rows.step({0: 40, 1: 25, 2: 33})
    assert [len(stage.calls) for stage in plan.stages] == calls
    same(found, expected)


def test_a_row_is_the_same_to_the_last_bit_whichever_are_beside_it():
    names = ["dynamic + window", "dual chunk", "plain", "window, near limit"]
    many, alone = Together([POLICIES[name] for name in names]), Together([POLICIES[names[0]]])
    for mine, others in ((23, {1: 40}), (1, {1: 1, 2: 5, 3: 1}), (9, {}), (1, {2: 1, 3: 1}), (1, {1: 30})):
        _, found, _ = many.step({0: mine} | others)
        assert torch.equal(found[:, :mine], alone.step({0: mine})[1])


def test_a_plan_knows_no_device_and_can_be_sent():
    rows = Together([POLICIES["dynamic + window"], POLICIES["rerope"]])
    for counts in ({0: 30, 1: 20}, {0: 1, 1: 1}):
        plan = rows.step(counts)[0]
        again = pickle.loads(pickle.dumps(plan))
        assert all(torch.equal(a, b) for a, b in zip(tensors(plan), tensors(again), strict=True))
        assert {tensor.device for tensor in tensors(plan)} == {CPU}


def test_torch_takes_the_calls_and_answers_in_the_shapes_of_the_reference():
    """By the operation's own description of itself, which computes nothing: kernels are a GPU's."""
    rows = Together([POLICIES["dynamic + window"], POLICIES["plain"]])
    for counts in ({0: 30, 1: 20}, {0: 1, 1: 1}):
        for call in (call for stage in rows.step(counts)[0].stages for call in stage.calls):
            q = torch.empty(len(call.rows), HEADS, WIDTH)
            k = v = torch.empty(call.hi - call.lo, KV_HEADS, WIDTH)
            given = (call.cu_seq_q, call.cu_seq_k, call.max_q, call.max_k)
            how = {"scale": SCALE, "window_size": call.window, "enable_gqa": True, "seqused_k": call.seqused_k}
            mean, lse = dense(q, k, v, *given, **how)
            meta = [x.to("meta") if isinstance(x, Tensor) else x for x in (q, k, v, *given)]
            how["seqused_k"] = call.seqused_k.to("meta")
            found = varlen_attn(*meta, **how, num_splits=1, return_aux=AuxRequest(lse=True))
            assert [x.shape for x in found] == [mean.shape, lse.shape]


def test_keys_without_rotation_are_refused():
    cache = FramedCache(Shape(1, KV_HEADS, WIDTH, torch.float64, CPU), policy_of(POLICIES["plain"]), None, ROOM)
    cache.begin(3)
    with pytest.raises(Refused, match="choose a model with RoPE"):
        planned([Member.of(cache)])


def tensors(plan: object) -> list[Tensor]:
    """All of a plan's."""
    if isinstance(plan, Tensor):
        return [plan]
    parts = plan if isinstance(plan, tuple) else vars(plan).values() if hasattr(plan, "__dict__") else ()
    return [tensor for part in parts for tensor in tensors(part)]
