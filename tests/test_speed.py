"""What the speed bench counts beside time: bytes of the cache, keys rotated for a token, memory; and its rounds."""

import json
from types import SimpleNamespace

import pytest
import torch
from policies import asking
from reading import loaded, run

from app import bench as app_bench
from backend.evaluation.bench import timing, ways
from backend.evaluation.bench.timing import Bench, Case, Found, Stepping
from backend.evaluation.experiments import constant_cost, experiments
from backend.inference.model_runner import Runner
from backend.positions import LambdaWindow, Plain, policy_of
from backend.record import provenance as machine
from backend.record.provenance import PeakMemory
from backend.settings import Watch


@pytest.fixture
def bench(monkeypatch) -> Bench:
    monkeypatch.setattr(timing, "NEAR", (2, 3))
    text = torch.randint(3, 100, (64,), generator=torch.Generator().manual_seed(1))
    return Bench(text, copy=1e9, products={torch.float32: 1e12}, tokens=4)


@pytest.fixture
def small(tiny, monkeypatch) -> SimpleNamespace:
    """Tiny models in place of the embedded one and of transformers' own."""

    def reference(precision, eager=False):
        return tiny("llama", attn_implementation="eager" if eager else "sdpa")

    monkeypatch.setattr(ways, "reference", reference)
    return SimpleNamespace(load=lambda name, precision="bf16": loaded(tiny("llama"), precision))


@pytest.mark.scale
@pytest.mark.parametrize(
    "asked, rotations", [({}, 1), ({"window": 12, "sinks": 2}, 1), ({"pic": "dynamic", "ratio": 4}, 2)]
)
def test_the_engine_rotates_as_many_keys_for_a_token_however_long_the_text(tiny, bench, asked, rotations):
    runner = run(tiny("llama"))
    policy = policy_of(asking(**asked))
    case = Case("engine", lambda: ways.engine_readers(runner, policy), runner)
    rows = [bench.compare(n, [case])[0] for n in (32, 64)]
    assert [row.rotations for row in rows] == [rotations] * 2
    assert all(row.cache == ways.engine_readers(runner, policy)[""].held() for row in rows)


@pytest.mark.scale
def test_algorithm_1_rotates_all_keys_for_a_token_and_transformers_one(tiny, bench):
    model, policy = tiny("llama"), policy_of(asking(pic="dynamic", ratio=4))
    again = Case("again", lambda: ways.algorithm1_readers(model, policy, bench.room(64)), model)
    plain, again = bench.compare(32, [ways.generate_case("fp32", model, 32), again])
    written = 3 * (timing.WARM + bench.tokens)
    assert again.rotations == 32 + timing.WARM + (written + 1) / 2
    config = model.config
    assert plain.rotations == 1
    assert plain.cache == 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 32 * 4


@pytest.mark.parametrize("window", [None, 12])
def test_operations_of_reading_are_those_of_the_weights_and_of_what_each_token_sees(tiny, bench, window):
    model = tiny("llama")
    policy = Plain() if window is None else LambdaWindow(window=window, sinks=2, limit=window)
    runner = run(model)
    row = bench.compare(32, [Case("engine", lambda: {"": ways.engine_reader(runner, policy)}, runner)])[0]
    layers = sum(p.numel() for p in model.model.layers.parameters()) + model.model.norm.weight.numel()
    seen = [min(t + 1, 32 if window is None else window + 2) for t in range(32)]
    config = model.config
    sees = 4 * config.num_hidden_layers * config.num_attention_heads * config.head_dim * sum(seen) / 32
    assert row.read_operations == pytest.approx(2 * layers + sees)
    assert row.arithmetic == pytest.approx(row.read_operations * row.prefill / 1e12)


def test_generate_goes_on_from_its_cache_by_exactly_so_many_tokens(tiny, bench):
    model = tiny("llama")
    reader = timing.Generating(model)
    reader.read(bench.text[:32])
    reader.write(3)
    reader.write(5)
    at_once = model.generate(bench.text[None, :32], max_new_tokens=9, min_new_tokens=9, do_sample=False)[0]
    assert reader.ids.tolist() == at_once.tolist()
    assert reader.rotations() == 32 + 8


def test_probes_are_read_with_too(tiny, bench):
    """A long context by chunks, of whose rows some are looked at."""
    runner = run(tiny("llama"))
    looked = []
    probe = runner.probe(Watch())
    probe.prefilled = lambda: looked.append("rows")
    probe.decoded = lambda: looked.append("token")
    reader = ways.engine_reader(runner, Plain(), probe)
    reader.read(bench.text.repeat(40))
    reader.write(2)
    assert looked == ["rows"] * 5 + ["token"] * 2


def test_all_ways_write_by_turns_to_and_fro(bench):
    order = []

    def readers(case):
        def step(way, ids):
            if len(ids) == 32:
                order.append(f"{case}{way} reads")
            elif not order or order[-1] != case + way:
                order.append(case + way)
            return torch.eye(9)[3]

        return {w: Stepping(lambda ids, w=w: step(w, ids), lambda: 0, lambda: 0) for w in ("", ", probes")}

    model = torch.nn.Linear(1, 1)
    model.config = SimpleNamespace(num_hidden_layers=1, num_key_value_heads=1, head_dim=1)
    model.dtype, model.device = torch.float32, torch.device("cpu")
    bench._measure(32, [Case("a", lambda: readers("a"), model)], 3, found := {})
    turns = [turn for turn in order if "reads" not in turn]
    assert [turn for turn in order if "reads" in turn] == ["a reads", "a, probes reads"]
    # After reading each writes a little; a round ends with whom the next begins.
    assert turns == ["a", "a, probes", "a", "a, probes", "a", "a, probes"]
    assert [len(one.decode) for one in found.values()] == [3, 3]


def test_gain_and_cost_compare_within_a_round(bench, tiny):
    model = tiny("llama")
    theirs, plain, probed = (
        Found(Case(name, dict, model), prefill=[5.0], decode=rates, written=1)
        for name, rates in (
            ("transformers", [1.0, 2.0, 4.0]),
            ("engine", [10.0, 40.0, 20.0]),
            ("engine", [9.0, 20.0, 19.0]),
        )
    )
    row = bench._row("engine, probes", 32, probed, plain, theirs)
    assert row.decode_rounds == [9.0, 20.0, 19.0] and row.decode == 19.0
    assert row.gain == 9.0 and row.cost == pytest.approx(0.1)
    assert bench._row("engine", 32, plain, plain, None).gain is None
    assert bench._row("engine", 32, plain, plain, theirs).cost is None


def test_a_round_is_timed_after_some_tokens_to_warm_up(bench, monkeypatch):
    clock = iter([0, 2])
    monkeypatch.setattr(machine.time, "perf_counter", lambda: next(clock))
    model = SimpleNamespace(device=torch.device("cpu"))
    read, found = Stepping(lambda ids: torch.eye(9)[3], lambda: 0, lambda: 0), Found(Case("a", dict, model))
    read.token = torch.tensor(1)
    found.write(read, 4)
    assert found.decode == [2] and found.written == 4 + timing.WARM


def test_memory_is_ones_own_peak_above_what_was_there_before():
    def peak(size):
        with PeakMemory() as found:
            torch.ones(size, dtype=torch.uint8)
        return found.bytes / 2**20

    first, held = peak(200 * 2**20), torch.ones(300 * 2**20, dtype=torch.uint8)
    second = peak(50 * 2**20)
    assert 190 < first < 230 and 40 < second < 80
    del held


def test_attentions_are_left_out_where_they_do_not_fit(embedded):
    (left,) = ways.left_out(embedded.model.config)
    assert left["context"] == 8192 and "36 GB" in left["why"]


@pytest.mark.scale
def test_the_whole_bench_on_tiny_models_is_shown(small, bench, monkeypatch):
    monkeypatch.setattr(timing, "NEAR", (2, 1))
    monkeypatch.setattr(app_bench, "CONTEXTS", (16,))
    monkeypatch.setattr(app_bench, "LONG", (24, 32))
    monkeypatch.setattr(app_bench, "LONGEST", {"transformers": 32, "engine": 24})
    monkeypatch.setattr(timing, "begun", lambda text, tokens, report: (bench, {"commit": "x"}))
    result = app_bench.measured(small, 4)
    short = {(row["case"], row["context"]): row for row in result["short"]}
    assert {case for case, _ in short} == {
        "transformers bf16", "transformers fp32", ways.SEEING,
        *(f"engine {name}{way}" for name in ("bf16", "fp32", "int8", "int4") for way in ("", ", probes")),
    }  # fmt: skip
    assert len(short) == 11
    for (case, n), row in short.items():
        assert row["prefill"] > 0 and len(row["decode_rounds"]) == 2 and row["gain"] > 0
        assert (row["cost"] is not None) == case.endswith("probes")
        if case.endswith("probes"):
            assert row["prefill"] != short[case.removesuffix(", probes"), n]["prefill"]
    assert [(row["case"], row["context"]) for row in result["long"]] == [
        ("transformers bf16", 24), ("engine bf16", 24), ("engine bf16, Λ 2048", 24),
        ("transformers bf16", 32), ("engine bf16, Λ 2048", 32),
    ]  # fmt: skip
    result["left_out"] = [{"case": ways.SEEING, "context": 8192, "why": "36 GB"}]
    result["page"] = {
        "written": 4,
        "prompt_tokens": 37,
        "tokens_per_second": {"engine": 2.0},
        "cost": {"engine": 0.0},
        "further": [{"written": 2, "prompt_tokens": 8190, "tokens_per_second": {"page": 1.5}, "cost": {"page": 0.25}}],
    }
    page = experiments["decode_speed"].card({"bench.json": json.loads(json.dumps(result))}).text
    assert f"Left out after 8,192 tokens: {ways.SEEING} (36 GB)." in page
    assert "8,190" in page and "1.50" in page and "without intervals, and not compared" in page
    assert all(f"{context}" in page for context in (16, 24, 32)) and "engine bf16, Λ 2048" in page


def test_lengths_are_set_beside_the_shortest_by_rounds(small):
    runner = Runner(small.load("embedded", "fp32"))
    text = torch.randint(3, 100, (2560,), generator=torch.Generator().manual_seed(0))
    said: list[str] = []
    first, far = constant_cost.rows(runner, text, 64, [1536, 2560], 2, said.append)
    assert said == ["window 64: 1,536 tokens read", "window 64: 2,560 tokens read"]
    assert (first["context"], far["context"], len(far["reading"]), len(far["writing"])) == (1536, 2560, 2, 2)
    assert first["cache"] > 0
    level = experiments["constant_cost"].card({"flatness.json": {"rows": [first, far]}}).text
    assert "| 64 | 1,536 |" in level and "| 64 | 2,560 |" in level and f"{first['cache'] / 2**20:.1f} MiB" in level
