"""Traces come back as they were saved, refuse what is damaged, and leave for other tools safely."""
import csv
import dataclasses
import gzip
import io
import json

import nbformat
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.view import View
from backend.inference.control import Control
from backend.record import arrays, trace
from backend.record.trace import Trace, TraceError
from backend.settings import RunSettings, Watch
from backend.steps import Finish, Logits, Reading, Step, TriedEnding

LAYERS, HEADS, WIDTH = 5, 9, 16
BINS = ("distance", "mean", "low", "high")
CAPABILITIES = {"model": "embedded", "layers": LAYERS, "heads": HEADS, "width": WIDTH, "unsupported": {"int8": "no"}}

TRIED = (
    TriedEnding(" It rains.", 9, True, True, 0.5, 0.25, 12.5, True),
    TriedEnding(" It may.", 9, True, False, None, None, None, False),
)
HOSTILE = [
    '"""\nimport os\nos.abort()\n"""',
    "'''' \\' \\\\ {settings} %s {0}",
    "end\\",
    "\x00\u2028\u2029\r\n\ufeff\u202e",
    "=cmd|' /C calc'!A0",
    "雪 \U0001f600 e\u0301",
]


def make_run(tokens=12, prompt="Why is the sky blue?", probes=True, texts=None, **more):
    random = np.random.default_rng(tokens)
    run = Trace(RunSettings(prompt=prompt, method="ldpe", target=10, **more), dict(CAPABILITIES))
    reading = Reading(
        tokens=21, seconds=0.25, positions=np.array([0, 7, 20]),
        entropy=random.uniform(0, 9, (3, LAYERS, HEADS)).astype(np.float32), attended=np.array([1, 8, 21]),
        states=random.normal(size=(3, WIDTH)).astype(np.float16),
    )
    for index in range(1, tokens + 1):
        logits = Logits(1, 2, random.uniform(0, 1e5, 6), *random.normal(size=(3, 6)), random.normal(size=(HEADS, 6)))
        run.append(Step(
            index=index, token=int(random.integers(0, 49152)), text=texts[index - 1] if texts else f" w{index}",
            p=float(random.random()), p_eos=float(random.random()), spread=float(random.uniform(0, 8)),
            context=20 + index, attended=20 + index, goal=10, wanted=10, remaining=10 - index, seconds=index / 30,
            entropy=random.uniform(0, 9, (LAYERS, HEADS)).astype(np.float32) if probes else None,
            state=random.normal(size=WIDTH).astype(np.float16) if probes else None,
            logits=logits if probes and index % 4 == 0 else None,
            reading=reading if probes and index == 1 else None,
            looked=random.dirichlet(np.ones(3)).astype(np.float32) if probes else None,
            source=("a", " tool", "</s>") if probes and index == 1 else None,
            p_model=float(random.random()), p_eos_model=float(random.random()),
            sink_share=random.uniform(0, 1, LAYERS).astype(np.float32) if probes else None,
            tried=TRIED if index == 3 else None,
        ))
    run.append(Finish(
        reason="eos", text="some text", tokens=tokens, words=2, characters=9, error=tokens - 10, prompt_tokens=21,
        prefill_seconds=0.25, decode_seconds=tokens / 30, tokens_per_second=30.0, cache_bytes=123456, notes=("a", "b"),
        p_eos=0.5, p_eos_model=0.25, tried=TRIED[1:],
    ))
    return run


def assert_same(found, expected):
    """Equal up to float16 in entropies and four digits in logits."""
    if isinstance(expected, np.ndarray):
        assert found.shape == expected.shape
        if expected.dtype.kind == "i" or expected.dtype == np.float16:
            assert np.array_equal(found, expected)
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)
    elif dataclasses.is_dataclass(expected):
        for part in dataclasses.fields(expected):
            assert_same(getattr(found, part.name), getattr(expected, part.name))
    else:
        assert type(found) is type(expected) and found == expected


def assert_same_run(found, expected):
    assert (found.settings, found.capabilities, found.version, found.created) == (
        expected.settings, expected.capabilities, expected.version, expected.created,
    )
    events, wanted = list(found.events()), list(expected.events())
    assert len(events) == len(wanted)
    for one, other in zip(events, wanted, strict=True):
        assert_same(one, other)


# Round trips


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
@pytest.mark.parametrize("probes", [True, False])
def test_a_saved_run_comes_back(tmp_path, name, probes):
    run = make_run(probes=probes, window=64, distance_limit="off", watch=Watch(layer=3, enabled=probes))
    path = run.save(tmp_path / name)
    assert_same_run(Trace.load(path), run)
    assert_same_run(Trace.load(str(path)), run)
    assert_same_run(Trace.load(path.read_bytes()), run)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")


def test_a_run_without_an_end_comes_back():
    run = make_run()
    run.finish = None
    assert_same_run(Trace.load(run.to_json().encode()), run)


def test_a_run_saved_before_the_models_own_probabilities_comes_back():
    run = make_run()
    run.steps = [dataclasses.replace(step, p_model=None, p_eos_model=None) for step in run.steps]
    run.finish = dataclasses.replace(run.finish, p_eos_model=None)
    document = run.to_json()
    assert "_model" not in document
    assert_same_run(Trace.load(document.encode()), run)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_byte_order_mark_changes_nothing(encoding, pack):
    run = make_run(texts=HOSTILE * 2)
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    assert_same_run(Trace.load(pack((mark + run.to_json()).encode(encoding))), run)


def test_saving_again_changes_nothing():
    once = Trace.load(make_run().to_json().encode())
    assert Trace.load(once.to_json().encode()).to_json() == once.to_json()


@given(text=st.text(st.characters(exclude_categories=["Cs"])), goal=st.none() | st.integers(1, 10**5),
       remaining=st.none() | st.integers(-(10**5), 10**5), p=st.floats(0, 1), seconds=st.floats(0, 1e6))
def test_any_step_comes_back(text, goal, remaining, p, seconds):
    run = Trace(RunSettings(prompt="x"), created="2026-01-02T03:04:05+00:00")
    run.append(Step(1, 5, text, p, 1 - p, 0.5, 3, 3, goal, remaining, seconds, wanted=goal))
    assert_same_run(Trace.load(run.to_json().encode()), run)


def test_numpy_numbers_are_numbers():
    run = Trace(RunSettings(prompt="x"))
    run.append(Step(np.int64(1), np.int32(7), "a", np.float32(0.5), np.float64(0.25), np.float32(2), 3, 3, None, None,
                    0.0))
    step = Trace.load(run.to_json().encode()).steps[0]
    assert (step.index, step.token, step.p, step.p_eos) == (1, 7, 0.5, 0.25)


def test_a_long_run_is_compact():
    """At the embedded model's size a token's numbers take less than 3 kB."""
    entropy, state = np.random.rand(30, 9).astype(np.float32), np.random.rand(576).astype(np.float16)
    run = Trace(RunSettings(prompt="x"))
    for index in range(1, 101):
        run.append(Step(index, 1, " a", 0.5, 0.1, 1.0, 9 + index, 9, None, None, 0.1, entropy, state))
    assert len(run.to_json()) / 100 < 3000


def test_nothing_follows_the_finish():
    run = make_run()
    with pytest.raises(TraceError, match="finished"):
        run.append(run.steps[0])


def test_states_saturate_at_the_largest_float16():
    run = Trace(RunSettings(prompt="x"))
    run.append(Step(1, 1, "a", 0.5, 0.1, 1.0, 9, 9, None, None, 0.1, None, np.array([np.inf, -np.inf, 1], np.float16)))
    assert Trace.load(run.to_json().encode()).steps[0].state.tolist() == [65504, -65504, 1]


@pytest.mark.parametrize("change", [
    {"p": float("nan")}, {"seconds": float("inf")}, {"text": "\ud800"}, {"index": 2},
    {"entropy": np.full((LAYERS, HEADS), np.nan)}, {"entropy": np.zeros((LAYERS, HEADS + 1))},
    {"state": np.zeros(WIDTH + 1)}, {"sink_share": np.zeros(LAYERS + 1)}, {"sink_share": np.full(LAYERS, 2)},
])
def test_what_could_not_be_loaded_is_not_saved(change):
    run = make_run(1, probes=False)
    run.steps[0] = dataclasses.replace(run.steps[0], **change)
    with pytest.raises(TraceError, match="cannot be saved"):
        run.to_json()


# Damage


def damaged(path, value):
    """A saved run with one place of its JSON changed; `path` names keys and places."""
    document = json.loads(make_run(4).to_json())
    spot = document
    for key in path[:-1]:
        spot = spot[key]
    spot[path[-1]] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(("path", "value", "says"), [
    (["format"], "other", "not a trace"),
    (["version"], 2, "version 2"),
    (["created"], "yesterday", "damaged: created: the time of the run is not"),
    (["created"], "2026-01-02T03:04:05", "time zone"),
    (["settings", "target"], 0, "settings.target"),
    (["settings", "prompt"], " ", "prompt is empty"),
    (["settings", "surprise"], 1, "settings.surprise"),
    (["capabilities"], [], "capabilities"),
    (["capabilities", "layers"], LAYERS + 1, "model's"),
    (["capabilities", "rope_base"], float("inf"), "damaged: capabilities: the model's description"),
    (["capabilities", "model"], float("nan"), "capabilities"),
    (["steps"], {}, "steps"),
    (["steps", 1, "p"], float("nan"), "steps.1.p"),
    (["steps", 1, "p"], 1.5, "steps.1.p"),
    (["steps", 1, "p"], "1e999", "steps.1.p"),
    (["steps", 1, "p_model"], -0.5, "steps.1.p_model"),
    (["steps", 1, "p_eos_model"], 2, "steps.1.p_eos_model"),
    (["steps", 1, "p_model"], None, "or neither"),
    (["finish", "p_eos_model"], None, "some do not"),
    (["finish", "p_eos"], None, "drawn with"),
    (["steps", 1, "seconds"], -1, "steps.1.seconds"),
    (["steps", 1, "index"], 7, "one by one"),
    (["steps", 1, "index"], 10**30, "steps.1.index"),
    (["steps", 1, "text"], None, "steps.1.text"),
    (["steps", 1, "entropy"], [[1, 2], [3]], "damaged: steps.1.entropy: an array's rows differ"),
    (["steps", 1, "entropy"], [[1, 2], [3, 4]], "shape"),
    (["steps", 1, "entropy"], [1, 2], "layers, heads"),
    (["steps", 1, "entropy"], [["x"]], "other than numbers"),
    (["steps", 1, "entropy"], "abc", "other than numbers"),
    (["steps", 1, "entropy"], [[float("inf")] * HEADS] * LAYERS, "finite"),
    (["steps", 1, "sink_share"], [-0.1] * LAYERS, "from 0 to 1, one a layer"),
    (["steps", 1, "sink_share"], [0.1] * (LAYERS + 1), "shares of attention change their shape"),
    (["steps", 1, "entropy", "shape"], [LAYERS, HEADS + 1], "numbers"),
    (["steps", 1, "entropy", "shape"], [-1, -LAYERS * HEADS], "sizes"),
    (["steps", 1, "entropy", "shape"], [10**9, 10**9], "numbers"),
    (["steps", 1, "entropy", "shape"], [1, 1, LAYERS, HEADS], "shape"),
    (["steps", 1, "entropy", "f16"], "!!!", "damaged: steps.1.entropy: an array's numbers are not"),
    (["steps", 1, "entropy", "f16"], "AHwA" * 30, "finite"),
    (["steps", 1, "state"], [1e9] * WIDTH, "finite"),
    (["steps", 3, "logits", "low"], [1, 2], "bins"),
    (["steps", 3, "logits", "heads"], [[0.0] * 5] * HEADS, "heads, bins"),
    (["steps", 2, "tried", 0, "p_end"], 2, "p_end"),
    (["steps", 2, "tried"], "all", "tried"),
    (["steps", 3, "logits", "heads"], [[0.0] * 6] * 2, "watched head"),
    (["steps", 3, "logits", "heads"], [[0.0] * 6] * (HEADS + 1), "heads' logits have shape"),
    (["steps", 3, "logits", "layer"], -1, "layer"),
    (["steps", 0, "reading", "positions"], [1, 2], "differ in number"),
    (["steps", 0, "reading", "positions"], [0.5, 1, 2], "whole numbers"),
    (["steps", 0, "reading", "positions"], [2**63] * 3, "whole numbers"),
    *((["capabilities", "training_length"], value, "capabilities") for value in (
        "abc", [1], {"a": 1}, -5, 0, 10**30, 1e308, 0.5, True,
    )),
    (["capabilities", "layers"], "<b>", "capabilities"),
    (["capabilities", "unsupported"], {"pic": ["x"]}, "capabilities"),
    (["capabilities", "device"], 3, "capabilities"),
    *((["steps", 3, name], 2**53 - 1, f"steps.3.{name}") for name in ("context", "attended")),
    *((["steps", 3, name], 0, f"steps.3.{name}") for name in ("attended", "goal", "wanted")),
    (["steps", 3, "attended"], 10**6, "attends to more"),
    (["steps", 3, "looked"], [0.5, 0.5], "one for each token of the source"),
    (["steps", 3, "looked"], [0.5, -0.1, 0.6], "shares of attention"),
    (["steps", 3, "looked"], [0.9, 0.9, 0.9], "shares of attention"),
    (["steps", 0, "source"], None, "one for each token of the source"),
    (["steps", 3, "source"], ["a"], "only the first token"),
    (["steps", 3, "spread"], 1e308, "steps.3.spread"),
    *((["steps", 1, "entropy"], [[value] * HEADS] * LAYERS, "entropies are from 0") for value in (-5, 3e38)),
    (["steps", 1, "index"], 7, "^the trace is damaged: the tokens are not numbered"),
    (["steps", 3, "context"], 2 * 10**6, "grow by one"),
    (["steps", 1, "context"], 21, "grow by one"),
    (["steps", 3, "seconds"], 1e308, "steps.3.seconds"),
    (["steps", 3, "seconds"], 0.001, "seconds fall"),
    (["steps", 3, "logits"], {"layer": 0, "head": 0} | {name: [] for name in BINS}, "bins"),
    (["steps", 3, "logits", "distance"], [-1e30] * 6, "distances"),
    (["steps", 3, "logits", "distance"], [3e38] * 6, "distances"),
    (["steps", 3, "logits", "low"], [-3e38] * 6, "logits are from"),
    (["steps", 1, "entropy"], {"shape": [0, 9], "f16": ""}, "layers, heads"),
    (["steps", 1, "entropy"], {"shape": [9, 0], "f16": ""}, "layers, heads"),
    (["steps", 1, "state"], {"shape": [0], "f16": ""}, "two dimensions"),
    (["steps", 1, "state"], [1.0], "two dimensions"),
    (["steps", 0, "reading", "positions"], [-(2**62), -1, 0], "from 0"),
    (["steps", 0, "reading", "attended"], [-1, 0, 1], "from 0"),
    (["steps", 0, "reading", "tokens"], 2**53 - 1, "tokens"),
    (["finish", "decode_seconds"], 1e308, "decode_seconds"),
    (["finish", "reason"], "bored", "finish.reason"),
    (["finish", "notes"], [1], "finish.notes"),
])
def test_damage_is_named(path, value, says):
    with pytest.raises(TraceError, match=says):
        Trace.load(damaged(path, value))


@pytest.mark.parametrize("data", [
    b"", b"{", b"null", b"[]", b"\xff\xfe", b"PK\x03\x04", b"[" * 100_000, b'{"a":' * 50_000, b"1" * 10_000,
    b"\xef\xbb\xbf", b"\xff\xfe{", b"\xfe\xff\x00", b"\xff\xfe\x00\xd8",
    b'{"format": "length-lab-trace", "version": 1}', b'{"format": "length-lab-trace", "version": "x"}',
    b"\x1f\x8b", b"\x1f\x8b" + b"\x00" * 50, gzip.compress(b"{}", mtime=0)[:-3], gzip.compress(b"{}", mtime=0),
    gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0),
])
def test_other_files_are_refused(data):
    with pytest.raises(TraceError):
        Trace.load(data)


def test_pickles_are_never_opened(tmp_path):
    path = tmp_path / "run.json"
    path.write_bytes(b"cos\nsystem\n(S'touch " + str(tmp_path / "owned").encode() + b"'\ntR.")
    with pytest.raises(TraceError):
        Trace.load(path)
    assert not (tmp_path / "owned").exists()


def test_missing_files_and_folders_are_refused(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(TraceError, match="cannot be read"):
            Trace.load(path)


def test_large_files_are_refused_before_and_after_decompression(tmp_path, monkeypatch):
    bomb = gzip.compress(b" " * (trace.MAX_BYTES + 1))
    assert len(bomb) < 100_000
    with pytest.raises(TraceError, match="64 MiB"):
        Trace.load(bomb)
    run = make_run()
    path = run.save(tmp_path / "run.json")
    monkeypatch.setattr(trace, "MAX_BYTES", 1000)
    for source in (path, path.read_bytes(), gzip.compress(path.read_bytes())):
        with pytest.raises(TraceError, match="larger"):
            Trace.load(source)
    with pytest.raises(TraceError, match="too long"):
        run.save(tmp_path / "again.json")
    assert not (tmp_path / "again.json").exists()


def test_files_of_many_values_are_refused_before_they_are_parsed():
    for part in (b"[],", b"1,", b'{},'):
        data = gzip.compress(b'{"steps":[' + part * trace.MAX_VALUES + b"0]}")
        with pytest.raises(TraceError, match="more values"):
            Trace.load(data)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def places(value, path=()):
    """Every place of a JSON document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*path, key)
        yield from places(part, (*path, key))


DOCUMENT = json.loads(make_run(4).to_json())
PLACES = list(places(DOCUMENT))


def load_or_refuse(data):
    try:
        run = Trace.load(data)
    except TraceError as error:
        assert str(error)
    else:
        assert_same_run(Trace.load(run.to_json().encode()), run)
        run.to_csv(), run.to_script(), run.to_notebook()
        assert View.of(run).frame().encode()


LARGE = st.sampled_from([2**31, 2**53 - 1, 10**30, -(2**62), 1e38, 1e308, -1e308, 5e-324, 0, -1, [], {}, [[]], "<b>"])


@settings(max_examples=150, deadline=None)
@given(place=st.sampled_from(PLACES), value=JSON_VALUES | LARGE)
def test_any_change_is_loaded_and_shown_or_refused(place, value):
    load_or_refuse(damaged(place, value))


@settings(max_examples=150, deadline=None)
@given(cut=st.integers(0, 10_000), junk=st.binary(max_size=20), zipped=st.booleans())
def test_any_garbling_is_loaded_or_refused(cut, junk, zipped):
    data = make_run(2).to_json().encode()
    data = gzip.compress(data) if zipped else data
    cut %= len(data)
    load_or_refuse(data[:cut] + junk + data[cut + len(junk):])


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_loaded_or_refused(data):
    load_or_refuse(data)


# Exports


def test_csv_has_a_row_a_token():
    run = make_run(6, texts=[" a", "b,c", 'd"e', "f\ng", "", "h"])
    rows = list(csv.DictReader(io.StringIO(run.to_csv())))
    assert [row["text"] for row in rows] == [" a", "b,c", 'd"e', "f\ng", "", "h"]
    for row, step in zip(rows, run.steps, strict=True):
        assert (int(row["index"]), int(row["token"])) == (step.index, step.token)
        for name in ("p", "p_eos", "p_model", "p_eos_model"):
            assert float(row[name]) == getattr(step, name)
        for layer in range(LAYERS):
            assert float(row[f"entropy_layer_{layer}"]) == pytest.approx(step.entropy[layer].mean(), rel=1e-3)
            assert float(row[f"sink_share_layer_{layer}"]) == pytest.approx(step.sink_share[layer], rel=1e-3)


def test_csv_of_an_older_run_leaves_the_models_own_probabilities_empty():
    run = make_run(2)
    run.steps = [dataclasses.replace(step, p_model=None, p_eos_model=None) for step in run.steps]
    rows = list(csv.DictReader(io.StringIO(run.to_csv())))
    assert [(row["p_model"], row["p_eos_model"]) for row in rows] == [("", "")] * 2


def test_csv_without_probes_has_no_entropies():
    table = make_run(3, probes=False).to_csv()
    assert "entropy" not in table and "sink_share" not in table


def test_a_run_from_before_the_share_of_attention_was_recorded_is_shown_without_it():
    run = make_run(2)
    kept = json.loads(run.to_json())
    for step in kept["steps"]:
        del step["sink_share"]
    found = Trace.load(json.dumps(kept).encode())
    assert [step.sink_share for step in found.steps] == [None, None]
    assert [row["sink_share_layer_0"] for row in csv.DictReader(io.StringIO(found.to_csv()))] == ["", ""]


def test_csv_cells_are_no_formulas():
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "\r@x", "＝1", "a=b"]
    rows = list(csv.DictReader(io.StringIO(make_run(len(texts), texts=texts).to_csv(), newline="")))
    assert [row["text"] for row in rows[:-1]] == [f"'{text}" for text in texts[:-1]]
    assert rows[-1]["text"] == "a=b"
    assert rows[-1]["remaining"] == "1"


def settings_in(source):
    """The settings that a script makes, without running anything else of it."""
    names = {"RunSettings": RunSettings, "Watch": Watch}
    begin = source.index("settings = RunSettings(")
    exec(compile(source[begin:source.index("\ncontrol")], "script", "exec"), names)
    return names["settings"], names["targets"], names["stop"]


@pytest.mark.parametrize("prompt", HOSTILE)
def test_scripts_and_notebooks_survive_hostile_prompts(prompt):
    run = make_run(3, prompt=prompt, window=64, watch=Watch(layer=3), temperature=0.7, model=prompt[:20])
    source = run.to_script()
    compile(source, "script", "exec")
    assert source.isascii()
    assert settings_in(source) == (run.settings, {}, None)
    book = nbformat.from_dict(run.to_notebook())
    nbformat.validate(book)
    json.dumps(book)
    for cell in book.cells:
        if cell.cell_type == "code":
            compile(cell.source, "cell", "exec")


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip))
def test_any_prompt_makes_a_script(prompt):
    run = Trace(RunSettings(prompt=prompt))
    assert settings_in(run.to_script())[0] == run.settings


def test_a_script_changes_the_target_where_it_was_changed():
    run = make_run(6)
    run.steps[3:] = [dataclasses.replace(step, wanted=5) for step in run.steps[3:]]
    assert settings_in(run.to_script())[1] == {3: 5}


def test_a_script_makes_a_run_in_words_again_that_was_retargeted_and_stopped(lab, monkeypatch, capsys):
    run = Trace(RunSettings(prompt="Describe the sea.", method="exp_decay", target=90, unit="words"))
    control = Control()
    for event in lab.stream(run.settings, control):
        run.append(event)
        if len(run.steps) == 4:
            control.retarget(3)
        if len(run.steps) == 12:
            control.stop()
    assert [step.wanted for step in run.steps] == [90] * 4 + [3] * 8
    monkeypatch.setattr("backend.Lab", lambda: lab, raising=False)
    exec(compile(run.to_script(), "script", "exec"), {})
    text = "".join(step.text for step in run.steps)
    assert capsys.readouterr().out == f"{text}\n\nstopped: 12 tokens, error {run.finish.error}\n"


@pytest.mark.parametrize(("unit", "wanted"), [("tokens", [10, 10, 5]), ("words", [10, 10, 10])])
def test_a_file_that_tells_no_wanted_target_is_read(unit, wanted):
    document = json.loads(make_run(3, unit=unit).to_json())
    for step in document["steps"]:
        del step["wanted"]
    document["steps"][2]["goal"] = 5
    assert [step.wanted for step in Trace.load(json.dumps(document).encode()).steps] == wanted


@pytest.mark.parametrize(
    ("method", "goal", "unit"), [("mnt_ldpe", 10, "tokens"), ("mnt_ldpe", 14, "words"), ("ldpe", 10, "words")]
)
def test_an_older_files_limit_counts_tokens(method, goal, unit):
    document = json.loads(make_run(3, unit="words").to_json())
    document["settings"] |= {"method": method, "limit": 10}
    document["steps"][0] |= {"goal": None, "wanted": None, "remaining": None, "thinking": True}
    document["steps"][1]["goal"] = goal
    found = Trace.load(json.dumps(document).encode())
    assert found.settings.unit == unit and found.steps[1].wanted == 10


def test_the_array_limit_is_the_one_lists_are_chosen_by():
    small = np.ones((4, 8), np.float32)
    assert isinstance(arrays._by_size(small), list)
    assert isinstance(arrays._by_size(np.ones((3, 11), np.float32)), dict)
