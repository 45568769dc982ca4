"""Charts are pure functions of what a run yielded: bounded, serialisable, true to the numbers, and said in words."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from app import charts, live, page, plans, presets
from app.charts import live_charts, shown
from app.charts.base import Chart, LiveChart, Tab, encode, figure
from app.charts.drawing import room
from app.charts.length import EARLIER
from app.charts.palette import PALETTES, resolve
from app.charts.states import table
from app.runs import Runs
from app.series import PastRun, RunSeries, pick, sample
from app.steering import unwrapped
from app.tabs.try_it import NAMES
from app.text import pieces
from app.view import View
from backend.engine import Lab
from backend.evaluation.perplexity import Chunk
from backend.measures.plane import plane_of
from backend.methods import methods
from backend.methods.signal import signal_methods
from backend.models.adapters import available
from backend.record.trace import Trace
from backend.registry import Registry
from backend.settings import RunSettings, Watch, counted
from backend.steps import Finish, Logits, Reading, Step, TriedEnding
from backend.text.units import length, tolerance

LAYERS, HEADS, WIDTH, PROMPT = 6, 3, 16, 40
SOURCE = ("A", " fast", " rea", "der<b>", "</s>")


def step(index: int, text: str = " word", goal: int | None = 100, rng: np.random.Generator | None = None) -> Step:
    rng = rng or np.random.default_rng(index)
    context = PROMPT + index - 1
    reading = None
    if index == 1:
        rows = np.arange(0, PROMPT, 4)
        reading = Reading(
            PROMPT,
            0.1,
            rows,
            np.full((len(rows), LAYERS, HEADS), 0.5),
            rows + 1,
            rng.normal(size=(len(rows), WIDTH)).astype(np.float16),
        )
    logits = Logits(
        2,
        1,
        np.array([0.0, 3.0, 40.0]),
        np.array([3.0, 1.0, -2.0]),
        np.array([2.0, 0.0, -4.0]),
        np.array([4.0, 2.0, 0.0]),
        np.linspace(-3, 3, HEADS)[:, None] + np.array([3.0, 1.0, -2.0]),
    )
    return Step(
        index=index, token=index, text=text, p=0.5, p_eos=0.01, spread=1.2, context=context, attended=context,
        goal=goal, wanted=goal, remaining=None if goal is None else goal - index, seconds=index / 50, reading=reading,
        logits=logits if index % 4 == 1 else None, state=rng.normal(size=WIDTH).astype(np.float16),
        entropy=np.linspace(0.2, 0.9, LAYERS)[:, None] * np.full(HEADS, math.log(context)),
        sink_share=np.linspace(0.2, 0.8, LAYERS), looked=np.array([0.1, 0.2, 0.3, 0.3, 0.1]),
        source=SOURCE if index == 1 else None,
    )  # fmt: skip


def finish(tokens: int, error: int | None) -> Finish:
    return Finish("eos", " word" * tokens, tokens, tokens, 5 * tokens, error, PROMPT, 0.1, tokens / 50, 50.0, 1 << 20)


def run(
    tokens: int, method: str = "exp_decay", done: bool = True, name: str = "", past: Sequence[PastRun] = (), **settings
) -> RunSeries:
    chosen = RunSettings(prompt="p", method=method, watch=Watch(layer=2), **settings)
    goal = 100 if method != "none" else None
    events: list[Step | Finish] = [step(i, goal=goal) for i in range(1, tokens + 1)]
    if done:
        events.append(finish(tokens, None if goal is None else tokens - goal))
    return RunSeries.of(chosen, events, name=name, past=past, training_length=8192)


def chunk(position: int, tokens: int = 512) -> Chunk:
    rng = np.random.default_rng(position)
    states, positions = rng.normal(size=(4, WIDTH)).astype(np.float16), np.arange(position - 4, position)
    entropy = np.full((LAYERS, HEADS), 1.5, np.float32)
    nll = np.full(tokens, 2.0, np.float32)
    return Chunk(
        position, nll, 1.0, 100.0, position * 1024, entropy, position, step(1).logits, states, positions,
        np.linspace(0.2, 0.8, LAYERS),
    )


def text(chunks: int, name: str = "Plain", **settings) -> RunSeries:
    """A text of 512 tokens a chunk that was read so far."""
    series = RunSeries(RunSettings(prompt="p", **settings), name, training_length=8192, to_read=65_536)
    for number in range(1, chunks + 1):
        series.add(chunk(512 * number, 512 - (number == 1)))
    return series


def drawn(name: str, *runs: RunSeries) -> Chart:
    return live_charts[name].draw(runs)


def recorded(*names: str) -> list[RunSeries]:
    """The recorded runs, under a name each."""
    traces = presets.recorded().values()
    return [RunSeries.of(trace.settings, trace.events(), name=name) for name, trace in zip(names, traces, strict=False)]


# Two sentences, and the target that was asked for by the end of each token.
SENTENCES = [("Wait", 100), (".", 100), (" Go", 100), (".", 4)]
# What a tab hands to its charts: before anything ran, after the first step, in the middle, and whole.
RUNS: dict[str, list[Callable[[], list[RunSeries]]]] = {
    "try": [
        lambda: [run(0, done=False, name=name) for name in NAMES],
        lambda: [run(tokens, done=False, name=name) for tokens, name in enumerate(NAMES)],
        lambda: [run(60, done=False, name="Asked"), run(9, name="Steered")],
        lambda: [RunSeries.of(t.settings, t.events(), name=n) for n, t in zip(NAMES, presets.opening(), strict=True)],
    ],
    "generate": [
        lambda: [run(0, done=False)],
        lambda: [run(1, done=False)],
        lambda: [run(50, "ldpe", done=False, window=64)],
        lambda: recorded(""),
    ],
    "compare": [
        lambda: [run(0, done=False, name=name) for name in "ABCD"],
        lambda: [run(tokens, done=False, name=name) for tokens, name in enumerate("ABC")],
        lambda: [run(60, done=False, name="A"), run(9, name="B", pic="naive", ratio=4, window=64)],
        lambda: recorded("A", "B", "C"),
    ],
    "long": [
        lambda: [text(0)],
        lambda: [text(1)],
        lambda: [text(7), text(3, "Λ", window=64), text(0, "Naive PIC × 4", pic="naive", ratio=4)],
        lambda: [text(128), text(128, "Λ", window=64)],
    ],
}
LONGER: dict[str, Callable[[int], list[RunSeries]]] = {
    "try": lambda tokens: [run(tokens, name=name) for name in NAMES],
    "generate": lambda tokens: [run(tokens)],
    "compare": lambda tokens: [run(tokens, name="A"), run(tokens, name="B")],
    "long": lambda tokens: [text(tokens // 8)],
}


SHOWN = [(chart, tab) for chart in live_charts for tab in chart.tabs]
of_every_chart = pytest.mark.parametrize(
    "chart, tab", SHOWN, ids=[f"{chart.name} on {tab}" for chart, tab in SHOWN]
)


def numbers(value: Any) -> Iterator[float]:
    """Every number within what a chart is made of."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, np.ndarray):
        yield from np.asarray(value, np.float64).ravel().tolist()
    elif isinstance(value, list | tuple):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, int | float | np.number):
        yield float(value)


@of_every_chart
def test_every_chart_tells_its_runs_in_words_and_in_a_table(chart, tab):
    for stage, runs in enumerate(make() for make in RUNS[tab]):
        made = chart.draw(runs)
        payload = json.loads(encode(made, 3, 7))
        assert payload["run"] == "3" and payload["frame"] == 7
        assert payload["summary"].endswith(".") and payload["summary"][0] == payload["summary"][0].upper()
        assert all(len(row) == len(payload["columns"]) for row in payload["rows"])
        # No recorded run is of a model with an encoder.
        if stage == (2 if chart.seldom else 3) or chart.preview:
            assert payload["rows"] and made.data
        for place in (made.layout, made.rows, [trace["x"] for trace in made.data]):
            assert all(map(math.isfinite, numbers(place)))
        for trace in made.data:
            assert not any(map(math.isinf, numbers(trace.get("y", []))))


@of_every_chart
def test_a_payload_stays_small_however_long_the_run(chart, tab):
    small, large = (encode(chart.draw(LONGER[tab](tokens))) for tokens in (400, 6000))
    assert len(large) < 2.5 * len(small) + 4000 and len(large) < 80_000


@of_every_chart
def test_colour_names_exist_in_both_themes_and_resolve(chart, tab):
    for theme in PALETTES:
        assert '"@' not in json.dumps(resolve(json.loads(encode(chart.draw(RUNS[tab][-1]()))), theme))


def test_a_colour_may_be_seen_through():
    assert resolve("@c1/0.5", "light") == "rgba(0,114,178,0.5)"


def test_each_tab_shows_its_charts_in_order():
    ordered: dict[Tab, list[str]] = {
        "try": ["p_eos", "entropy", "logits"],
        "generate": ["length", "entropy", "logits", "sinks", "states", "positions", "mask"],
        "compare": ["length", "p_eos", "entropy", "logits", "sinks", "states", "positions"],
        "long": ["loglikelihood", "entropy", "logits", "sinks", "states", "throughput", "cache_memory"],
    }
    for tab, names in ordered.items():
        assert [chart.name for chart in shown(tab) if chart.name in names] == names


def test_one_file_adds_a_chart(tmp_path, monkeypatch):
    source = Path(charts.__file__).with_name("p_eos.py").read_text("utf-8")
    toy = source.replace('"p_eos"', '"toy"').replace('"Chance to end"', '"A toy"').replace('"compare":', '"generate":')
    (tmp_path / "toy.py").write_text(toy, "utf-8")
    monkeypatch.setattr(charts, "__path__", [*charts.__path__, str(tmp_path)])
    monkeypatch.setattr(charts, "live_charts", Registry("app.charts", LiveChart))
    try:
        demo = page.build(Lab(), available, Runs())
        (part,) = [part for part in demo.get_config_file()["components"] if part["props"].get("elem_id") == "chart-toy"]
        assert "<h3>A toy</h3>" in part["props"]["html_template"]
        view = View(RunSettings(prompt="p"))
        view.add([step(1), step(2)])
        assert json.loads(view.frame().parts["toy"])["summary"] == "This run at most 0.01, at token 1."
    finally:
        sys.modules.pop("app.charts.toy", None)


def test_the_page_s_script_knows_no_chart_by_name():
    told = re.findall(r".*(?:dataset\.name|data-name|#chart-|[Cc]hart\.name).*", live.script())
    assert told
    for chart in live_charts:
        assert not [line for line in told if re.search(rf"\b{chart.name}\b", line)], chart.name


def luminance(colour: str) -> float:
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", PALETTES)
@pytest.mark.parametrize(
    ("name", "least"), [("ink", 7.0), ("muted", 4.5), *((f"c{i}", 3.0) for i in range(1, 7))]
)
def test_contrast_is_enough_on_the_card(theme, name, least):
    bright, dark = sorted((luminance(PALETTES[theme][name]), luminance(PALETTES[theme]["paper"])), reverse=True)
    assert (bright + 0.05) / (dark + 0.05) >= least


def test_length_shows_target_error_and_predicted_stop():
    live = run(60, done=False)
    chart = drawn("length", live)
    names = [trace["name"] for trace in chart.data]
    assert names == ["p(end)", "tokens produced", "target"]
    assert chart.data[1]["x"] == [0, 60] and chart.data[2]["x"] == [100, 100, None]
    texts = [note["text"] for note in chart.layout["annotations"]]
    assert "40 tokens to go" in texts and "ends ≈ 159" in texts  # 60 + 0.99 / 0.01
    ended = drawn("length", run(97))
    assert any("<b>−3</b> tokens" in note["text"] for note in ended.layout["annotations"])
    assert "error −3" in ended.summary


def test_axes_leave_room_while_a_run_grows_and_fit_it_in_the_end():
    def axes(series: RunSeries) -> list[Any]:
        layouts = [drawn(name, series).layout for name in ("length", "entropy", "logits")]
        return [layout[axis].get("autorangeoptions") for layout in layouts for axis in ("xaxis", "yaxis")]

    fits = axes(run(60, done=False))
    assert fits == axes(run(61, done=False))
    assert fits[0]["include"] == [pytest.approx(150)] and fits[2]["include"] == [pytest.approx(PROMPT - 1 + 110)]
    assert axes(run(60))[::2] == [None] * 3


def test_the_logits_axis_never_shrinks_while_one_head_is_watched():
    series = RunSeries(RunSettings(prompt="p"))
    seen = []
    for head, low in ((1, -4.0), (1, -31.0), (1, -4.0), (0, -4.0)):
        last = step(1)
        series.add(replace(last, logits=replace(last.logits, head=head, low=np.array([2.0, 0.0, low]))))
        seen.append(drawn("logits", series).layout["yaxis"]["autorangeoptions"]["include"])
    assert seen == [[-10, 10], [-40, 10], [-40, 10], [-10, 10]]


@pytest.mark.parametrize(("number", "reached"), [(0, 512), (1, 512), (512, 512), (513, 2048), (5000, 8192)])
def test_room_grows_fourfold(number, reached):
    assert room(number) == reached


def test_the_runway_shows_sentence_ends_moved_targets_and_the_endings_that_landing_tried():
    events = [step(index, text, goal) for index, (text, goal) in enumerate(SENTENCES, start=1)]
    tried = (
        TriedEnding(" Go.", 4, True, True, 0.5, 0.5, 3.0, True),
        TriedEnding(" Stay.", 9, False, True, 0.5, 0.5, 3.0, False),
    )
    events[-1] = replace(events[-1], tried=tried)
    chosen = RunSettings(prompt="p", method="exp_decay")
    for series in (RunSeries.of(chosen, events), RunSeries.of(chosen, events, name="A")):
        several = "A: " if series.name else ""
        shown = {trace["name"].removeprefix(several): trace for trace in drawn("length", series).data}
        assert shown["sentence ends"]["x"] == [2, 2, None, 4, 4, None]
        assert shown["earlier targets"]["x"] == [100, 100, None] and shown["target"]["x"] == [4, 4, None]
    back = RunSeries.of(chosen, [*events, step(5, " Now", 100)])
    moved = {trace["name"]: trace for trace in drawn("length", back).data}
    assert moved["target"]["x"] == [100, 100, None] and moved["earlier targets"]["x"] == [4, 4, None]
    endings = {trace["name"]: trace for trace in drawn("length", RunSeries.of(chosen, events)).data}["endings tried"]
    assert endings["x"] == [4, 9] and endings["text"] == ["written", "too far from the target"]
    assert endings["marker"]["symbol"] == ["triangle-down", "triangle-down-open"]


def test_a_lane_keeps_its_place_and_its_name_while_another_has_not_begun():
    runs = [run(0, done=False, name="A"), run(9, done=False, name="B")]
    shown = drawn("length", *runs)
    axis = shown.layout["yaxis"]
    assert dict(zip(axis["ticktext"], axis["tickvals"], strict=True)) == {"A": 0, "B": -1}
    assert next(trace for trace in shown.data if trace["name"] == "B")["y"] == [-1, -1]
    assert not any(trace["name"].startswith("A") for trace in shown.data)


def test_all_heads_are_drawn_of_a_token_that_sees_itself_alone():
    last = step(1)
    series = RunSeries(RunSettings(prompt="p", window=1, sinks=0))
    one = {name: getattr(last.logits, name)[..., :1] for name in ("mean", "low", "high", "heads")}
    series.add(replace(last, logits=replace(last.logits, distance=np.array([0.0]), **one)))
    assert drawn("heads", series).data


def test_a_free_run_has_no_target():
    chart = drawn("length", run(30, method="none"))
    assert [trace["name"] for trace in chart.data] == ["p(end)", "tokens produced"]


def test_history_shows_earlier_runs_in_the_same_unit_only():
    past = (PastRun("run 1", "tokens", 90, 90, -10), PastRun("run 2", "words", 50, 40, 3))
    earlier = drawn("length", run(10, past=past)).data[-1]
    assert earlier["name"] == "earlier runs" and (earlier["x"], earlier["y"]) == ([90], [EARLIER])
    assert earlier["text"] == ["run 1, error −10"]


def test_entropy_is_under_its_ceiling_and_starts_in_the_prompt():
    series = run(40)
    chart = drawn("entropy", series)
    ceiling = chart.data[0]
    assert ceiling["x"][0] == 1 and ceiling["y"][-1] == pytest.approx(math.log(PROMPT + 39), abs=1e-3)
    for trace in chart.data[1:-1]:
        assert np.all(trace["y"][len(series.reading.positions) :] <= ceiling["y"][len(series.reading.positions) :])
    watched = next(trace for trace in chart.data if trace.get("name") == "layer 2")
    assert watched["line"]["width"] > 2


def test_shares_stand_where_they_were_recorded_after_steps_without_them():
    series = RunSeries(RunSettings(prompt="p"), training_length=8192)
    for index in range(1, 26):
        series.add(replace(step(index), sink_share=None) if index <= 20 else step(index))
    chart = drawn("sinks", series)
    assert [*chart.data[0]["x"]] == [PROMPT + index - 1 for index in range(21, 26)]
    assert chart.summary.startswith(f"At {PROMPT + 24} tokens 50% of attention is on the first 4; most in layer")


def test_logits_mark_training_length_and_cap():
    chart = drawn("logits", run(10, window=64))
    texts = [note["text"] for note in chart.layout["annotations"]]
    assert "trained 8,192" in texts and "cap 64" in texts
    assert chart.data[1]["x"][0] == 0.5  # distance 0 has a place on the logarithmic axis


def test_cross_attention_is_by_the_source_s_words():
    chart = drawn("cross_attention", run(30))
    assert chart.layout["yaxis"]["ticktext"] == ["A", "fast", "reader&lt;b&gt;&lt;/s&gt;"]
    assert np.allclose(chart.data[0]["z"], np.array([[0.1], [0.2], [0.7]]).repeat(30, axis=1))
    assert chart.summary.startswith("It looks most at “reader<b></s>” (70%), “fast” (20%), “A” (10%);")
    assert drawn("cross_attention", run(300)).data[0]["z"].shape[1] < 150
    assert not drawn("cross_attention", run(0, done=False)).data


def test_states_are_the_two_principal_components():
    series = run(50)
    positions, vectors, _ = table(series)
    chart = drawn("states", series)
    plane = np.concatenate([np.stack([trace["x"], trace["y"]], 1) for trace in chart.data])
    centred = vectors - vectors.mean(0)
    strongest = np.linalg.svd(centred, full_matrices=False)[1][:2]
    assert np.allclose(np.linalg.norm(plane, axis=0), strongest, atol=0.05)
    assert len(plane) == len(positions)


def test_a_state_stays_where_it_is_while_a_run_of_the_shipped_model_grows():
    trace = next(iter(presets.recorded().values()))
    plane = plane_of(trace.settings.model)
    events = list(trace.events())
    assert plane is not None
    charts_of = [drawn("states", RunSeries.of(trace.settings, events[:count])) for count in (12, 24, len(events))]
    names = ("novel: states", "prompt", "response")
    placed = [{each["name"]: np.stack([each["x"], each["y"]], 1) for each in chart.data} for chart in charts_of]
    for place in placed:
        assert tuple(place) == names and len(place["novel: states"]) == len(plane.cloud)
        assert np.array_equal(place["prompt"], placed[0]["prompt"])
    assert np.array_equal(placed[1]["response"][: len(placed[0]["response"])], placed[0]["response"])
    assert "fixed on 13,822 tokens of a novel" in charts_of[-1].summary


def test_states_of_another_width_have_a_plane_of_their_own():
    chart = drawn("states", run(50))
    assert [trace["name"] for trace in chart.data] == ["prompt", "response"] and "fitted on them" in chart.summary


def test_map_and_mask_follow_the_policy_before_any_run():
    def of(name: str, **settings) -> Chart:
        return drawn(name, RunSeries(RunSettings(prompt="p", **settings), context=[200]))

    plain = of("positions")
    assert np.allclose(plain.data[1]["x"], plain.data[1]["y"])
    naive = of("positions", pic="naive", ratio=4)
    assert np.allclose(naive.data[1]["y"], np.asarray(naive.data[1]["x"]) / 4, atol=0.01)
    window = of("positions", window=32, sinks=4)
    assert "sees 36 of them" in window.summary and any(
        note["text"] == "not seen" for note in window.layout["annotations"]
    )
    assert np.nanmax(window.data[1]["y"]) == 32
    rows = dict(of("mask", window=32, sinks=4).rows)
    assert rows[0] == 1 and rows[199] == 36
    assert of("mask").summary.count("100%")


@pytest.mark.parametrize("method", [method.name for method in signal_methods()])
def test_the_signal_is_what_the_method_shows_also_after_its_target_moved(method):
    moved = [step(i, goal=60) for i in range(1, 11)] + [step(i, goal=100) for i in range(11, 41)]
    chart = drawn("signal", RunSeries.of(RunSettings(prompt="p", method=method), moved))
    goals = np.where(np.arange(1, 116) <= 10, 60, 100)
    if methods[method].slack:
        goals = goals + np.where(goals == 60, int(tolerance(60, "tokens")), int(tolerance(100, "tokens")))
    [heat] = chart.data
    at = np.asarray(heat["x"])
    shown = methods[method].rows(torch.from_numpy(at), torch.from_numpy(goals[at - 1]), WIDTH)[:, ::2]
    assert at[0] == 1 and at[-1] == 115 and heat["z"].shape == (WIDTH // 2, len(at))
    assert np.allclose(heat["z"], shown.T, atol=0.006) and len(np.unique(heat["z"])) > 9
    assert "now" in str(chart.layout["annotations"])


def test_no_signal_is_drawn_of_a_method_that_shows_none_or_before_an_answer():
    assert not drawn("signal", run(20, "exp_decay")).data and not drawn("signal", run(0, "ldpe", done=False)).data


def test_under_a_policy_a_run_shows_how_far_behind_its_text_seems():
    events = [step(i) for i in range(1, 31)]
    compressed = {"pic": "naive", "ratio": 4}
    for settings, words in ((compressed, "the first token, 68 behind it, seems 17 behind"), ({}, "")):
        view = View(RunSettings(prompt="p", method="exp_decay", **settings))
        view.add(events)
        shown = view.frame().parts
        assert ("positions" in shown) == bool(words)
        assert not words or words in json.loads(shown["positions"])["summary"]


def test_sampling_keeps_the_ends_and_its_places():
    assert sample(0, 10).tolist() == [] and sample(1, 10).tolist() == [0]
    for n in (5, 99, 1000, 16_384):
        at = sample(n, 100)
        assert at[0] == 0 and at[-1] == n - 1 and len(at) <= 102
    assert set(sample(1000, 100)[:-1]) <= set(sample(1010, 100))
    assert np.isnan(pick([None, 1], np.array([0]))[0])


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_what_is_produced_is_what_the_engine_counts(unit):
    pieces = ["  ", "- one", " –", " two", "\n\n", "* e", "\u0301", "t", "c.\n"]
    series = RunSeries(RunSettings(prompt="p", method="exp_decay", unit=unit))
    for i, piece in enumerate(pieces, start=1):
        series.add(step(i, piece))
        assert series.produced[-1] == length(unit, "".join(pieces[:i]), i)


@pytest.mark.parametrize("unit", ["tokens", "words"])
def test_a_limit_is_in_the_unit_that_is_chosen(unit):
    series = run(20, "mnt_ldpe", done=False, unit=unit, limit=100)
    done = length(unit, series.answer, 20)
    assert series.produced[-1] == done and series.error == done - 100
    shown = drawn("length", series)
    assert shown.columns[1] == unit and f"{counted(done, unit)} produced of at most 100. At this rate" in shown.summary
    view = View(series.settings)
    view.add([replace(step(1), wanted=100)])
    assert (view.figures()["target"], view.figures()["error"]) == ("≤ 100", "–")
    assert view.remembered()[-1].error is None
    assert drawn("length", series, series).rows[0][4] == ""


def test_text_only_grows_and_carries_markup_as_data():
    series = RunSeries(RunSettings(prompt="p"))
    series.add(step(1, "<img src=x onerror=alert(1)>", None))
    first = pieces(series)
    series.add(step(2, "\n</script>", None))
    second = pieces(series, first)
    assert second[:2] == first == (series.run, ["<img src=x onerror=alert(1)>", 0.5, None, 1.2, None, False, False, []])
    assert len(second) == 3 and second[2][0] == "\n</script>"


def test_comparison_names_each_run_and_shares_its_axes():
    runs = [replace(run(20), name="A", words="plain"), replace(run(30, window=64), name="B", words="Λ 64")]
    for chart in shown("compare"):
        assert [row[0] for row in chart.draw(runs).rows] == ["A · plain", "B · Λ 64"], chart.name
    seen = drawn("positions", *(replace(run, context=[200]) for run in runs))
    assert seen.rows == [["A · plain", 200, 199], ["B · Λ 64", 74, 64]]


def test_a_run_keeps_its_colour_while_another_has_not_begun():
    for tokens in (0, 9):
        chart = drawn("length", run(tokens, done=False, name="A"), run(9, done=False, name="B"))
        assert {trace["name"]: trace for trace in chart.data}["B"]["line"]["color"] == "@c2"


def test_a_read_text_has_its_perplexity_and_charts():
    read = text(2)
    assert read.read == 1024 and read.perplexity == pytest.approx(math.e**2, rel=1e-5)
    for chart in shown("long"):
        made = chart.draw([read])
        assert made.rows[0][0] == "Plain" and made.columns[0] == "policy" and made.data


def test_a_figure_for_notebooks():
    shown = figure(drawn("length", run(10)), "dark")
    assert shown.layout.paper_bgcolor == PALETTES["dark"]["paper"] and len(shown.data) == 3


def test_the_chance_to_end_shows_the_end_mark():
    assert run(60).p_eos == [step(1).p_eos] * 60
    ended = RunSeries.of(run(60).settings, [step(1, goal=100), replace(finish(1, -99), p_eos=0.75)])
    chance = drawn("length", ended).data[0]
    assert chance["x"].tolist() == [0, 1] and chance["y"][-1] == 0.75
    assert len(drawn("length", ended).rows) == 1


def test_a_target_changed_before_the_first_token_is_the_runs_own():
    for method, unit, wanted, kept in (
        ("ldpe", "tokens", 150, 150),
        ("ldpe", "words", 90, 90),
        ("ldpe", "words", 60, 60),
        ("none", "tokens", None, 60),
    ):
        view = View(RunSettings(prompt="p", method=method, unit=unit, target=60))
        view.add([replace(step(1), wanted=wanted)])
        assert view.trace.settings.target == view.series.settings.target == kept
    limited = View(RunSettings(prompt="p", method="mnt_ldpe", limit=60, unit="words"))
    limited.add([replace(step(1, goal=200), wanted=150)])
    assert limited.trace.settings.limit == 150 and limited.trace.settings.target == 100
    later = View(RunSettings(prompt="p", method="ldpe", target=60))
    later.add([step(1, goal=60), step(2, goal=150)])
    assert later.trace.settings.target == 60


def test_a_replay_in_words_shows_the_target_of_each_token():
    trace = Trace(RunSettings(prompt="p", method="exp_decay", unit="words", target=60))
    for event in (replace(step(i, goal=84 - i), wanted=60 if i < 4 else 9) for i in range(1, 7)):
        trace.append(event)
    shown = View.of(Trace.load(trace.to_json().encode())).series
    assert shown.target == [60] * 3 + [9] * 3 and shown.error == 6 - 9


def test_a_run_without_tokens_tells_how_it_ended():
    view = View(RunSettings(prompt="p", method="ldpe", target=90))
    assert view.figures()["message"] == "Reading the prompt …"
    view.add([finish(0, -90)])
    figures = view.figures()
    assert figures["error"] == "−90"
    assert figures["message"].startswith("Ended amid a sentence after 0 tokens")


def test_a_run_is_wrapped_up_or_says_why_not():
    view = View(RunSettings(prompt="p", method="ldpe", target=100))
    assert unwrapped(view.series).startswith("Nothing is written yet")
    view.add([step(i) for i in range(1, 51)])
    assert not unwrapped(view.series)
    view.add([step(i) for i in range(51, 99)])
    assert unwrapped(view.series).startswith("It is about to end: its target is 100.")
    view.add([step(i) for i in range(99, 104)])
    assert unwrapped(view.series).startswith("It is past its target")
    free = View(RunSettings(prompt="p"))
    free.add([step(1, goal=None)])
    assert "cannot change its target" in unwrapped(free.series)


def test_a_run_that_landing_ended_says_so():
    view = View(RunSettings(prompt="p", method="ldpe", target=1))
    view.add([step(1, goal=1), replace(finish(1, 0), text="So.", landed=True)])
    assert view.figures()["message"].startswith("Ended with a sentence, by force after 1 token in")


@pytest.mark.parametrize(
    ("method", "error", "said"),
    [
        ("ldpe", -99, "in 1.0 s: 99 tokens fewer than asked"), ("ldpe", 1, "in 1.0 s: 1 token more than asked"),
        ("ldpe", 0, "in 1.0 s: as many as asked"), ("mnt_ldpe", 9, "in 1.0 s: 9 tokens over the limit"),
        ("mnt_ldpe", -99, "in 1.0 s."), ("mnt_ldpe", 0, "in 1.0 s."),
    ],
)  # fmt: skip
def test_a_run_ends_so_far_from_its_target_or_beyond_its_limit(method, error, said):
    view = View(RunSettings(prompt="p", method=method))
    view.add([step(1), replace(finish(1, error), decode_seconds=1.0)])
    assert view.figures()["message"].rstrip(".").endswith(said.rstrip("."))


def test_a_recorded_run_that_is_cut_short_is_stopped_there():
    settings = RunSettings(prompt="p", method="ldpe", target=100)
    trace = Trace(settings)
    for event in [*(step(i, goal=100) for i in range(1, 61)), finish(60, -40)]:
        trace.append(event)
    view = View(settings)
    view.add(trace.steps[:20])
    view.cut_short(trace)
    ended = view.series.finish
    assert (ended.reason, ended.tokens, ended.error, ended.p_eos) == ("stopped", 20, -80, None)
    assert ended.text == "".join(step.text for step in trace.steps[:20]) and view.ended
    view.cut_short(trace)
    assert view.series.finish is ended


@pytest.mark.parametrize("chart", shown("long"), ids=lambda chart: chart.name)
def test_a_chart_holds_as_many_texts_as_there_are_ways_to_read(chart):
    ways = [text(9, name) for name in plans.POLICIES]
    drawn = chart.draw(ways)
    assert [row[0] for row in drawn.rows] == [way.label for way in ways]
    lines = [trace for trace in drawn.data if trace.get("name") in plans.POLICIES]
    assert len({(trace.get("line", {}).get("color"), trace.get("line", {}).get("dash")) for trace in lines}) in (
        1, len(ways)
    )  # fmt: skip
