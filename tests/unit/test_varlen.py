"""A step of several sequences as calls of variable-length attention: the same numbers as the engine's own attention."""
from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from conftest import FAMILIES
from hypothesis import given
from hypothesis import settings as trying
from hypothesis import strategies as st
from policies import POLICIES, any_policy
from reading import IDS, loaded, rows, run
from several import CPU, HEADS, KV_HEADS, ROOM, SCALE, WIDTH, Several
from torch import Tensor
from transformers import PreTrainedModel

from backend.inference.kv_cache import FramedCache, Shape
from backend.inference.model_runner import Runner, runner
from backend.inference.varlen_attention import dense, kernel
from backend.inference.varlen_plan import Member, VarlenStep, planned
from backend.positions import policy_of
from backend.refused import Refused
from backend.settings import Watch


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
    several = Several([POLICIES[name]])
    for count in (13, 1, 1, 50, 1, 7, 1, 1, 1):
        plan, found, expected = several.step({0: count})
        check(plan)
        same(found, expected)


@given(
    asked=st.lists(any_policy(), min_size=2, max_size=4),
    steps=st.lists(st.lists(st.sampled_from([0, 1, 1, 2, 5, 17]), min_size=4, max_size=4), min_size=1, max_size=6),
)
@trying(max_examples=80)
def test_a_step_of_mixed_rows_attends_as_each_does_alone(asked, steps):
    several = Several(asked)
    for counts in steps:
        some = {number: count for number, count in enumerate(counts[: len(asked)]) if count}
        if some:
            plan, found, expected = several.step(some)
            check(plan)
            same(found, expected)


def test_tokens_of_all_policies_are_read_by_one_call():
    several = Several([*POLICIES.values()])
    every = dict.fromkeys(range(len(POLICIES)), 1)
    several.step({number: 40 + number for number in every})
    for _ in range(20):
        plan, found, expected = several.step(every)
        assert [len(stage.calls) for stage in plan.stages] == [1]
        assert plan.stages[0].calls[0].window == (-1, -1) and len(plan.parts) <= 4
        same(found, expected)


@pytest.mark.parametrize(
    ("name", "calls"),
    [("plain", [1]), ("window", [1, 1]), ("dynamic", [1, 1]), ("self-extend", [1, 1]), ("rerope", [1, 1])],
)
def test_a_chunk_far_into_a_text_takes_few_calls(name: str, calls: list[int]):
    several = Several([POLICIES[name]] * 3)
    several.step(dict.fromkeys(range(3), 60))
    plan, found, expected = several.step({0: 40, 1: 25, 2: 33})
    assert [len(stage.calls) for stage in plan.stages] == calls
    same(found, expected)


def test_a_row_is_the_same_to_the_last_bit_whichever_are_beside_it():
    names = ["dynamic + window", "dual chunk", "plain", "window, near limit"]
    many, alone = Several([POLICIES[name] for name in names]), Several([POLICIES[names[0]]])
    for mine, others in ((23, {1: 40}), (1, {1: 1, 2: 5, 3: 1}), (9, {}), (1, {2: 1, 3: 1}), (1, {1: 30})):
        _, found, _ = many.step({0: mine} | others)
        assert torch.equal(found[:, :mine], alone.step({0: mine})[1])


def test_a_plan_knows_no_device_and_can_be_sent():
    several = Several([POLICIES["dynamic + window"], POLICIES["rerope"]])
    for counts in ({0: 30, 1: 20}, {0: 1, 1: 1}):
        plan = several.step(counts)[0]
        again = pickle.loads(pickle.dumps(plan))
        assert all(torch.equal(a, b) for a, b in zip(tensors(plan), tensors(again), strict=True))
        assert {tensor.device for tensor in tensors(plan)} == {CPU}


def test_torch_takes_the_calls_and_answers_in_the_shapes_of_the_reference():
    """By the operation's own description of itself, which computes nothing: kernels are a GPU's."""
    several = Several([POLICIES["dynamic + window"], POLICIES["plain"]])
    for counts in ({0: 30, 1: 20}, {0: 1, 1: 1}):
        for call in (call for stage in several.step(counts)[0].stages for call in stage.calls):
            q = torch.empty(len(call.rows), HEADS, WIDTH)
            k = v = torch.empty(call.hi - call.lo, KV_HEADS, WIDTH)
            given = (call.cu_seq_q, call.cu_seq_k, call.max_q, call.max_k)
            how = {"scale": SCALE, "window_size": call.window, "enable_gqa": True, "seqused_k": call.seqused_k}
            mean, lse = dense(q, k, v, *given, **how)
            meta = [x.to("meta") if isinstance(x, Tensor) else x for x in (q, k, v, *given)]
            how["seqused_k"] = call.seqused_k.to("meta")
            found = kernel()(*meta, **how)
            assert [x.shape for x in found] == [mean.shape, lse.shape]


FEW = ("plain", "dynamic", "window, near limit", "dual chunk + window", "rerope", "yarn")


def both(family: str, tiny: Callable[..., PreTrainedModel]) -> tuple[Runner, Runner]:
    """Runners of the same weights: by the engine's own attention, and by plans."""
    return run(tiny(family).double()), Runner(loaded(tiny(family).double()), varlen=True)


@pytest.mark.parametrize(
    ("family", "name"),
    [(family, name) for family in FAMILIES for name in (FEW if family != "mpt" else ("plain", "window"))],
)
def test_a_model_reads_by_plans_as_without(family: str, name: str, tiny):
    own, by_plans = both(family, tiny)
    assert by_plans.varlen == (family != "mpt")
    asked, chunks = POLICIES[name], (20, 9)
    expected = rows(own, asked, IDS, chunks)
    torch.testing.assert_close(rows(by_plans, asked, IDS, chunks), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", FEW)
def test_probes_see_the_same_by_plans(name: str, tiny):
    seen, parts = [], (IDS[:20], *IDS[20:].split(1))
    for reader in both("llama", tiny):
        cache, probe = reader.cache(policy_of(POLICIES[name])), reader.probe(Watch())
        logits = [reader.read(IDS[:20], cache, probe)]
        found = [probe.prefilled()[0]]
        for token in IDS[20:].split(1):
            logits.append(reader.read(token, cache, probe))
            found.append(probe.decoded())
        seen.append((found, probe.logits(cache, 1, 2)))
        unseen = reader.cache(policy_of(POLICIES[name]))
        assert all(torch.equal(reader.read(part, unseen), a) for part, a in zip(parts, logits, strict=True))
    for mine, theirs in zip(seen[1][0], seen[0][0], strict=True):
        torch.testing.assert_close(torch.as_tensor(mine), torch.as_tensor(theirs), rtol=0, atol=1e-5)
    torch.testing.assert_close(torch.as_tensor(seen[1][1].mean), torch.as_tensor(seen[0][1].mean), equal_nan=True)


def test_a_prompt_under_one_frame_is_read_by_a_plan(tiny):
    own, by_plans = both("llama", tiny)
    expected = rows(own, POLICIES["dynamic"], IDS, (20,), whole_prompt=True)
    found = rows(by_plans, POLICIES["dynamic"], IDS, (20,), whole_prompt=True)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_the_flag_changes_nothing_on_a_cpu(monkeypatch, tiny):
    monkeypatch.setenv("LENGTH_LAB_VARLEN", "1")
    reader = runner(loaded(tiny("llama")))
    assert reader.fused is not None and not reader.varlen


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
