"""What the page keeps and passes on: the form, the link, runs in progress, uploaded texts."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import threading
import zipfile
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

import gradio as gr
import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.testclient import TestClient

from app import carried, columns, controls, conversation, live, model, page, plans, presets, view
from app.api import endpoint
from app.frames import PATH, Frame, Stream, Streams
from app.runs import SHARE, SLOWEST, Runs, batches, merged
from app.share import explain, flat, from_query, to_query
from app.tabs.long_context import BUILT_IN, MAX_BYTES, built_in, text_of
from backend.engine import Lab
from backend.inference.control import Control
from backend.methods import methods
from backend.models.adapters import AdapterError, available
from backend.models.pool import ModelError, Models
from backend.positions import policies
from backend.record.export import guarded
from backend.record.schema import StepRecord
from backend.record.trace import Trace, TraceError
from backend.refused import Refused
from backend.settings import RunSettings, Watch

# Seconds after which a thread that is waited for has failed.
PATIENCE = 300
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).filter(str.strip)
EXCHANGES = st.builds(conversation.Exchange, question=TEXT, answer=TEXT)
TALKS = st.lists(EXCHANGES, max_size=3).map(conversation.written)
SETTINGS = st.builds(
    RunSettings,
    prompt=TEXT,
    earlier=st.builds(conversation.turns, st.just("") | TEXT, TALKS),
    method=st.sampled_from(methods.names()),
    target=st.integers(1, 1000),
    unit=st.sampled_from(["tokens", "words", "characters"]),
    limit=st.integers(1, 1000),
    landing=st.integers(0, 32),
    in_prompt=st.booleans(),
    max_new_tokens=st.integers(1, 4096),
    pic=st.sampled_from(policies.names()),
    ratio=st.floats(0.1, 64),
    initial=st.integers(0, 1024),
    recent=st.integers(1, 4096),
    reading=st.sampled_from(["contiguous", "literal"]),
    window=st.none() | st.integers(1, 16384),
    sinks=st.integers(1, 256),
    distance_limit=st.sampled_from(["window", "off"]) | st.integers(1, 9999),
    temperature=st.floats(0, 2),
    top_k=st.integers(0, 200),
    top_p=st.floats(0.05, 1),
    repetition_penalty=st.floats(0.8, 2),
    thinking=st.booleans(),
    thinking_budget=st.integers(0, 4096),
    special_tokens=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
    watch=st.builds(Watch, layer=st.integers(0, 29), head=st.integers(0, 8), every=st.integers(1, 32)),
)


@pytest.fixture(scope="module")
def form() -> controls.Form:
    with gr.Blocks(analytics_enabled=False):
        talk = live.conversation(conversation.EMPTY)
        return controls.build(gr.Textbox(), talk, model.build(["embedded"]), available("embedded"))


@hypothesis.settings(deadline=None)
@given(settings=SETTINGS)
def test_the_form_shows_settings_and_gives_them_back(form, settings):
    assert form.settings(form.values(settings)) == settings
    assert form.beyond(flat(settings)) == []


@hypothesis.settings(deadline=None)
@given(settings=SETTINGS)
def test_a_comparison_takes_over_all_that_acts_on_a_run(settings):
    boxes, beside = columns.taken_over(settings)
    own = [boxes[name] for name in columns.OWN]
    both = columns.asked([*(boxes[name] for name in columns.COMMON), 1, 2, beside, *own, *own])
    idle = {"limit", "target"} - {settings.bound}
    idle |= {"initial", "recent"} - {*policies[settings.pic].heeds()}
    assert [each.model_dump(exclude=idle) for each in both] == [settings.model_dump(exclude=idle)] * 2


def test_what_a_comparison_takes_from_the_lab_is_named_with_its_value():
    earlier = conversation.turns("Rhyme.", conversation.written([conversation.Exchange(question="a<b", answer="c")]))
    settings = RunSettings(prompt="x", earlier=earlier, top_p=0.9, distance_limit="off", prefill="paper", thinking=True)
    _, beside = columns.taken_over(settings)
    said = ["System prompt", "Conversation (1 turn)", "Let it think first", "Top p 0.9",
            "Positions in the prompt one set", "Distance limit off"]  # fmt: skip
    words = re.sub("<.*?>", "", carried.shown(beside, columns.BOXES))
    assert all(each in words for each in said) and "a<b" not in carried.shown(beside, columns.BOXES)
    assert columns.taken_over(RunSettings(prompt="x", method="ldpe", landing=8, in_prompt=True))[1] == ""


@pytest.mark.parametrize("damaged", ["{", "[]", "5", '{"top_p": 7}', '{"prompt": "x", "method": 1}', '{"earlier": 1}'])
def test_what_is_damaged_is_taken_as_nothing(damaged):
    assert carried.read(damaged, columns.BOXES) == {} and carried.shown(damaged, columns.BOXES) == ""


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"ratio": "abc"}, "ratio"),
        ({"ratio": "nan"}, "ratio"),
        ({"window": "-3"}, "window"),
        ({"seed": str(2**40)}, "seed"),
        ({"method": "<script>"}, "method"),
        ({"layer": "9999"}, "layer"),
        ({"prompt": "  "}, "prompt is empty"),
    ],
)
def test_a_wrong_parameter_is_left_out_and_named(query, words):
    values, problems = from_query(query | {"target": "30", "__theme": "dark", "unknown": "1"})
    assert values == {"target": 30}
    assert len(problems) == 1 and words in problems[0] and "validation error" not in problems[0]


def test_what_the_page_cannot_show_is_named(form):
    assert form.beyond({"target": 50_000, "window": 64}) == ["target"]
    assert form.values({"target": 50_000})[list(form.parts).index("target")] == form.target.maximum


def test_every_control_and_every_figure_says_what_it_is(form):
    def said(part: Any) -> bool:
        if "options" in (props := getattr(part, "props", {})):
            return "ll-hint" in part.html_template and all(option["hint"] for option in props["options"])
        return bool(part.info)

    assert [name for name, part in form.parts.items() if name not in ("prompt", "talk") and not said(part)] == []
    assert view.ABOUT.keys() == dict(view.FIELDS).keys() and all(view.ABOUT.values())


def test_an_empty_number_is_a_sentence(form):
    values = form.values({})
    values[list(form.parts).index("seed")] = None
    with pytest.raises(ValueError, match="“Seed” is empty"):
        form.settings(values)


def test_a_model_that_is_not_to_be_had_gives_way_to_the_first(form):
    assert form.lacks("other") and not form.lacks("embedded")
    assert form.settings(form.values({"prompt": "x", "model": "other", "seed": 3})) == RunSettings(prompt="x", seed=3)


def test_a_head_that_shows_something_is_watched_unless_another_is_named(form):
    found = flat(form.settings(form.values({"prompt": "p"})))
    assert (found["layer"], found["head"]) == (Watch().layer, Watch().head) == (12, 6)
    for watch in (Watch(layer=0, head=0), Watch(head=0), Watch()):
        asked = RunSettings(prompt="p", watch=watch)
        values, problems = from_query(dict(parse_qsl(to_query(asked))))
        assert not problems and form.settings(form.values(values)) == asked
        assert RunSettings.model_validate_json(asked.model_dump_json()) == asked


@pytest.mark.parametrize("preset", presets.PRESETS, ids=lambda preset: preset.title)
def test_a_recorded_run_has_the_settings_of_its_preset(preset):
    assert presets.recorded()[preset.title].settings == preset.settings


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "plain"),
        ({"pic": "naive", "ratio": 2}, "Naive × 2"),
        ({"pic": "dynamic", "ratio": 4, "recent": 64, "window": 32}, "Dynamic × 4, recent 64, Λ 32"),
        ({"method": "ldpe", "target": 90, "unit": "words", "landing": 8}, "LDPE 90 words, landing 8"),
        ({"method": "mnt_ldpe", "limit": 90, "unit": "words", "landing": 8}, "MNT++ LDPE 90 words, landing 8"),
        ({"method": "orpe", "target": 60, "in_prompt": True}, "ORPE 60, asked too"),
        ({"method": "prompted", "target": 60, "in_prompt": True}, "In the prompt 60"),
    ],
)
def test_a_setting_is_described_with_all_that_it_leaves_alone(changes, words):
    assert columns.describe(RunSettings(prompt="x", **changes)) == words


def test_a_refused_setting_reads_as_a_sentence():
    with pytest.raises(ValueError) as error:
        RunSettings(prompt="x", ratio=-1)
    assert explain(error.value) == "“ratio” should be greater than or equal to 0.05"
    assert explain(error.value, {"ratio": "Ratio"}) == "“Ratio” should be greater than or equal to 0.05"


@pytest.mark.parametrize(
    ("given", "named"),
    [({"probes": "perhaps"}, "probes"), ({"max_new_tokens": 0}, "max_new_tokens"), ({"target": 1.5}, "target")],
)
def test_the_endpoint_names_a_wrong_argument_as_its_caller_did(lab, given, named):
    with pytest.raises(gr.Error, match=f"^'“{named}” "):
        next(endpoint(lab, Runs())(SimpleNamespace(session_hash="me"), "Why?", **given))


def test_the_page_names_a_wrong_number_by_its_label(lab, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(gr, "Warning", lambda words, **_: said.append(words))
    built = page.build(lab, available, Runs())
    for event, box in (("write", "Every n tokens"), ("compare", "Target or limit")):
        function = next(each for each in built.fns.values() if each.name == event)
        values = [part.value for part in function.inputs]
        values[[part.label if hasattr(part, "label") else "" for part in function.inputs].index(box)] = 10**7
        [*_] = function.fn(SimpleNamespace(session_hash="me"), *values)
        assert said.pop().startswith(f"“{box}” should be less than or equal to") and not said


def test_batches_lose_nothing_keep_the_order_and_gather_while_the_page_is_busy(monkeypatch):
    """The thread that reads is not held up meanwhile."""
    finished = threading.Event()

    def events():
        yield from range(200)
        finished.set()

    monkeypatch.setattr("app.runs.time", SimpleNamespace(monotonic=lambda: 0, sleep=lambda _: finished.wait(PATIENCE)))
    seen = list(batches(events()))
    assert [item for batch in seen for item in batch] == list(range(200))
    assert len(seen) <= 2


def test_several_streams_are_read_at_once_and_an_error_of_one_is_raised():
    met = threading.Barrier(2)

    def waiting(*items: str):
        met.wait(60)
        yield from items

    found = list(merged([waiting("a", "b"), waiting("c")]))
    assert sorted(found) == [(0, "a"), (0, "b"), (1, "c")] and found.index((0, "a")) < found.index((0, "b"))
    with pytest.raises(ZeroDivisionError):
        list(merged([iter(["a"]), (1 // 0 for _ in "x")]))
    assert list(merged([])) == []


@pytest.mark.parametrize(
    ("handling", "rest"), [(0, 0.1), (0.02, 0.02 / SHARE - 0.02), (0.2, SLOWEST - 0.2), (SLOWEST + 1, 0)]
)
def test_batches_come_more_seldom_where_handling_them_takes_long(handling, rest, monkeypatch):
    """handling, rest: seconds that a batch takes, and those until the next one."""
    slept: list[float] = []
    passed = iter([5, 5 + handling])
    monkeypatch.setattr("app.runs.time", SimpleNamespace(monotonic=lambda: next(passed, 0), sleep=slept.append))
    arrives: SimpleQueue[int] = SimpleQueue()
    source = batches(iter(arrives.get, None), period=0.1)
    for event in (1, 2):
        arrives.put(event)
        assert next(source) == [event]
    arrives.put(None)
    assert slept == [pytest.approx(rest)]


def read_until(stream: Stream, frames: int, *after: Callable[[], object]) -> list[dict]:
    """Events of a stream. after: what another thread does when the first of them, the second, … was read."""
    then = iter(after)

    async def read() -> list[dict]:
        seen = []
        async for event in stream.read():
            seen.append(json.loads(event.removeprefix("data: ")))
            if len(seen) == frames:
                break
            thread = threading.Thread(target=next(then))
            thread.start()
            thread.join()
        return seen

    return asyncio.run(read())


def test_a_reader_gets_the_newest_frame_and_of_a_text_only_what_is_new():
    stream = Stream()
    stream.show(Frame({"a": "1"}, {"t": ("one",)}, running=True))
    stream.show(Frame({"a": "2"}, {"t": ("one", "🌊 𠮷")}, running=True, number=2))
    newest = Frame({"a": "3"}, {"t": ("one", "🌊 𠮷", "three")}, True, 3)
    first, second = read_until(stream, 2, lambda: stream.show(newest))
    assert first == {"number": 2, "running": True, "texts": {"t": [0, ["one", "🌊 𠮷"]]}, "parts": {"a": 2}}
    assert second["texts"] == {"t": [2, ["three"]]} and second["parts"] == {"a": 3}
    whole = {"number": 3, "running": True, "texts": {"t": [0, ["one", "🌊 𠮷", "three"]]}, "parts": {"a": 3}}
    assert read_until(stream, 9, stream.end) == [whole]


def test_no_two_frames_are_the_same_value():
    assert Frame({"a": "1"}).encode() != Frame({"a": "1"}).encode()


def test_only_an_open_stream_can_be_read_by_its_name():
    streams = Streams()
    client = TestClient(Starlette(routes=[streams.route]))
    with streams.opened() as stream, streams.opened() as other:
        path = PATH.format(name=stream.name)
        assert len(stream.name) > 20 and stream.name != other.name
        class Last(Frame):
            """Who takes it ends the stream."""

            def encode(self, seen=None) -> str:
                stream.end()
                return super().encode(seen)

        stream.show(Last({"a": "1"}, number=7))
        assert client.get(path).text == 'data: {"number":7,"running":false,"texts":{},"parts":{"a":1}}\n\n'
        assert client.get(PATH.format(name="guess")).status_code == 204
    assert client.get(path).status_code == 204


def test_an_error_of_the_run_arrives_after_what_came_before():
    def events():
        yield 1
        raise ValueError("no")

    seen = []
    with pytest.raises(ValueError, match="no"):
        seen.extend(batches(events(), period=0.01))
    assert seen == [[1]]


def test_runs_belong_to_their_visitor_and_end_with_their_block():
    runs = Runs()
    mine, yours = Control(), Control()
    with runs.started("me", mine, "generate"), runs.started("you", yours, "generate"):
        runs.stop("me")
        assert mine.stopped and not yours.stopped
        assert runs.of("you", "generate").control is yours and runs.of("someone", "generate") is None
    assert yours.stopped and len(runs) == 0


def test_a_visitor_s_new_run_ends_the_one_before():
    runs = Runs()
    first = Control()
    with runs.started("me", first, "generate"), runs.started("me", Control(), "compare") as second:
        assert first.stopped and runs.of("me", "compare") is second
        with runs.started("me", Control(), "compare") as third:
            assert runs.of("me", "compare") is third


def test_runs_beside_each_other_and_those_of_nobody_end_no_other():
    runs = Runs()
    controls = [Control() for _ in range(4)]
    mine, beside, *nobodys = controls
    with (
        runs.started("me", mine, "generate"),
        runs.started("me", beside, "api", beside=True),
        runs.started(None, nobodys[0], "generate"),
        runs.started(None, nobodys[1], "generate"),
    ):
        runs.stop(None)
        assert runs.of(None, "generate") is None and not any(control.stopped for control in controls)
        with runs.started("me", Control(), "generate"):
            assert mine.stopped and not beside.stopped
        runs.stop("me")
        assert beside.stopped and not any(control.stopped for control in nobodys)


def handlers(name: str, runs: Runs, models: Sequence[str] = ("embedded",)) -> list[Callable]:
    """The functions of that name behind the page."""
    functions = page.build(Lab(Models(models)), available, runs).fns.values()
    return [function.fn for function in functions if function.name == name]


def test_stop_ends_the_run_of_its_own_tab_and_no_other():
    of_try, of_compare, of_sweep, of_long, of_generate = handlers("halt", runs := Runs())
    visitor, control = SimpleNamespace(session_hash="me"), Control()
    with runs.started("me", control, "generate") as run:
        run.delivered.set()
        assert [asyncio.run(halt(visitor, 3)) for halt in (of_try, of_compare, of_sweep, of_long)] == [4] * 4
        assert not control.stopped
        assert asyncio.run(of_generate(visitor, 3)) == 3 and control.stopped


@pytest.mark.parametrize(
    ("whole", "words"),
    [(0, "Stopped before anything was read."), (1, "Stopped: what was read so far is shown.")],
)
def test_a_reading_stopped_before_its_first_chunk_ends_as_stopped(whole, words, monkeypatch):
    """whole: readings that end by themselves before the one that is stopped."""
    [start] = handlers("start", Runs())
    read, begun = plans.read, []

    def stopping(lab, tokens, settings, control, stand):
        begun.append(settings)
        if len(begun) > whole:
            control.stop()
        return read(lab, tokens, settings, control, stand=stand)

    monkeypatch.setattr(plans, "read", stopping)
    asked = ["", 600, 256, 4, 4, plans.WRITE, 30, ["Plain", "Λ"], False, "embedded", "bf16", 0, 0]
    *_, last = start(SimpleNamespace(session_hash="me"), BUILT_IN, *asked)
    assert json.loads(last)["parts"]["long"] | {"state": "good", "message": words} == json.loads(last)["parts"]["long"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"   \n", "holds no text"),
        (b"a\0b", "holds no text"),
        (b"a" * (MAX_BYTES + 1), "more than 2"),
    ],
)
def test_a_file_that_is_no_text_is_refused(data, words):
    with pytest.raises(ValueError, match=words):
        text_of(data)


def test_texts_are_taken():
    assert text_of("\ufeffΛ text".encode()) == "Λ text"
    assert len(built_in()) > 300_000


def test_the_endpoint_looks_at_nothing_that_it_does_not_send(lab, monkeypatch):
    asked, stream = [], lab.stream

    def noted(settings, control, progress):
        asked.append(settings)
        return stream(settings, control, progress)

    monkeypatch.setattr(lab, "stream", noted)
    *_, last = endpoint(lab, Runs())(SimpleNamespace(session_hash="me"), "Why is the sky blue?", max_new_tokens=3)
    assert [settings.watch.enabled for settings in asked] == [False]
    assert [step["index"] for step in last["steps"]] == [1, 2, 3] and "entropy" not in last["steps"][0]


def test_the_endpoint_sends_what_the_probes_see_when_asked(lab):
    asked = {"max_new_tokens": 5, "probes": True, "layer": 7, "head": 2, "every": 2}
    me = SimpleNamespace(session_hash="me")
    *_, last = endpoint(lab, Runs())(me, "Why is the sky blue?", **asked)
    settings = RunSettings(
        prompt="Why is the sky blue?", max_new_tokens=5, watch=Watch(enabled=True, layer=7, head=2, every=2)
    )
    *steps, _ = lab.stream(settings)
    sent = json.loads(json.dumps(last["steps"]))
    for row, step in zip(sent, steps, strict=True):
        shown = StepRecord.model_validate(row).event(settings)
        np.testing.assert_allclose(shown.entropy, step.entropy, atol=2e-3)
        np.testing.assert_array_equal(shown.state, step.state)
        assert (shown.logits is None) == (step.logits is None) and (shown.reading is None) == (step.reading is None)
    assert [step["logits"] is None for step in sent] == [False, True, False, True, False]
    assert (sent[0]["logits"]["layer"], sent[0]["logits"]["head"]) == (7, 2)


def test_a_model_that_cannot_run_is_said_when_it_is_chosen(tiny_folder):
    folder = str(tiny_folder("mistral", sliding_window=16))
    *_, describe = handlers("describe", Runs(), [folder])
    shown = {part.elem_id: update for part, update in describe(folder, "fp32", 0, 0).items()}
    assert "choose one without" in shown["model-state"] and 'data-state="bad"' in shown["model-state"]
    assert not shown["again"]["visible"]


def test_layer_head_and_compressions_are_those_of_the_chosen_model(tiny_folder):
    mpt = str(tiny_folder("mpt"))
    of_compare, *_ = handlers("describe", Runs(), ["embedded", mpt])
    *_, layer, head, first, second, _, _ = of_compare(mpt, "fp32", 12, 1, "dynamic", "none", "ntk", "naive").values()
    assert layer["choices"] == [("0", 0), ("1", 1), ("2", 2)] and layer["value"] == 0
    assert len(head["choices"]) == 4 and "value" not in head
    assert first["choices"] == second["choices"] == [("Plain", "none"), ("StreamingLLM", "streaming_llm")]
    assert first["value"] == "none" and "value" not in second


def test_methods_to_compare_follow_the_model(tiny_folder):
    other = str(tiny_folder("gpt_neox"))
    [methods] = handlers("methods", Runs(), ["embedded", other])
    chosen = ["sft_ntk", "ldpe", "prompted", "none"]
    for name in ("embedded", other):
        offered = {method for method, why in available(name).items() if why is None}
        updates = methods(name, *chosen)
        for method, update in zip(chosen, updates[::3], strict=True):
            assert {value for _, value in update["choices"]} == offered
            assert update.get("value", method) == (method if method in offered else "none")
        assert updates[1:3] == (["ntk", 16] if name == "embedded" else ["none", 1])
        assert updates[4:6] == [gr.skip()] * 2


def test_settings_that_are_taken_over_leave_no_column_a_method_that_their_model_lacks(tiny_folder):
    other = str(tiny_folder("gpt_neox"))
    functions = page.build(Lab(Models(["embedded", other])), available, Runs()).fns.values()
    taken = next(
        each for each in functions if each.name == "taken" and "c-prompt" in [part.elem_id for part in each.outputs]
    )
    chosen = {"model": other, "prompt": "Why?"}
    moved = taken.fn(*[chosen.get(part.elem_id, part.value) for part in taken.inputs])[-9:]
    offered = {method for method, why in available(other).items() if why is None}
    for part, update in zip(taken.inputs[-3:], moved[::3], strict=True):
        assert {value for _, value in update["choices"]} == offered and update.get("value", part.value) in offered
    as_before = chosen | {"model": "embedded"}
    kept = taken.fn(*[as_before.get(part.elem_id, part.value) for part in taken.inputs])[-9:]
    assert kept == [gr.skip()] * 9


def test_positions_to_compare_are_as_trained_on_the_chosen_model(tiny_folder):
    other = str(tiny_folder("gpt_neox"))
    as_trained, *_ = handlers("as_trained", Runs(), ["embedded", other])
    assert as_trained("sft_ntk", "embedded", "none", 1) == ["ntk", 16]
    assert as_trained("sft_ntk", other, "none", 1) == [gr.skip()] * 2


@pytest.fixture
def asked(monkeypatch) -> list[RunSettings]:
    """The settings of every run that the lab was asked for."""
    asked, stream = [], Lab.stream

    def noted(lab, settings, control, progress):
        asked.append(settings)
        return stream(lab, settings, control, progress)

    monkeypatch.setattr(Lab, "stream", noted)
    return asked


def test_a_comparison_runs_on_the_chosen_model(tiny_folder, asked):
    other = str(tiny_folder("gpt_neox"))
    [compare] = handlers("compare", Runs(), ["embedded", other])
    slots = ["none", 10, 0, False, "none", 1, 0, 7, 0, "exp_decay", 10, 2, True, "dynamic", 4, 0, 0, 0.5]
    me, common = SimpleNamespace(session_hash="me"), ("Why?", "words", 5, 1, 2, "")
    *_, last = compare(me, other, "fp32", 2, 3, *common, *slots, *slots)
    assert json.loads(last[0])["parts"]["compare"]["state"] == "good"
    assert [(settings.model, settings.precision) for settings in asked] == [(other, "fp32")] * 2
    assert [(settings.watch.layer, settings.watch.head) for settings in asked] == [(2, 3)] * 2
    assert [(each.unit, each.landing, each.in_prompt) for each in asked] == [("words", 0, False), ("words", 2, True)]
    assert [(settings.seed, settings.temperature) for settings in asked] == [(7, 0), (0, 0.5)]


def test_a_comparison_takes_more_answers_each_with_the_next_seed(tiny_folder, asked):
    other = str(tiny_folder("gpt_neox"))
    [compare] = handlers("compare", Runs(), ["embedded", other])
    slots = ["none", 10, 0, False, "none", 1, 0, 7, 1, "exp_decay", 10, 0, False, "none", 1, 0, 0, 1]
    me, unused = SimpleNamespace(session_hash="me"), slots
    *_, last = compare(me, other, "fp32", 2, 3, "Why?", "words", 5, 3, 2, "", *slots, *unused)
    assert [(settings.method, settings.seed) for settings in sorted(asked, key=lambda each: each.seed)] == [
        *[("exp_decay", seed) for seed in (0, 1, 2)], *[("none", seed) for seed in (7, 8, 9)]
    ]  # fmt: skip
    parts = json.loads(last[0])["parts"]
    assert parts["compare"]["state"] == "good" and parts["compare"]["message"] == "All answers have ended."
    made = last[1]
    rows = [*csv.DictReader(io.StringIO(made.to_csv()))]
    assert [(row["setting"], row["seed"], row["method"]) for row in rows] == [
        *[("A", seed, "none") for seed in "789"], *[("B", seed, "exp_decay") for seed in "012"]
    ]  # fmt: skip
    with zipfile.ZipFile(io.BytesIO(made.to_zip())) as file:
        assert file.namelist() == ["length-lab-run-A.json", "length-lab-run-B.json"]
        saved = [Trace.load(file.read(name)) for name in file.namelist()]
    assert [guarded(trace.finish.text) for trace in saved] == [rows[0]["text"], rows[3]["text"]]
    bars = parts["c-lengths"]["data"]
    assert [(each["type"], each["name"], sum(each["y"])) for each in bars] == [("bar", "A", 3), ("bar", "B", 3)]
    assert parts["c-lengths"]["summary"].startswith("A: 3 answers of ")
    *_, last = compare(me, other, "fp32", 2, 3, "Why?", "words", 5, 1, 2, "", *slots, *unused)
    assert json.loads(last[0])["parts"]["c-lengths"]["data"] == []


def test_seeds_that_write_the_same_are_no_more_answers(tiny_folder, asked):
    other = str(tiny_folder("gpt_neox"))
    [compare] = handlers("compare", Runs(), ["embedded", other])
    slots = ["none", 10, 0, False, "none", 1, 0, 7, 0] * 4
    *_, last = compare(SimpleNamespace(session_hash="me"), other, "fp32", 2, 3, "Why?", "words", 5, 3, 2, "", *slots)
    assert "raise a temperature" in json.loads(last[0])["parts"]["compare"]["message"] and not asked


@pytest.mark.parametrize(("name", "recent"), [("embedded", 600), ("other", 64)])
def test_what_dynamic_compression_leaves_alone_is_as_trained_on_the_chosen_model(name, recent, tiny_folder, asked):
    other = str(tiny_folder("gpt_neox"))
    chosen = other if name == "other" else name
    [compare] = handlers("compare", Runs(), ["embedded", other])
    slots = ["sft_dynamic", 10, 0, False, "dynamic", 4, 0, 0, 0] * 4
    me, common = SimpleNamespace(session_hash="me"), ("Why?", "tokens", 2, 1, 2, "")
    *_, last = compare(me, chosen, "bf16", 0, 0, *common, *slots)
    assert asked[0].recent == recent
    assert ("No adapter for sft_dynamic" in json.loads(last[0])["parts"]["compare"]["message"]) == (name == "other")


def read_long(
    models: Sequence[str], ways: Sequence[str], *on: str | int, then: str = plans.NOTHING, part: str = "long"
) -> dict:
    """What the Read far tab says at last of 600 tokens read in these ways on a model, precision, layer and head.

    then: what is done after each reading; part: of the last frame.
    """
    [start] = handlers("start", Runs(), models)
    *_, last = start(SimpleNamespace(session_hash="me"), BUILT_IN, "", 600, 256, 4, 4, then, 10, ways, False, *on)
    return json.loads(last)["parts"][part]


def test_a_long_text_is_read_by_the_chosen_model(tiny_folder, monkeypatch):
    other = str(tiny_folder("gpt_neox"))
    read, seen = plans.read, []

    def noted(lab, tokens, settings, control, stand):
        seen.append(settings)
        return read(lab, tokens, settings, control, stand=stand)

    monkeypatch.setattr(plans, "read", noted)
    shown = read_long(["embedded", other], ["Plain", "Dynamic PIC"], other, "fp32", 2, 3)
    assert shown["state"] == "good" and "Over 600 tokens" in shown["message"]
    assert [(settings.model, settings.precision) for settings in seen] == [(other, "fp32")] * 2
    assert [(settings.watch.layer, settings.watch.head) for settings in seen] == [(2, 3)] * 2


@pytest.mark.parametrize(
    ("ways", "on", "words"),
    [
        (["Plain"], ("fp32", 3, 0), "3 layers of 4 heads: watch a layer from 0 to 2"),
        (["Plain"], ("fp32", 0, 4), "a head from 0 to 3"),
        (["Plain"], ("int4", 0, 0), "do not cover the layers of mpt"),
        (["NTK PIC"], ("fp32", 0, 0), "no RoPE base to change"),
        (["Dynamic PIC"], ("fp32", 0, 0), "no position ids to compress"),
    ],
)
def test_what_a_model_does_not_allow_to_a_long_text_is_a_sentence(ways, on, words, tiny_folder):
    mpt = str(tiny_folder("mpt"))
    shown = read_long([mpt], ways, mpt, *on)
    assert shown["state"] == "bad" and words in shown["message"]


def test_ways_to_read_that_a_model_does_not_allow_are_not_offered_and_say_why(tiny_folder):
    mpt = str(tiny_folder("mpt"))
    _, _, of_long, *_ = handlers("describe", Runs(), ["embedded", mpt])
    *_, ways, both = of_long(mpt, "fp32", 0, 0, ["Λ", "NTK PIC"]).values()
    assert both["interactive"]
    assert ways["choices"] == ["Plain", "Λ", "Λ without sinks", "Truncation", "StreamingLLM"] and ways["value"] == ["Λ"]
    assert "no RoPE base" in ways["info"] and "no position ids" in ways["info"]
    *_, ways, both = of_long("embedded", "bf16", 0, 0, ["Λ"]).values()
    assert both["interactive"]
    # Beside the policies: Λ with and without sinks, and truncation.
    assert len(ways["choices"]) == len(policies) + 3 and ways["info"] is None


def test_the_page_names_no_address_outside_this_machine():
    config = str(page.build(Lab(Models(["embedded"])), available, Runs()).get_config_file())
    assert "cdn" not in config.lower() and "googleapis" not in config


def test_a_compression_that_came_with_a_training_leaves_with_it():
    ntk = controls.as_trained("sft_ntk", "embedded", ("none", 1))
    assert ntk == ["ntk", 16]
    assert controls.as_trained("none", "embedded", ntk) == ["none", 1]
    for own in (("ntk", 4), ("naive", 16)):
        assert controls.as_trained("ldpe", "embedded", own) == [gr.skip()] * 2


BUGS = {
    "shapes": lambda: np.zeros(3) + np.zeros(4),
    "int": lambda: int("x"),
    "unpacking": lambda: [a for a, b in [(1,)]],
    "json": lambda: json.loads("{"),
    "unicode": lambda: b"\xff".decode(),
    "index": lambda: [].index(3),
    "runtime": lambda: torch.zeros(3) + torch.zeros(4),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_mistake_of_the_program_is_told_as_one_and_logged(bug, caplog):
    with pytest.raises((ValueError, RuntimeError)) as caught:
        BUGS[bug]()
    words = view.sentence(caught.value)
    assert words.startswith(f"The run failed ({type(caught.value).__name__}: ") and "try again" in words
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("bug", BUGS)
def test_a_run_with_a_mistake_in_it_ends_as_one(bug, lab, monkeypatch, caplog):
    monkeypatch.setattr("backend.engine.Chooser.choose", lambda *_: BUGS[bug](), raising=True)
    [finish] = lab.stream(RunSettings(prompt="Why?", max_new_tokens=2))
    assert finish.reason == "error" and "Traceback" in caplog.text


@pytest.mark.parametrize("error", [ModelError, AdapterError, TraceError, Refused])
def test_what_was_refused_is_its_own_sentence(error, caplog):
    assert view.sentence(error("choose another one")) == "Choose another one." and not caplog.text
