"""What the page keeps and passes on: the form, the link, runs in progress, uploaded texts."""

from __future__ import annotations

import threading
import time
from urllib.parse import parse_qsl

import gradio as gr
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import controls, page
from app.runs import Runs, batches
from app.share import explain, flat, from_query, settings_of, to_query
from app.tabs.long_context import MAX_BYTES, built_in, text_of
from backend.adapters import available
from backend.engine import Control, Lab
from backend.models import Models
from backend.settings import RunSettings, Watch

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).filter(str.strip)
SETTINGS = st.builds(
    RunSettings,
    prompt=TEXT,
    method=st.sampled_from(list(controls.METHODS)),
    target=st.integers(1, 1000),
    unit=st.sampled_from(["tokens", "words", "characters"]),
    landing=st.integers(0, 32),
    max_new_tokens=st.integers(1, 4096),
    pic=st.sampled_from(list(controls.PICS)),
    ratio=st.floats(0.1, 64).map(lambda ratio: round(ratio, 3)),
    recent=st.integers(1, 4096),
    window=st.none() | st.integers(1, 16384),
    distance_limit=st.sampled_from(["window", "off"]) | st.integers(1, 9999),
    temperature=st.floats(0, 2).map(lambda heat: round(heat, 3)),
    seed=st.integers(0, 2**32 - 1),
    watch=st.builds(Watch, layer=st.integers(0, 29), head=st.integers(0, 8), every=st.integers(1, 32)),
)


@pytest.fixture(scope="module")
def form() -> controls.Form:
    with gr.Blocks(analytics_enabled=False):
        return controls.build(gr.Textbox(), ["embedded"], available("embedded"))


@given(settings=SETTINGS)
def test_the_form_shows_settings_and_gives_them_back(form, settings):
    assert form.settings(form.values(settings)) == settings
    assert form.beyond(flat(settings)) == []


@given(settings=SETTINGS)
def test_a_link_gives_the_settings_back(settings):
    values, problems = from_query(dict(parse_qsl(to_query(settings), keep_blank_values=True)))
    assert problems == []
    assert settings_of({"prompt": settings.prompt} | values) == settings


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


def test_a_link_refuses_a_prompt_that_is_too_long():
    with pytest.raises(ValueError, match="too long for a link"):
        to_query(RunSettings(prompt="word " * 4000))


def test_what_the_page_cannot_show_is_named(form):
    assert form.beyond({"target": 50_000, "window": 64}) == ["target"]
    assert form.values({"target": 50_000})[list(form.parts).index("target")] == form.target.maximum


def test_an_empty_number_is_a_sentence(form):
    values = form.values({})
    values[list(form.parts).index("seed")] = None
    with pytest.raises(ValueError, match="seed is empty"):
        form.settings(values)


def test_a_refused_setting_reads_as_a_sentence():
    with pytest.raises(ValueError) as error:
        RunSettings(prompt="x", ratio=-1)
    assert explain(error.value) == "ratio should be greater than or equal to 0.05"


def test_batches_lose_nothing_and_keep_the_order():
    def events():
        for i in range(200):
            time.sleep(0.001)
            yield i

    seen = list(batches(events(), period=0.03))
    assert [item for batch in seen for item in batch] == list(range(200))
    assert len(seen) < 100


def test_the_reader_is_not_held_up_by_the_page():
    finished = threading.Event()

    def events():
        yield from range(50)
        finished.set()

    source = batches(events(), period=10)
    next(source)
    assert finished.wait(2)


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
    with runs.started("me", mine), runs.started("you", yours):
        runs.stop("me")
        assert mine.stopped and not yours.stopped
        assert runs.of("you").control is yours and runs.of("someone") is None
    assert yours.stopped and len(runs) == 0


def test_a_visitor_s_new_run_ends_the_one_before():
    runs = Runs()
    first = Control()
    with runs.started("me", first), runs.started("me", Control()) as second:
        assert first.stopped and runs.of("me") is second


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


def test_the_page_names_no_address_outside_this_machine():
    config = str(page.build(Lab(Models(["embedded"])), available, Runs()).get_config_file())
    assert "cdn" not in config.lower() and "googleapis" not in config
