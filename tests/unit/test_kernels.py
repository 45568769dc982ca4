"""Compiled kernels against float64, and teams on several threads at once."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite.binding import Linkage
from reading import IDS, run

from backend.inference.kernels import attention, decoder, rows
from backend.inference.kernels.compiled import compiled, whole
from backend.inference.kernels.number import exp, stored, wide
from backend.inference.kernels.place import place
from backend.inference.kernels.place import stored as memory
from backend.inference.kernels.team import barrier, in_team, member_number, team_size
from backend.inference.kv_cache import FramedCache, Shape
from backend.inference.quantised_linear import Int4, Int8, Plain
from backend.positions import LambdaWindow
from backend.positions.dynamic_pic import DynamicPic
from backend.positions.plain import Plain as PlainPolicy
from backend.positions.rope import Rope

pytestmark = pytest.mark.usefixtures("two_threads")


@compiled
def _exponentials(x, out):
    for i in range(len(x)):
        out[i] = exp(x[i])


@compiled
def _there_and_back(x, kept, out):
    for i in range(len(x)):
        kept[i] = stored(x[i], kept)
        out[i] = wide(kept[i])


@compiled
def _attend(queries, keys, values, pieces, partial):
    attention.attend(member_number(), team_size(), queries, keys, values, pieces, partial)


@compiled
def _attended(members, queries, keys, values, pieces, partial, mean, entropy, lse):
    in_team(members, _attend, (queries, keys, values, pieces, partial))
    attention.merged(partial, len(partial.top), mean)
    attention.spread(partial, len(partial.top), entropy, lse)


@compiled
def _meet(seen):
    seen[member_number()] += 1
    barrier()
    if member_number() == 0:
        seen[len(seen) - 1] = team_size()


@compiled
def _met(members, seen):
    in_team(members, _meet, (seen,))


def test_exponentials_are_those_of_float64():
    x = np.linspace(-87, 88, 100_001, dtype=np.float32)
    found = np.empty_like(x)
    _exponentials(x, found)
    np.testing.assert_allclose(found, np.exp(x.astype(np.float64)), rtol=5e-7)
    edges = np.array([-np.inf, -1e30, 0], dtype=np.float32)
    found = np.empty_like(edges)
    _exponentials(edges, found)
    assert found[2] == 1 and (found[:2] < 2e-38).all()


@given(st.lists(st.floats(width=32, min_value=-(2.0**99), max_value=2.0**99), min_size=1, max_size=40))
@settings(deadline=None)
def test_bfloat16_is_rounded_as_torch_rounds_it(values: list[float]):
    x = np.array(values, dtype=np.float32)
    kept, found = np.empty(len(x), np.uint16), np.empty_like(x)
    _there_and_back(x, kept, found)
    assert np.array_equal(found, torch.from_numpy(x).bfloat16().float().numpy())
    _there_and_back(x, np.empty_like(x), found)
    assert np.array_equal(found, x)


# Of whole tiles too, which other processors multiply otherwise.
INPUTS = st.integers(1, 200) | st.integers(1, 6).map(lambda tiles: 32 * tiles)


@given(INPUTS, st.integers(1, 90), st.sampled_from([torch.float32, torch.bfloat16]), st.booleans(), st.data())
@settings(deadline=None, max_examples=90)
def test_products_are_those_of_float64(inputs: int, outputs: int, dtype: torch.dtype, biased: bool, data):
    """Vectors by the kernels are, up to rounding, the products of the weights that many rows meet, and to the last bit
    what each is alone."""
    random = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    weight = torch.randn(2, outputs, inputs, generator=random).to(dtype)
    bias = torch.randn(2, outputs, generator=random).to(dtype) if biased else None
    x = torch.randn(data.draw(st.integers(1, 40)), inputs, generator=random)
    for kind in (Plain, Int8, Int4):
        projection = kind(weight.clone(), bias)
        held = projection(1, torch.eye(inputs, dtype=dtype)).double()
        added = projection(1, torch.zeros(1, inputs, dtype=dtype)).double()
        wanted = (x.double() @ (held - added) + added[0]).numpy()
        found, alone = (np.empty(wanted.shape, np.float32) for _ in range(2))
        only = type(projection.kernel)(*(part[1:] for part in projection.kernel))
        decoder.logits(data.draw(st.integers(1, 3)), only, x.numpy(), found)
        for row in range(len(x)):
            decoder.logits(data.draw(st.integers(1, 3)), only, x[row : row + 1].numpy(), alone[row : row + 1])
        assert np.array_equal(found, alone)
        exact = (kind is Plain and not biased) or dtype == torch.float32
        np.testing.assert_allclose(found, wanted, rtol=0, atol=(1e-5 if exact else 0.02) * (1 + np.abs(wanted).max()))


@st.composite
def cut(draw) -> list[tuple[int, int, int]]:
    """Disjoint pieces (first slot, end, group) in any order of groups, at least one key in all."""
    ends = sorted(draw(st.lists(st.integers(0, 300), min_size=2, max_size=6, unique=True)))
    return [(lo, hi, draw(st.integers(0, 1))) for lo, hi in zip(ends[::2], ends[1::2], strict=False)]


@given(
    cut(),
    st.sampled_from([(1, 1), (1, 3), (3, 3), (2, 5), (4, 1)]),
    st.sampled_from([16, 48, 64]),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.integers(1, 4),
    st.floats(0.1, 30),
)
@settings(deadline=None, max_examples=80)
def test_attention_is_that_of_float64(pieces, heads: tuple[int, int], width: int, dtype, members: int, sharp: float):
    kv_heads, each = heads
    random = torch.Generator().manual_seed(1)
    keys, values = (torch.randn(kv_heads, 300, width, generator=random).to(dtype) for _ in range(2))
    queries = torch.randn(2, kv_heads * each, width, generator=random) * sharp
    seen = [queries[g].view(kv_heads, each, width).double() @ keys[:, a:b].double().mT for a, b, g in pieces]
    scores = torch.cat(seen, -1) * width**-0.5
    weights = scores.softmax(-1)
    wanted = weights @ torch.cat([values[:, a:b] for a, b, _ in pieces], 1).double()
    count = kv_heads * each
    partial = attention.Partial(*(np.empty((members, count, *rest), np.float32) for rest in ((), (), (), (width,))))
    mean, entropy, lse = (np.empty((count, *rest), np.float32) for rest in ((width,), (), ()))
    stores = memory(keys), memory(values)
    _attended(members, queries.numpy(), *stores, np.array(pieces, dtype=np.int64), partial, mean, entropy, lse)
    np.testing.assert_allclose(mean, wanted.reshape(count, width).numpy(), rtol=0, atol=1e-4)
    np.testing.assert_allclose(entropy, torch.special.entr(weights).sum(-1).flatten().numpy(), rtol=0, atol=2e-4)
    np.testing.assert_allclose(lse, scores.logsumexp(-1).flatten().numpy(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype, most", [(torch.float32, 1e-6), (torch.bfloat16, 0.02)])
def test_a_written_key_and_the_moved_ones_stand_where_torch_puts_them(dtype: torch.dtype, most: float, tiny):
    """The same tokens through `FramedCache.write` and `move`, and through the kernel."""
    rope = Rope.of(tiny("llama").config)
    shape = Shape(1, 2, 16, dtype, torch.device("cpu"))
    policy = LambdaWindow(DynamicPic(3.0, 3, 5), 12, 3, 6.0)
    ours, theirs = FramedCache(shape, policy, rope, 8), FramedCache(shape, policy, rope, 8)
    random = torch.Generator().manual_seed(0)
    moved = 0
    for _ in range(40):
        k, v = (torch.randn(2, 16, generator=random).to(dtype) for _ in range(2))
        theirs.begin(1)
        theirs.write(0, k[:, None], v[:, None])
        for group in policy.groups:
            theirs.move(0, group)
        theirs.end()
        ours.begin(1)
        where = place(ours)
        attention.write(0, k.float().numpy(), v.float().numpy(), attention.Past(*map(memory, ours.buffers)), where)
        moved += len(where.moved)
        ours.end()
        for a, b in zip(ours.buffers, theirs.buffers, strict=True):
            torch.testing.assert_close(a, b, rtol=most, atol=most)
    assert moved > 20 and torch.equal(ours.buffers[2], theirs.buffers[2])


@pytest.mark.parametrize("members", [1, 2, 5])
def test_every_member_of_a_team_takes_part(members: int):
    seen = np.zeros(members + 1)
    _met(members, seen)
    assert seen.tolist() == [1.0] * members + [members]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads_writes_the_same_logits(threads: int, tiny):
    model = tiny("llama")
    own = model(IDS[None]).logits[0]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        runner = run(model)
        cache = runner.cache(PlainPolicy())
        found = torch.stack([runner.read(token, cache) for token in IDS.split(1)])
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(found, own, rtol=1e-4, atol=1e-3)


def test_teams_of_two_threads_do_not_meet(tiny):
    """Two Python threads decode at once and each writes what it writes alone."""
    runner = run(tiny("qwen3"))

    def read() -> torch.Tensor:
        cache = runner.cache(PlainPolicy())
        return torch.stack([runner.read(token, cache) for token in IDS.split(1)])

    alone, found, begin = read(), [[], []], threading.Barrier(2)

    def work(index: int) -> None:
        begin.wait()
        found[index] = [read() for _ in range(5)]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(alone, each) for both in found for each in both) and len(found[1]) == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [2, 7])
def test_rows_are_normed_and_gated_as_torch_does(dtype, count):
    draw = torch.Generator().manual_seed(count)
    x, weight = (torch.randn(shape, generator=draw).to(dtype) for shape in ((count, 96), (96,)))
    out = torch.empty_like(x)
    rows.normed(2, memory(x), memory(weight), np.float32(1e-5), memory(out))
    wide = x.float()
    expected = weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)).to(dtype)
    tight = {"atol": 1e-6, "rtol": 1e-6} if dtype == torch.float32 else {"atol": 0, "rtol": 2**-7}
    torch.testing.assert_close(out, expected, **tight)
    gated = torch.empty(count, 48, dtype=dtype)
    rows.gated(2, memory(x), memory(gated))
    torch.testing.assert_close(gated, F.silu(x[:, :48]) * x[:, 48:], **tight)


def test_machine_code_calls_its_own_copies_of_what_it_is_made_of_and_lends_none():
    """Else the process that compiles calls those that it compiled each for itself, and sums in another order than all
    later ones, which take the code from the disk; or others call a copy that takes its arguments in its own way.
    """

    @compiled
    def deep(x, unused, most):
        return x[0] if most == 0 else x[most] + deep(x, unused, most - 1)

    @whole
    def called(x):
        return deep(x, 3, len(x) - 1)

    @compiled
    def other(x):
        return deep(x, 3, len(x) - 1)

    x = np.arange(5, dtype=np.float32)
    assert called(x) == other(x) == 10
    [made] = called.overloads.values()
    inside = [function for function in made.library.get_defined_functions() if "deep" in function.name]
    assert inside and all(function.linkage == Linkage.private for function in inside)
