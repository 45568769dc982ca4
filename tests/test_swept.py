"""A sweep on the page: what it may be, about how long it takes, what is shown and saved of it; then in a browser."""

from __future__ import annotations

import csv
import io
import re

import pytest
import test_app_browser as on_page
from playwright.sync_api import expect

from app import swept
from app.swept import Plan
from app.tabs import sweep
from backend.refused import Refused
from backend.sweep import COLUMNS

address, visit, lab, held, demo, runs = (
    on_page.address, on_page.visit, on_page.lab, on_page.held, on_page.demo, on_page.runs
)  # fmt: skip
HOSTILE = "<img src=x onerror=alert(1)> What is tea?"
FORMULA = "=SUM(A1:A9)"


def plan(given="", typed="One?\nTwo?\n\nOne?", methods=("ldpe", "none"), targets="20, 60", seeds="0", temperature=0.0):
    return Plan.of(given, typed, methods, targets, seeds, "tokens", temperature, "embedded", "bf16")


def row(**more):
    return {
        "prompt": "Why?", "method": "ldpe", "target": 20, "seed": 0, "unit": "tokens", "length": 18, "error": -2,
        "tokens": 18, "words": 12, "characters": 60, "ended": "ended with a sentence", "text": "So.", "settings": "{}",
    } | more  # fmt: skip


def test_a_plan_says_how_many_runs_and_about_how_long():
    assert len(plan().cases) == 2 * (2 + 1)
    # Twice 20, 60 and a cap of 256 tokens, at 92 tokens a second.
    assert plan().words() == "6 runs, about 7 s on two cores."
    assert plan(seeds="0 1").words().endswith("At temperature 0 all seeds write the same.")
    assert "temperature" not in plan(seeds="0 1", temperature=1.0).words()
    given = swept.File("q.csv", ["Of a file?"]).packed()
    assert [case.prompt for case in plan(given=given).cases] == ["Of a file?"] * 3


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"typed": " \n"}, "no prompt"),
        ({"methods": ()}, "no method"),
        ({"targets": ""}, "targets from 1 to 1,000"),
        ({"targets": "20, many"}, "targets are no whole numbers"),
        ({"targets": "5000"}, "targets from 1 to 1,000"),
        ({"seeds": "-1"}, "seeds from 0"),
        ({"seeds": "9" * 5000}, "seeds are no whole numbers"),
        ({"typed": "x" * 4001}, "4,001 characters"),
        ({"seeds": " ".join(map(str, range(50)))}, "300 runs, more than 200"),
    ],
)
def test_what_a_sweep_may_not_be_is_said_in_one_sentence(more, says):
    with pytest.raises(Refused, match=says):
        plan(**more)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"question\nOne\n", "no column named prompt"),
        (b"prompt\n \n", "column prompt of q.csv is empty"),
        (b"prompt,more\n,1\n", "column prompt of q.csv is empty"),
        (b"prompt\n\xff\n", "not UTF-8"),
        (b"prompt\n" + b"x" * 200_000, "is no CSV"),
        (b"prompt\n" + b"x\n" * 300_000, "larger than 500 kB"),
    ],
)
def test_a_file_that_is_none_says_what_to_do_and_names_no_folder(tmp_path, data, says):
    (tmp_path / "q.csv").write_bytes(data)
    with pytest.raises(Refused, match=says) as error:
        swept.uploaded(tmp_path / "q.csv")
    assert str(tmp_path) not in str(error.value)


def test_what_is_saved_is_a_table_of_the_command_line_with_no_formula():
    rows = {1: row(prompt=FORMULA), 0: row(method="none", target="", error="")}
    first, *found = swept.pieces("a", rows)
    assert first[0] == "a" and [number for number, *_ in found] == [1, 0]
    assert found[1][1] == ["Why?", "Off", "–", "0", "18 tokens", "–", "ended with a sentence", "So."]
    head, formula, plain = csv.reader(io.StringIO(first[1] + "".join(line for *_, line in found)))
    assert tuple(head) == COLUMNS and formula[0] == f"'{FORMULA}" and plain[2] == ""


def test_the_chart_has_a_box_for_each_method_and_words_for_each_target():
    table = swept.table({0: row(), 1: row(target=60, length=60, error=0), 2: row(method="none", target="", error="")})
    chart = swept.picture(table)
    assert [trace["type"] for trace in chart.data] == ["box", "box", "scatter"]
    assert chart.data[0]["y"] == [18, 60] and chart.data[1]["x"] == ["no target"]
    assert chart.layout["xaxis"]["categoryarray"] == ["no target", "20", "60"]
    assert [words for _, _, words in chart.rows] == [words for _, words, _ in swept.outcomes(table)]
    assert chart.rows[0][2] == "18 to 18 tokens, 2.0 from the target on average; 1 of 1 end with a full stop"


@pytest.fixture
def questions(tmp_path):
    file = tmp_path / "q.csv"
    with file.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([["id", "prompt"], [1, HOSTILE], [2, FORMULA], [3, "Two\nlines"]])
    return file


def opened(visit):
    page = visit(query="?tab=sweep", opens="compare").page
    expect(page.locator("#s-about")).to_contain_text("runs, about")
    return page


def test_a_file_is_swept_stopped_and_saved(visit, held, questions):
    page = opened(visit)
    page.set_input_files("input:has(+ #s-upload)", questions)
    expect(page.locator("#s-file")).to_contain_text("3 prompts of q.csv, in the place of what is typed.")
    page.locator("#s-targets :is(input, textarea)").fill("8")
    page.locator("#s-seeds :is(input, textarea)").fill("0, 1")
    page.get_by_label("Off", exact=True).check()
    page.get_by_label("In the prompt", exact=True).uncheck()
    expect(page.locator("#s-about")).to_contain_text(" runs, about")
    # What has no target waits until it is stopped.
    held.upto(20)
    page.click("#s-go")
    rows = page.locator("#table-sweep-table tbody tr")
    expect(rows).not_to_have_count(0)
    while rows.count() < 6:
        page.wait_for_timeout(50)
    page.click("#s-stop")
    expect(page.locator("#figures-sweep .ll-message")).to_have_text("Stopped: what had ended is kept.")
    page.wait_for_selector("#s-go:not([disabled])")
    shown = rows.count()
    assert shown >= 6 and page.locator("#table-sweep-table img").count() == 0
    with page.expect_download() as file:
        page.click("#table-sweep-table [data-act=csv]")
    with open(file.value.path(), encoding="utf-8", newline="") as stream:
        saved = [*csv.DictReader(stream)]
    assert len(saved) == shown and {each["prompt"] for each in saved} <= {HOSTILE, f"'{FORMULA}", "Two\nlines"}
    page.reload()
    expect(page.locator("#s-file")).to_contain_text("3 prompts of q.csv, in the place of what is typed.")
    expect(page.locator("#s-targets :is(input, textarea)")).to_have_value("8")
    page.click("#s-drop")
    expect(page.locator("#s-typed textarea")).to_be_enabled()


def test_a_sweep_has_an_address_of_its_own(visit):
    page = opened(visit)
    page.click("#c-way label:first-of-type")
    expect(page.locator("#c-go")).to_be_visible()
    expect(page).to_have_url(re.compile("tab=compare"))
    page.go_back()
    expect(page.locator("#s-go")).to_be_visible()
    page.click("[role=tab][data-tab-id=lab]")
    page.wait_for_url(re.compile("tab=lab"))
    page.click("[role=tab][data-tab-id=compare]")
    page.wait_for_url(re.compile("tab=sweep"))
    page.reload()
    expect(page.locator("#s-go")).to_be_visible()


def test_what_a_page_holds_of_a_file_may_be_anything():
    assert swept.File.of(swept.File("q.csv", ["One", "Two\nlines"]).packed()) == ("q.csv", ["One", "Two\nlines"])
    for packed in ("", "[]", "{}", '["q.csv", [1]]', '["q.csv", "One"]', "[" * 10_000, "\ud800"):
        assert swept.File.of(packed).prompts == []


def test_what_cannot_be_swept_is_said_before_and_after_the_press(visit):
    page = opened(visit)
    page.locator("#s-seeds :is(input, textarea)").fill(" ".join(map(str, range(90))))
    expect(page.locator("#s-about [data-state=bad]")).to_contain_text("more than 200")
    page.click("#s-go")
    expect(page.locator("#figures-sweep [data-state=bad] .ll-message")).to_contain_text("more than 200")


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.ui), "dark"])
def test_a_phone_has_it_without_a_scroll_to_the_side(visit, scheme):
    page = visit(query="?tab=sweep", opens="compare", viewport={"width": 390, "height": 844}, color_scheme=scheme).page
    expect(page.locator("#s-go")).to_be_visible()
    expect(page.locator("#c-go")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_the_rows_are_as_many_as_the_speed_was_measured_with():
    assert max(swept.SPEEDS) == sweep.ROWS
