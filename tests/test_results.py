"""Recorded results: the page shows the numbers of the files, and a sentence where a file is missing, damaged or odd."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator
from math import exp
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import orjson
import pytest
from playwright.sync_api import expect
from starlette.applications import Starlette
from starlette.testclient import TestClient
from test_app_browser import Visitor, browser  # noqa: F401

from app import __main__ as app
from app import benchmarks, charts, diagnoses, lengths, published, results
from app import page as lab_page
from app.benchmarks import KINDS, EndMark
from app.computation import Computation
from app.controls import METHODS
from app.runs import Runs
from app.tabs import results as tab
from backend import adapters
from backend.adapters import available
from backend.engine import Lab
from backend.models import Models

RECORDED = Path(__file__).parents[1] / "assets" / "results"
PROVENANCE = {
    "command": "python -m backend evaluate length", "commit": "0123456789abcdef+changes", "date": "2026-11-21T12:00:00",
    "seed": 0, "machine": {"processor": "a CPU", "cores": 2, "memory_bytes": 2**34, "gpu": None},
    "versions": {"torch": "2.13.0"},
}  # fmt: skip
SPREAD = {"none": 90, "prompted": 40, "exp_decay": 9, "ldpe": 3, "orpe": 4, "pre": 2, "mnt_ldpe": 5}
TARGETS = (10, 40, 100, 200, 300, 500, 1000)


def answer(target: int, count: int, **more) -> dict:
    plain = {"kind": "questions", "prompt": 0, "ended": True, "natural": True, "unit": "tokens", "changed_from": None}
    return plain | {"target": target, "count": count, "tokens": count} | more


def answers(method: str) -> list[dict]:
    rng, spread = np.random.default_rng(len(method)), SPREAD[method]
    near = [answer(t, max(1, int(t + rng.normal(0, spread)))) for t in TARGETS for _ in range(6)]
    words = [answer(25, 25 + int(rng.normal(0, spread)), unit="words", tokens=33)]
    characters = [answer(n, n + spread, unit="characters", tokens=n // 5) for n in (30, 50, 75, 150)]
    asked = [answer(24, 24 + spread, kind="summaries")]
    return [*near, answer(100, 100), *words, *characters, answer(60, 60 + spread, changed_from=120), *asked]


def told(method: str) -> list[dict]:
    """The answers to the targets that every prompt meets."""
    found = [a for a in answers(method) if a["unit"] == "tokens" and not a["changed_from"]]
    return [a for a in found if a["kind"] != "summaries"]


def summary(found: list[dict]) -> dict:
    errors = [a["count"] - a["target"] for a in found]
    size = [abs(error) for error in errors]
    return {
        "answers": len(found), "mae": statistics.mean(size), "sd": statistics.pstdev(size),
        "bias": statistics.mean(errors), "variance": statistics.mean(error**2 for error in errors),
        "outliers": statistics.mean(n > 20 for n in size), "over": statistics.mean(error > 0 for error in errors),
        "ended": 0.975, "natural": 0.9, "median": statistics.median(size),
    }  # fmt: skip


def document(method: str) -> dict:
    found = answers(method)
    plain = told(method)
    groups = {
        "10-200": [a for a in plain if a["target"] <= 200],
        "300-1000": [a for a in plain if a["target"] >= 300],
        "words": [a for a in found if a["unit"] == "words"],
        "characters": [a for a in found if a["unit"] == "characters"],
        "changed": [a for a in found if a["changed_from"]],
        "summaries": [a for a in found if a["kind"] == "summaries"],
        "10-200 questions": [a for a in plain if a["target"] <= 200],
    }
    return PROVENANCE | {
        "method": method, "model": "embedded", "answers": found, "quality": {"perplexity_ratio": 1.25, "rouge1": 0.41},
        "summary": {name: summary(group) for name, group in groups.items()},
    }  # fmt: skip


def write(folder: Path, method: str, content: dict) -> None:
    (folder / "length").mkdir(exist_ok=True)
    (folder / "length" / f"{method}.json").write_text(json.dumps(content))


def copied(folder: Path) -> None:
    """The lab's own files of every kind, into a folder."""
    for name in KINDS:
        if (RECORDED / name).exists():
            (folder / name).write_bytes((RECORDED / name).read_bytes())


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder of results that the app reads: seven methods, and the recorded benchmarks."""
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    for method in SPREAD:
        write(tmp_path, method, document(method))
    copied(tmp_path)
    return tmp_path


def opened() -> dict[str, Any]:
    """What the tab holds once it is opened: values of its components by their id."""
    with gr.Blocks() as demo:
        tab._content()
    return {block.elem_id: block.value for block in demo.blocks.values() if isinstance(block, gr.HTML)}


def row(method: str, name: str = "10-200") -> dict[str, str]:
    table = lengths.comparison(lengths.recorded(), name)
    found = next(row for row in table.rows if row[0] == METHODS[method][0])
    assert len(found) == len(table.columns)
    return dict(zip(table.columns, found, strict=True))


@pytest.mark.parametrize("name", lengths.RANGES)
@pytest.mark.parametrize("method", ["none", "ldpe", "mnt_ldpe"])
def test_the_comparison_shows_the_summary_of_the_file(folder, method, name):
    told, shown = document(method)["summary"][name], row(method, name)
    assert shown["answers"] == str(told["answers"])
    assert [float(n.replace(",", "")) for n in shown["MAE ± SD"].split(" ± ")] == pytest.approx(
        [told["mae"], told["sd"]], abs=0.0051
    )
    assert float(shown["bias"].replace("−", "-")) == pytest.approx(told["bias"], abs=0.0051)
    assert float(shown["variance"].replace(",", "")) == pytest.approx(told["variance"], rel=0.0051)
    shares = {"> 20 off": "outliers", "ended by the model": "ended", "natural endings": "natural"}
    shares |= {"over the limit": "over"} if method == "mnt_ldpe" else {}
    for column, key in shares.items():
        assert float(shown[column].removesuffix(" %")) == pytest.approx(100 * told[key], abs=0.05), column
    assert (shown["over the limit"] == "–") == (method != "mnt_ldpe")
    assert shown[lengths.RATIO] == "1.25" and float(shown["median"]) == pytest.approx(told["median"], abs=0.5)


def test_variances_stand_beside_the_papers(folder):
    table = lengths.variances(lengths.recorded())
    shown = {row[0]: row[1:] for row in table.rows}
    assert table.columns[1:] == ["30 characters", "50 characters", "75 characters"]
    assert shown["LDPE"] == ["9.00"] * 3 and shown["LDPE (001, headlines)"] == ["0.015", "0.012", "0.013"]


def test_summaries_are_drawn_by_their_length(folder):
    for chart in (lengths.likeness, lengths.strayed):
        assert chart(lengths.recorded()).summary == "Nothing of this is measured yet."
    rows = [
        {"target": f"{low} to {low + 9}", "answers": n, "mae": 9.0, "bert_score": score, "rouge1": 0.3}
        for low, n, score in ((10, 1, 0.4), (20, 3, 0.6))
    ]
    write(folder, "ldpe", document("ldpe") | {"summaries": rows})
    write(folder, "pre", document("pre") | {"summaries": rows[1:]})
    chart = lengths.likeness(lengths.recorded())
    assert chart.layout["xaxis"]["categoryarray"] == ["10 to 19", "20 to 29"]
    assert [(trace["name"], list(trace["y"])) for trace in chart.data] == [("LDPE", [0.4, 0.6]), ("PRE", [0.6])]
    assert chart.summary.startswith("Mean of all: LDPE 0.550, PRE 0.600.")
    errors = lengths.strayed(lengths.recorded())
    assert [trace["customdata"] for trace in errors.data] == [[9.0, 9.0], [9.0]]
    assert [trace["y"] for trace in errors.data] == [[1.0, 1.0], [1.0]] and "9" in errors.summary


def test_the_papers_figures_stand_in_the_marked_column(folder):
    table = lengths.comparison(lengths.recorded(), "10-200")
    assert table.columns[table.quoted] == "the papers’ own figures"
    assert "mean error < 3 tokens" in row("ldpe")["the papers’ own figures"]
    assert "0.5 ± 0.3 (CNN/DM)" in row("pre")["the papers’ own figures"]
    assert "19.8 %" in row("pre", "300-1000")["the papers’ own figures"]
    assert row("mnt_ldpe")["the papers’ own figures"] == "–"


def test_every_answer_of_the_range_is_a_point(folder):
    chart = lengths.targets(lengths.recorded(), "10-200")
    traces = {trace["name"]: trace for trace in chart.data}
    assert [traces["target: equal"][axis] for axis in "xy"] == [[10, 200], [10, 200]]
    for method in SPREAD:
        trace = traces[METHODS[method][0]]
        drawn = Counter(dict(zip(zip(trace["x"], trace["y"], strict=True), trace["customdata"], strict=True)))
        asked = [a for a in told(method) if a["target"] <= 200]
        assert drawn == Counter((a["target"], a["count"]) for a in asked), method


def test_words_and_changed_targets_are_kept_apart(folder):
    found = lengths.recorded()["ldpe"].data
    assert [a.unit for a in found.within("words")] == ["words"]
    assert [a.changed_from for a in found.within("changed")] == [120]
    assert len(found.within("10-200 questions")) == len(found.within("10-200")) == 25
    assert found.within("10-200 articles") == found.within("something else") == []


def test_boxes_are_the_quantiles_of_the_errors(folder):
    chart = lengths.errors(lengths.recorded(), "300-1000")
    box, middle = chart.data
    table = {line[0]: line for line in chart.rows}
    for method in SPREAD:
        label = METHODS[method][0]
        wrong = [a["count"] - a["target"] for a in answers(method) if a["target"] >= 300]
        at = np.quantile(wrong, (0.05, 0.25, 0.5, 0.75, 0.95))
        assert table[label][2:7] == pytest.approx(at) and table[label][7] == pytest.approx(np.mean(wrong))
        drawn = [box[key][box["y"].index(label)] for key in ("lowerfence", "q1", "median", "q3", "upperfence")]
        assert np.sign(drawn) * (10 ** np.abs(drawn) - 1) == pytest.approx(at, rel=1e-3, abs=1e-3)
    assert list(middle["x"]) == list(box["median"])


def test_the_limit_chart_counts_who_passes(folder):
    chart = lengths.limits(lengths.recorded())
    plain = told("mnt_ldpe")
    over = sum(a["count"] > a["target"] for a in plain)
    assert over > 0 and chart.summary.startswith(f"MNT++ LDPE: {over} of {len(plain)} answers pass their limit, and")
    middle = statistics.median(a["count"] for a in plain if a["target"] == 1000)
    assert chart.summary.endswith(f"limited to 1,000 tokens have at most {middle:,.0f}.")
    assert sum(line[5] for line in chart.rows) == over
    medians = next(trace for trace in chart.data if trace["name"] == "MNT++ LDPE, median")
    by_limit = {t: statistics.median(a["count"] for a in plain if a["target"] == t) for t in TARGETS}
    assert dict(zip(medians["x"], medians["y"], strict=True)) == by_limit


def test_outliers_beyond_training_stand_beside_those_of_003(folder):
    chart = lengths.outliers(lengths.recorded())
    traces = {trace["name"]: trace for trace in chart.data}
    assert set(traces) == {"RPE in 003", "PRE in 003", "LDPE", "ORPE", "PRE"}
    assert len(traces["RPE in 003"]["x"]) == len(traces["RPE in 003"]["y"]) == 14
    assert (traces["PRE in 003"]["y"][0], traces["PRE in 003"]["y"][-1]) == (0.4, 19.8)
    content = document("ldpe")
    content["answers"] = [answer(500, 500), answer(500, 521), answer(500, 479), answer(500, 520), answer(800, 700)]
    write(folder, "ldpe", content)
    trace = next(trace for trace in lengths.outliers(lengths.recorded()).data if trace["name"] == "LDPE")
    assert (trace["x"], trace["y"]) == ([500, 800], [50.0, 100.0])


def test_what_is_not_measured_says_the_command(folder):
    table = lengths.comparison(lengths.recorded(), "10-200")
    lrpe = next(row for row in table.rows if row[0] == "LRPE")
    assert lrpe[1] == "Not measured yet: python -m backend evaluate length --method lrpe"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"command": "x", "answers": [', "it is not JSON (line 1"),
        (b"\xff\xfe\x00", "it is not UTF-8 text"),
        (b"[1, 2]", "its content"),
        (b"", "it is not JSON"),
        (b"[" * 200_000, "recursion"),
        (json.dumps(document("ldpe") | {"answers": [answer(5, 5) | {"tokens": "many"}]}).encode(), "answers.0.tokens"),
        (json.dumps({k: v for k, v in document("ldpe").items() if k != "summary"}).encode(), "summary: field required"),
        (json.dumps(document("pre")).encode(), "holds the method pre"),
    ],
)
def test_a_damaged_file_is_a_sentence_and_spoils_nothing_else(folder, content, words):
    (folder / "length" / "ldpe.json").write_bytes(content)
    shown = opened()["results-comparison"]
    found = lengths.recorded()["ldpe"]
    assert found.data is None and words in found.problem and len(found.problem) < 300
    assert "length/ldpe.json" in found.problem and "--method ldpe" in found.problem
    assert "length/ldpe.json" in shown and ">PRE</th><td>25</td>" in shown
    assert "LDPE" not in [trace["name"] for trace in lengths.targets(lengths.recorded(), "10-200").data]


def test_a_folder_where_a_file_should_be_and_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path / "none")
    shown = opened()
    assert shown["results-comparison"].count("Not measured yet") == len(lengths.STYLES)
    for name, kind in KINDS.items():
        assert f"Not measured yet: {kind.command}" in shown[f"results-{name.removesuffix('.json').replace('/', '-')}"]
    for name in ("targets", "errors"):
        assert getattr(lengths, name)(lengths.recorded(), "words").summary == "Nothing of this is measured yet."
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    (tmp_path / "length" / "pre.json").mkdir(parents=True)
    assert "length/pre.json cannot be used" in lengths.recorded()["pre"].problem


def test_odd_content_is_shown_not_refused(folder):
    content = document("pre")
    content["summary"]["10-200"] |= {"mae": float("nan"), "median": None, "landed": True, "s_l": 97.25, "odd": [1]}
    content["summary"]["<b>mine"] = summary(content["answers"])
    content |= {"quality": None, "note": "a key of later versions"}
    content["answers"][0]["seconds"] = 3.5
    write(folder, "pre", content)
    shown = row("pre")
    assert shown["MAE ± SD"].startswith("– ± ") and shown["median"] == "–" and shown[lengths.RATIO] == "–"
    assert (shown["landed"], shown["s l"], shown["odd"]) == ("yes", "97.2", "[1]")
    assert row("none")["s l"] == "–"
    assert tab._options(lengths.recorded())[-1]["id"] == "<b>mine"
    html = tab._ranged("<b>mine")[0]
    assert "<b>mine" not in html and "&lt;b&gt;mine" in html


def test_all_charts_are_small_and_valid_json(folder):
    shown = {name: orjson.loads(value) for name, value in opened().items() if name and name.startswith("chart-")}
    lengths_own = ("targets", "errors", "limits", "outliers", "likeness", "strayed")
    own = (*lengths_own, "bench", "bench_long", "longform", "longform-1", "longform-2")
    longer = {f"chart-r-longform{which}" for which in ("_many", "_many-1", "_greedy", "_greedy-1")}
    known = {f"chart-r-{name}" for name in own}
    diagnosed = {f"chart-r-diagnoses{number}" for number in ("", "-1", "-2")}
    fluent = {f"chart-r-perplexity{which}" for which in ("", "_novels", "_pydoc")} | {"chart-r-computation"}
    assert known <= set(shown) <= known | diagnosed | longer | fluent
    for name, chart in shown.items():
        measured = name not in ("chart-r-likeness", "chart-r-strayed")
        assert len(chart["summary"]) > 30 and bool(chart["rows"]) == measured, name
        assert all(len(line) == len(chart["columns"]) for line in chart["rows"]), name
        assert len(orjson.dumps(chart)) < 100_000, name
    for chart in map(orjson.loads, tab._ranged("words")[1:]):
        assert "words" in chart["layout"]["xaxis"]["title"]["text"]
    for theme in ("light", "dark"):
        assert charts.figure(lengths.errors(lengths.recorded(), "10-200"), theme).data


def test_the_recorded_benchmarks_show_their_own_numbers():
    bench = json.loads((RECORDED / "bench.json").read_text())
    shown = benchmarks.speed(benchmarks.Bench.model_validate(bench))
    decoding = {line[0]: line[1:] for line in shown.tables[0].rows}
    contexts = [int(name.replace(",", "")) for name in shown.tables[0].columns[1:]]
    rates = bench["short"] + bench.get("long", [])
    for rate in rates:
        cell = decoding[rate["case"]][contexts.index(rate["context"])]
        assert float(cell) == pytest.approx(rate["decode"], rel=0.0051), rate
    lines = {trace["name"]: dict(zip(trace["x"], trace["y"], strict=True)) for trace in shown.figures[0].chart.data}
    plain = {r["context"]: r["decode"] for r in rates if r["case"] == "transformers bf16"}
    assert lines["transformers bf16"] == plain
    assert "3.16×" in shown.words and bench["page"]["commit"][:10] in shown.apart
    long = json.loads((RECORDED / "longform.json").read_text())
    table = benchmarks.long_answers(benchmarks.LongForm.model_validate(long)).tables[0]
    told = {line[0]: line for line in table.rows}
    assert set(told) == set(long["summary"])
    four = told["dynamic contiguous s=4"]
    mean = four[list(table.columns).index("tokens, mean")]
    assert float(mean.replace(",", "")) == pytest.approx(long["summary"][four[0]]["tokens_mean"], rel=0.0051)
    assert four[table.quoted].startswith("LLaMA-3.1-8B 1,444 (0.81)") and "1,076" in told["plain"][table.quoted]
    long = json.loads((RECORDED / "pic_sft.json").read_text())
    shown = benchmarks.trained(benchmarks.LongForm.model_validate(long))
    assert "5,033 (4.07)" in {row[0]: row[-1] for row in shown.tables[0].rows}["dynamic PIC-SFT, dynamic s=4"]


def test_a_new_file_is_shown_without_a_kind_of_its_own(folder):
    rows = [{"case": "<i>Λ", "context": 131072, "decode": 20.125}]
    (folder / "newer.json").write_text(json.dumps(PROVENANCE | {"rows": rows, "note": "flat"}))
    (folder / "broken.json").write_text("{")
    shown = opened()
    for part in ("131,072", "20.1", "note: flat", "&lt;i&gt;Λ"):
        assert part in shown["results-newer"], part
    assert "broken.json cannot be used" in shown["results-broken"]


def test_provenance_names_command_commit_date_and_machine(folder):
    line = lengths.recorded()["ldpe"].data.provenance
    for part in (
        "evaluate length",
        "commit 0123456789+changes",
        "2026-11-21 12:00",
        "a CPU",
        "16.0 GiB",
        "torch 2.13.0",
    ):
        assert part in line
    assert "gpu" not in line


def test_only_result_files_can_be_downloaded(folder):
    (folder.parent / "secret.json").write_text("{}")
    (folder / "note.txt").write_text("no")
    client = TestClient(Starlette(routes=[results.route()]))
    assert client.get("/lab/results/length/ldpe.json").json()["method"] == "ldpe"
    for name in ("../secret.json", "%2e%2e/secret.json", "note.txt", "length", "", "length/lrpe.json", "/etc/passwd"):
        assert client.get(f"/lab/results/{name}").status_code == 404, name


def test_nothing_is_read_or_made_before_the_tab_is_opened(monkeypatch):
    monkeypatch.setattr(tab, "_content", lambda: pytest.fail("the tab was not opened"))
    with gr.Blocks() as demo, gr.Tab("Results") as shown:
        tab.build(shown)
    assert not any(isinstance(block, gr.HTML) for block in demo.blocks.values())


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "FOLDER", folder)
        for method in SPREAD:
            write(folder, method, document(method))
        (folder / "length" / "prompted_tuned.json").write_text("{broken")
        copied(folder)
        lab = Lab(Models(["embedded"]))
        lab.capabilities()
        demo = lab_page.build(lab, available, Runs())
        yield app.serve(demo)
        demo.close()


def open_tab(visitor: Visitor) -> None:
    page = visitor.page
    shown = page.get_by_role("tab", name="Results")
    if not shown.is_visible():
        page.locator(".overflow-menu button").first.click()
        shown = page.locator(".overflow-dropdown button", has_text="Results")
    shown.click()
    page.wait_for_selector("#results-comparison tbody tr")
    for name in ("r-targets", "r-errors", "r-limits", "r-outliers", "r-bench"):
        page.wait_for_selector(f"#chart-{name} .main-svg", state="attached")


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_tab_shows_tables_and_figures(browser, address, width, theme):  # noqa: F811
    visitor = Visitor(browser, address, f"?__theme={theme}", viewport={"width": width, "height": 844})
    open_tab(visitor)
    page = visitor.page
    assert page.locator("#results-comparison tbody tr").count() == len(lengths.STYLES)
    expect(page.locator("#results-comparison")).to_contain_text("length/prompted_tuned.json cannot be used")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    colours = set(page.evaluate("document.querySelector('#chart-r-bench .ll-plot').data.map((t) => t.line.color)"))
    other = charts.PALETTES["dark" if theme == "light" else "light"]
    assert colours <= set(charts.PALETTES[theme].values()) and not colours <= set(other.values())
    links = page.locator("#results-contents a")
    assert links.count() > len(KINDS)
    for place in links.evaluate_all("(all) => all.map((a) => a.getAttribute('href'))"):
        assert page.locator(place).count() == 1, place
    links.last.click()
    assert page.locator(place).evaluate("(found) => found.getBoundingClientRect().top < innerHeight")
    for part in ("#results-bench-tables table", "#results-longform-tables table", "#results-length .ll-sources a"):
        page.locator(part).first.scroll_into_view_if_needed()
        assert page.locator(part).first.is_visible(), part
    visitor.close()


def test_the_range_is_chosen_by_keyboard_and_files_are_downloaded(browser, address, tmp_path):  # noqa: F811
    visitor = Visitor(browser, address)
    page = visitor.page
    page.evaluate("window.before = document.querySelector('#chart-length .ll-plot')")
    open_tab(visitor)
    page.locator("#choice-range input[value='10-200']").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#results-comparison caption")).to_contain_text("Beyond training")
    page.wait_for_function("document.querySelector('#chart-r-targets .ll-plot').data[0].x[0] === 300")
    page.locator("#choice-range input[value='300-1000']").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#results-comparison') !== null")
    chart = page.locator("#chart-r-errors")
    chart.get_by_role("button", name="Table").click()
    assert chart.locator("tbody tr").count() == len(SPREAD)
    assert "median error" in chart.locator(".ll-words").inner_text()
    with page.expect_download() as download:
        page.get_by_role("link", name="length/ldpe.json").click()
    download.value.save_as(tmp_path / "ldpe.json")
    assert json.loads((tmp_path / "ldpe.json").read_text()) == document("ldpe")
    page.get_by_role("tab", name="Generate").click()
    assert page.evaluate("window.before === document.querySelector('#chart-length .ll-plot')")
    open_tab(visitor)
    assert page.locator("#chart-r-errors").count() == 1
    visitor.close()


def test_fluency_is_told_by_policy_and_length():
    result = benchmarks.Fluency(
        perplexity=[{"policy": "Λ", "8,192": 20.5}, {"policy": "plain", "8,192": 19.25, "16,384": 800.0}],
        same_tokens=[{"tokens": 16384, "documents": 1, "ratio": 1.03}],
        readings=[
            {"document": "a", "policy": "plain", "start": 0, "position": [2048, 4096], "nll": [3.0, 20.0]},
            {"document": "a", "policy": "Λ", "start": 0, "position": [2048, 4096], "nll": [3.0, 2.5]},
            {"document": "a", "policy": "Λ", "start": 512, "position": [2048, 4096], "nll": [9.0, 9.0]},
        ],
    )
    shown = benchmarks.fluency(result)
    assert shown.tables[0].rows == [["Λ", "20.5", "–"], ["plain", "19.2", "800"]]
    assert "16,384 tokens into a text Λ has 1.03×" in shown.words
    assert [list(trace["y"]) for trace in shown.figures[0].chart.data] == [[3.0, 12.0], [3.0, 2.5]]
    once = {"policy": "truncation", "position": [2048], "nll": [9]}
    result.readings.append(result.readings[0].model_copy(update=once))
    result.perplexity.append({"policy": "truncation", "8,192": exp(2.5), "16,384": None})
    points = benchmarks.fluency(result).figures[0].chart.data[-1]
    assert (points["mode"], points["x"], points["y"]) == ("markers", [8192], [2.5])


def test_recall_is_told_by_policy_and_length():
    def row(policy, tokens, rouge):
        return {"policy": policy, "tokens": tokens, "documents": 2, "BLEU": 1.5, "ROUGE-Lsum": rouge}

    def key(policy, back, told):
        return {"policy": policy, "tokens": 512, "depth": 1 - back / 512, "back": back, "told": told}

    short = [key(policy, 64, 1.0) | {"tokens": 128} for policy in ("plain", "Λ 128")]
    seen = [key("plain", 384, 0.75), key("plain", 64, 1.0), key("Λ 128", 384, 0.0), key("Λ 128", 64, 0.5)]
    result = benchmarks.Recall(
        continuations=benchmarks.Part(rows=[row("plain", 2048, 0.1), row("Λ", 2048, 0.125), row("Λ", 4096, 0.25)]),
        passkeys=benchmarks.Passkeys(
            keys=2, windows={"plain": None, "Λ 128": 128}, rows=[*seen, *short], command="again"
        ),
    )
    shown = benchmarks.recall(result)
    assert "12.5 after 2,048 tokens and of 25.0 after 4,096" in shown.words
    assert "outside its window Λ tells 0.0 %, plain attention 75.0 % of the same" in shown.words
    assert "within its window Λ tells 50.0 %, plain attention 100.0 %" in shown.words
    assert shown.tables[1].rows == [["plain", "10.0", "–"], ["Λ", "12.5", "25.0"]]
    assert shown.tables[2].rows[2:] == [["Λ 128", "0.250", "–", "0.0 %"], ["Λ 128", "0.875", "100.0 %", "50.0 %"]]
    assert "passkeys: again" in shown.apart
    nothing = benchmarks.recall(benchmarks.Recall())
    assert nothing.words == "" and nothing.tables[0].rows == []


def test_lines_of_the_speed_chart_are_told_apart():
    cases = ["transformers bf16", "engine bf16", "engine bf16, dynamic PIC", "algorithm 1"]
    cases += [f"engine bf16, Λ {window}" for window in (1024, 2048, 4096)]
    rate = benchmarks.Rate(case="engine bf16", context=4096, decode=50.0, cache=2**30, rotations=2.5)
    rates = [benchmarks.Rate(case=case, context=4096, decode=50.0) for case in cases]
    chart = benchmarks.speed(benchmarks.Bench(long=[rate, *rates])).figures[0].chart
    looks = {(trace["line"]["color"], trace["line"]["dash"]) for trace in chart.data}
    assert len(looks) == len(chart.data) == len(cases)
    told = dict(zip(chart.columns, chart.rows[0], strict=True))
    assert (told["ms per token"], told["cache"], told["rotations per token"]) == ("20.0", "1.00 GiB", "2.50")


def test_what_parts_of_lambda_mend_is_what_the_rows_say():
    def told(**rows):
        found = [{"policy": name.replace("_", " "), "8,192": 9.0, "16,384": value} for name, value in rows.items()]
        return benchmarks.ablation(benchmarks.Fluency(perplexity=found)).words

    whole = {benchmarks.WHOLE: 10.0}
    words = told(plain=1000.0, limit_alone=100.0, window_alone=1000.0, **whole)
    assert "After 16,384 tokens Λ brings a perplexity of 1,000 down to 10.0." in words
    assert words.endswith("limit alone (unseen distances) 50.0 % (100); window alone (too many keys) 0.0 % (1,000).")
    assert told(plain=1000.0, **whole).endswith("down to 10.0.")
    assert told(plain=9.0, **whole) == told(plain=1000.0) == ""


def test_long_answers_are_ranked_over_prompts_that_both_answered():
    summary = {
        "plain": {"tokens_mean": 900.0, "shared": 8, "lengthening": 1.0},
        "NTK s=4": {"tokens_mean": 2000.0, "shared": 3, "lengthening": 2.125, "judged": 3.5},
        "dynamic literal s=4": {"tokens_mean": 800.0, "shared": 5, "lengthening": 1.5},
    }
    few = benchmarks.long_answers(benchmarks.LongForm(summary=summary)).words
    assert few == "At most 5 prompts were answered uncorrupted by two of these: too few to rank them."
    summary["dynamic literal s=4"] |= {"shared": 7, "lengthening_low": 0.5, "lengthening_high": 2.25}
    shown = benchmarks.long_answers(benchmarks.LongForm(summary=summary))
    assert shown.words.startswith("dynamic literal s=4 writes 1.50× the words of plain (7 prompts")
    costs = {name: row | {"perplexity": 20.0 if name == "plain" else 25.0} for name, row in summary.items()}
    dearer = benchmarks.long_answers(benchmarks.LongForm(summary=costs)).words
    assert dearer.endswith("0.50 to 2.25), at a base perplexity of 25.0 against 20.0.")
    assert "(7 prompts that neither answered corruptly; 95 % of draws of such prompts have 0.50 to 2.25)" in dearer
    summary["plain"]["corrupted"] = 0.25
    summary["dynamic literal s=4"] |= {
        "lengthening_apart": 2.5, "lengthening_apart_low": 1.0, "lengthening_apart_high": 4.0
    }
    many = benchmarks.long_answers(benchmarks.LongForm(summary=summary)).words
    assert "0.50 to 2.25), 2.50× (1.00 to 4.00) over each one's own uncorrupted answers, which 004 counts where" in many
    table = shown.tables[0]
    told = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert told["NTK s=4"]["judged"] == "3.50"
    assert shown.tables[1].columns[1:] == ["prompts", "words"]
    assert shown.tables[1].rows[1:] == [["NTK s=4", "3", "2.12"], ["dynamic literal s=4", "7", "1.50 (0.50 to 2.25)"]]
    assert told["NTK s=4"][table.columns[-1]].startswith("LLaMA-3.1-8B 1,605 (7.32)")
    assert told["dynamic literal s=4"][table.columns[-1]].startswith("LLaMA-3.1-8B 1,444 (0.81)")
    assert "S_l" not in table.columns
    older = benchmarks.LongForm(summary={"plain": {"tokens_mean": 900.0}})
    assert benchmarks.long_answers(older).words == ""


def test_lengths_asked_for_stand_beside_those_of_004():
    summary = {"w/o SFT, plain": {"s_l": 18.0}, "dynamic PIC-SFT, dynamic s=4": {"s_l": 40.5}}
    shown = benchmarks.asked_for_many(benchmarks.LongForm(summary=summary))
    alone = benchmarks.asked_for(benchmarks.LongForm(summary=summary))
    assert alone.words == shown.words and [row[1:] for row in alone.tables[0].rows] == [["18.0"], ["40.5"]]
    assert shown.words == "dynamic PIC-SFT, dynamic s=4 keeps best to the lengths asked for: S_l 40.5 of 100."
    assert [row[1:] for row in shown.tables[0].rows] == [
        ["18.0", "LLaMA-3.1-8B 18.87, Qwen-2.5-7B 41.59, GLM-4-9B 27.03"],
        ["40.5", "LLaMA-3.1-8B 82.08, Qwen-2.5-7B 84.15, GLM-4-9B 76.48"],
    ]
    assert benchmarks.asked_for(benchmarks.LongForm(summary={})).words == ""


def test_llama_cpp_is_told_beside_the_engine():
    rates = [benchmarks.Rate(case="llama.cpp Q4_1", context=n, prefill=200, decode=40) for n in (128, 2048)]
    rates += [benchmarks.Rate(case="engine int4", context=2048, prefill=800, decode=80)]
    shown = benchmarks.beside_llama(benchmarks.Bench(short=rates))
    assert shown.words == "After 2,048 tokens engine int4 decodes 80.0 tokens/s, llama.cpp Q4_1 40.0 (2.0×)."
    assert shown.tables[0].rows == [["llama.cpp Q4_1", "40.0", "40.0"], ["engine int4", "–", "80.0"]]


def test_diagnoses_are_drawn_as_002_draws_them():
    head = {"layer": 0, "head": 0, "distance": [0, 9000], "mean": [1, -2], "low": [0, -70], "high": [2, 3]}
    reading = {"document": "a", "position": [8, 16], "attended": [8, 16], "entropy": [[1.0, 2.0], [2.0, 3.0]]}
    readings = [reading | {"policy": name, "logits": [head]} for name in ("plain", "Λ")]
    text = {"document": "a", "position": [0, 15], "x": [5.0, 0.5], "y": [-1.0, 0.25]}
    states = {"explained": [0.5, 0.25], "texts": [text, text | {"document": "b"}]}
    shown = diagnoses.diagnosed(
        diagnoses.Diagnoses.model_validate({"length": 16, "trained": 8, "readings": readings, "states": states})
    )
    logits, places, entropy = (drawn.chart for drawn in shown.figures)
    assert list(logits.data[0]["x"]) == [0.5, 9000] and "between -70 and 3" in logits.summary
    assert [trace["name"] for trace in places.data] == ["a", "b"] and "50% and 25%" in places.summary
    assert [list(trace["y"]) for trace in entropy.data[:2]] == [[1.5, 2.5], [2.079, 2.773]]
    assert shown.tables[0].rows[1] == ["Λ", "16.0", "-70 to 3", "9,000", "2.50 of 2.77"]
    assert all(json.loads(charts.encode(drawn.chart)) for drawn in shown.figures)


def test_the_page_tells_how_many_samples_each_adapter_was_trained_on(tmp_path, monkeypatch):
    settings = {"settings": {}, "summary": {}}
    shown = KINDS["pic_sft.json"].show(benchmarks.LongForm.model_validate(settings))
    assert "trained on: sft on 60, sft_ntk on 60, sft_dynamic on 326." in shown.words
    monkeypatch.setattr(adapters, "ROOT", tmp_path)
    assert "trained on" not in KINDS["pic_sft.json"].show(benchmarks.LongForm.model_validate(settings)).words


@pytest.mark.parametrize("file", ["pic_sft.json", "longform_many.json", "longbench_write_long.json"])
def test_rows_of_an_adapter_that_was_trained_further_are_named(file):
    now = adapters.required("sft", "embedded")
    measured = {"a": {"method": "sft", "adapter": "0"}, "b": {"method": "sft", "adapter": now.sha256}, "c": {}}
    words = KINDS[file].show(benchmarks.LongForm.model_validate({"summary": {}, "measured": measured})).words
    assert "Measured before its adapter was trained further: a." in words
    del measured["a"]
    words = KINDS[file].show(benchmarks.LongForm.model_validate({"summary": {}, "measured": measured})).words
    assert "trained further" not in words


def test_truncation_is_priced_at_the_perplexity_of_lambda():
    each, quarter = "truncation, read anew each window", "truncation, read anew each quarter"
    # By window: operations in 10⁹, nats.
    found = {
        "Λ": {256: (1.0, 3.4), 512: (2.0, 3.2), 1024: (4.0, 2.9)},
        each: {256: (2.0, 3.5), 512: (3.0, 3.3), 1024: (5.0, 3.1)},
        quarter: {256: (4.0, 3.45), 512: (9.0, 3.1), 1024: (9.5, 3.0)},
    }
    rows = [
        {"attention": name, "window": window, "document": text, "operations": cost * 1e9, "nats": nats + more}
        for name, points in found.items()
        for window, (cost, nats) in points.items()
        for text, more in (("a", -0.25), ("b", 0.25))
    ]
    # Of a third text one window only: it is left out.
    rows.append(rows[0] | {"document": "c", "nats": 9.0})
    shown = KINDS["computation.json"].show(Computation.model_validate({"first": 8, "stop": 16, "rows": rows}))
    # 3.4 lies amid 2 and 3, 3.2 amid 3 and 5; 2.9 is below all that truncation reaches.
    assert "Tokens 8 to 16 of 2 texts." in shown.words
    assert "of Λ’s operations, 2.50 × with a window of 256, 2.00 × with a window of 512." in shown.words
    (drawn,) = shown.figures
    assert [trace["name"] for trace in drawn.chart.data] == ["Λ", quarter, each]
    assert list(drawn.chart.data[0]["x"]) == [1.0, 2.0, 4.0]
    assert shown.tables[0].rows[0] == ["Λ", "256", "1.00", f"{math.exp(3.4):.1f}"]
    none = KINDS["computation.json"].show(Computation.model_validate({"first": 8, "stop": 16, "rows": []}))
    assert none.tables[0].rows == [] and "0 texts" in none.words


def test_what_grows_beyond_training_is_counted_in_the_file():
    def layer(number, mean, high):
        return {"layer": number, "head": 0, "distance": [1, 6, 12], "mean": mean, "low": [-3, -1, -1], "high": high}

    layers = [layer(0, [5, 1, 2], [5, 1, 4]), layer(1, [1, 1, 2], [1, 1, 4]), layer(2, [1, 2, 1], [1, 2, 2])]
    near = layers[0] | {"layer": 3, "distance": [1, 2, 3]}
    reading = {"document": "a", "policy": "plain", "position": [16], "attended": [16], "entropy": [[1.0]]}
    text = {"document": "a", "position": [0, 4, 8, 15], "x": [0, 2, 1, 3], "y": [0, 1, 1, 1]}
    content = {"length": 16, "trained": 8, "states": {"explained": [0.5, 0.25], "texts": [text]}}

    def told(**changes):
        readings = [reading | {"logits": [*layers, near]}]
        return diagnoses.diagnosed(diagnoses.Diagnoses.model_validate(content | {"readings": readings} | changes)).words

    assert "beyond 8 is higher than that from 4 on in 2 of 3 layers; the largest size" in told()
    assert "exceeds the largest within 8 in 1. Of 2 first-layer states past token 8, 1 lie outside" in told()
    assert told(trained=None) == "Texts of 16 tokens."
    assert told(readings=[], trained=16) == "Texts of 16 tokens; the model was trained on 16."


def test_length_by_ratio_stands_beside_that_of_004():
    summary = {
        "plain": {"lengthening": 1.0, "shared": 4, "corrupted": 0.5},
        "dynamic contiguous s=4": {
            "lengthening": 1.5, "lengthening_low": 1.25, "lengthening_high": 2.25, "shared": 3, "corrupted": 0.25
        },
        "dynamic contiguous s=4, recent 512": {"lengthening": 9.0},
        "dynamic literal s=4": {"lengthening": 8.0},
        "NTK s=16": {"lengthening": None},
        "naive s=2": {"lengthening": 0.5},
    }
    chart = benchmarks.long_answers(benchmarks.LongForm(summary=summary)).figures[0].chart
    lines = {trace["name"]: dict(zip(trace["x"], trace["y"], strict=True)) for trace in chart.data}
    assert lines["dynamic"] == {1.0: 1.0, 4.0: 1.5} and not {"NTK", "NTK in 004"} & lines.keys()
    bars = {trace["name"]: trace.get("error_y", {}) for trace in chart.data}
    assert bars["dynamic"]["array"] == [0, 0.75] and bars["dynamic"]["arrayminus"] == [0, 0.25]
    gains = (1380.63 / 1024.05, 1125.13 / 966.61, 1154.62 / 984.5)
    assert lines["dynamic in 004"][4.0] == pytest.approx(statistics.fmean(gains), abs=1e-3)
    assert min(lines["naive in 004"]) == 0.67, "half of some model's answers at smaller ratios are corrupt"
    assert ["dynamic", "4", "1.50", "1.25", "2.25", "3", "25.0 %", "1.23"] in chart.rows
    assert "dynamic writes most at ratio 4: 1.50 × plain" in chart.summary


def test_answers_that_are_all_corrupted_are_not_compared():
    summary = {name: {"corrupted": 1.0, "lengthening": None} for name in ("plain", "NTK s=16")}
    shown = benchmarks.long_answers(benchmarks.LongForm(summary=summary))
    assert shown.words == "Every answer is corrupted, so lengths cannot be compared." and not shown.figures


def test_length_by_uncompressed_part_is_drawn_where_several_were_measured():
    name = "dynamic contiguous s=4"
    summary = {
        "plain": {"lengthening": 1.0},
        f"{name}, recent 512": {"lengthening": 1.5},
        name: {"lengthening": 0.75, "lengthening_low": 0.5, "shared": 4, "corrupted": 0.125},
        f"{name}, no recent part": {"lengthening": None, "corrupted": 1.0},
        f"{name}, no initial part": {"lengthening": 9.0},
        f"{name}, initial 32": {"lengthening": 0.5},
    }
    result = benchmarks.LongForm(summary=summary, settings={"recent": 128})
    _, initial, drawn = benchmarks.long_answers(result).figures
    assert (initial.chart.data[0]["x"], initial.chart.data[0]["y"]) == ([1, 4, 32], [9.0, 0.75, 0.5])
    assert [row[0] for row in initial.chart.rows] == ["0", "4", "32"]
    assert initial.chart.summary.startswith("with 0 initial tokens left alone it writes most: 9.00")
    assert (drawn.chart.data[0]["x"], drawn.chart.data[0]["y"]) == ([128, 512], [0.75, 1.5])
    none = ["–", "–", "–", "–", "100.0 %"]
    assert drawn.chart.rows[:2] == [["1", *none], ["128", "0.75", "0.50", "–", "4", "12.5 %"]]
    assert drawn.chart.summary.startswith("with 512 recent tokens")
    unsaid = benchmarks.LongForm(summary=summary)
    titles = [drawn.title for drawn in benchmarks.long_answers(unsaid).figures]
    assert "Length by recent part (004 figure 4)" not in titles, "that it is 128 is in the settings alone"


def test_the_tables_of_004_stand_beside_long_answers():
    tables = benchmarks.long_answers(benchmarks.LongForm(summary={"plain": {}})).tables
    theirs = {table.caption: table for table in tables if "tables 1 and" in table.caption}
    assert [len(table.rows) for table in theirs.values()] == [11, 16, 16]
    assert all(len(row) == len(table.columns) == 13 for table in theirs.values() for row in table.rows)
    table = published.compression("NTK")
    ntk = dict(zip(table.columns, table.rows[8], strict=True))
    assert (ntk["ratio"], ntk["Qwen-2.5-7B: tokens"], ntk["GLM-4-9B: % corrupted"]) == ("4", "1178.38", "1.63")
    assert published.compressed("dynamic", "0.25").startswith("LLaMA-3.1-8B 857 (0), Qwen-2.5-7B 855 (4.88)")
    assert published.compressed("dynamic", "5") == "–"


def test_landing_shows_the_quality_of_its_file(folder):
    content = {"landing": 8, "summary": {"10-200": {"mae": 0.5}}, "quality": {"perplexity_ratio": 1.25}}
    for quality, cell in ((content["quality"], "1.25"), (None, "–")):
        table = benchmarks.landing(benchmarks.Landing.model_validate(content | {"quality": quality})).tables[0]
        assert (table.columns[-1], table.rows[0][-1]) == (lengths.RATIO, cell)


def test_what_the_engine_gains_on_algorithm_1_is_split_into_rotations_and_kernels():
    speeds = {benchmarks.DYNAMIC: 50.0, benchmarks.ALGORITHM: 4.0, benchmarks.PLAIN: 5.0}
    rates = [benchmarks.Rate(case=case, context=4096, decode=decode) for case, decode in speeds.items()]
    words = benchmarks.speed(benchmarks.Bench(long=rates)).words
    assert "algorithm 1 4.0 (12.5×). transformers bf16, which rotates no key anew, decodes 1.25× as fast" in words
    assert "the other 10.0× are the engine’s kernels." in words
    assert "kernels" not in benchmarks.speed(benchmarks.Bench(long=rates[:2])).words


def test_signals_are_compared_by_the_best_reader():
    found = (("ldpe", "linear", 0.75), ("ldpe", "one hidden layer", 0.875), ("lrpe", "linear", 0))
    rows = [
        {"signal": kind, "numbers": "float32", "reader": reader, "found": share, "never": 0.1, "loss": 2.5}
        for kind, reader, share in found
    ]
    shown = KINDS["endmark.json"].show(EndMark.model_validate({"lengths": 110, "gain": 0.5, "rows": rows}))
    assert "Of 110 lengths" in shown.words and "LDPE 87.5 %; LRPE 0.0 %." in shown.words
    assert shown.tables[0].rows[0] == ["LDPE", "float32", "linear", "75.0 %", "10.0 %", "2.50"]
